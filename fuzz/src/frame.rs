//! Frames with virtio-net headers. A frame that parses can be split anywhere, and the parts parse
//! to their own descriptions.

use crate::input;
use sprat_lab::Time;
use sprat_lab::chance::salted;
use sprat_lab::frame::{Packet, Received, parse};
use sprat_lab::line::{Line, LineSettings};
use sprat_lab::memory::{CELL_BYTES, Memory};
use sprat_lab::rtt::Stamps;
use std::sync::{Arc, LazyLock};

/// Round trips are measured from every frame that passes.
static STAMPS: LazyLock<Arc<Stamps>> = LazyLock::new(Arc::default);

pub(crate) fn run(bytes: &[u8]) {
    let Some(input) = input::<(u16, &[u8])>(bytes) else { return };
    let (at, bytes) = input;
    let mut memory = Memory::of_cells(80);
    let total = memory.free();
    if let Received::Packet(packet) = Packet::of(bytes, &mut memory, Time::ZERO) {
        assert_eq!(packet.to_vec(), bytes);
        let mut line = Line::new(LineSettings::default()).with_stamps(STAMPS.clone());
        line.push(packet.copy(&mut memory).expect("memory"), Time::ZERO, &mut memory);
        line.pop(Time::ZERO).expect("nothing delays it").free(&mut memory);
        let whole = packet.frame().segments;
        if packet.count() > 1 {
            let at = 1 + u32::from(at) % (packet.count() - 1);
            let (front, mut rest) = packet.split(at, &mut memory).expect("memory");
            assert_eq!((front.count(), rest.count()), (at, whole.count - at));
            let wire = front.frame().segments.wire_bytes(24) + rest.frame().segments.wire_bytes(24);
            assert_eq!(wire, whole.wire_bytes(24));
            for part in [&front, &rest] {
                let bytes = part.to_vec();
                let head = &bytes[..bytes.len().min(CELL_BYTES)];
                assert_eq!(parse(head, bytes.len()), Ok(*part.frame()));
            }
            if rest.count() > 1 {
                rest.truncate(1, &mut memory);
            }
            rest.corrupt(&mut salted(1, &[1]));
            front.free(&mut memory);
            rest.free(&mut memory);
        } else {
            packet.free(&mut memory);
        }
    }
    assert_eq!(memory.free(), total);
}
