//! Journals of copies. The complete part of a journal that parses is encoded to a journal that
//! parses to an equal one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sprat_flow::group::count;
use sprat_flow::journal::{begin, groups, parse};

fuzz_target!(|bytes: &[u8]| {
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
});
