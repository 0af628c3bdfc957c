//! Journals of copies. The complete part of a journal that parses is encoded to a journal that
//! parses to an equal one.

use sprat_flow::group::count;
use sprat_flow::journal::{begin, groups, parse};

pub(crate) fn run(bytes: &[u8]) {
    let Some(parsed) = parse(bytes) else { return };
    assert!(parsed.whole <= bytes.len());
    assert!(parsed.groups.keys().all(|group| *group < count(parsed.identity.length)));
    let mut again = begin(&parsed.identity);
    groups(&mut again, &parsed.groups);
    let twice = parse(&again).expect("what we write we read");
    assert_eq!(
        (twice.identity, twice.groups, twice.whole),
        (parsed.identity, parsed.groups, again.len())
    );
}
