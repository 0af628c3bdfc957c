//! Packets of a frame. Every split makes progress and stays within the frame.

use sprat_wire::packet::{HEADER_BYTES, split};

pub(crate) fn run(frame: &[u8]) {
    let mut rest = frame;
    while let Ok((packet, after)) = split(rest) {
        assert_eq!(HEADER_BYTES + packet.payload.len() + after.len(), rest.len());
        let _ = (packet.header.slot_index(), packet.header.from_server(), packet.header.held());
        rest = after;
    }
}
