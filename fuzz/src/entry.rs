//! Entries of the log. An entry that parses is encoded to an equal entry, whose checksum is right.

use sprat_wire::MAX_VERSION;
use sprat_wire::entry::Entry;

pub(crate) fn run(bytes: &[u8]) {
    let checked = Entry::parse_checked(bytes);
    let Ok(entry) = Entry::parse(bytes) else {
        assert!(checked.is_err());
        return;
    };
    assert!(entry.encoded_len() <= bytes.len() && entry.version <= MAX_VERSION);
    let mut again = vec![0; entry.encoded_len()];
    assert_eq!(entry.encode(&mut again), again.len());
    assert_eq!(Entry::parse_checked(&again), Ok(entry));
    assert_eq!(&again[4..], &bytes[4..again.len()], "all but the checksum");
    assert_eq!(checked.is_ok(), again == bytes[..again.len()]);
}
