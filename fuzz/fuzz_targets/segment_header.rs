//! Segment headers. A header that parses is encoded to the same bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sprat_wire::entry::SegmentHeader;

fuzz_target!(|bytes: &[u8]| {
    if let Some(header) = SegmentHeader::parse(bytes) {
        assert_eq!(header.encode(), bytes);
    }
});
