//! Segment headers. A header that parses is encoded to the same bytes.

use sprat_wire::entry::SegmentHeader;

pub(crate) fn run(bytes: &[u8]) {
    if let Some(header) = SegmentHeader::parse(bytes) {
        assert_eq!(header.encode(), bytes);
    }
}
