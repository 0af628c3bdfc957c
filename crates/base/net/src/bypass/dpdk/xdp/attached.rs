//! The XDP program attached to an interface. Sprat's program stays attached when the process is
//! killed, and DPDK refuses an interface that has a program attached.

use std::io;

use super::object::NAME;
use crate::bypass::dpdk::netlink::{Message, NEW_LINK, Netlink, SET_LINK, attributes};
use crate::bypass::dpdk::sys::program_is;

/// Attributes of an interface: IFLA_XDP, and within it the program's descriptor and the program's
/// id.
const XDP: u16 = 43;
const NESTED: u16 = 0x8000;
const XDP_FD: u16 = 1;
const XDP_PROGRAM: u16 = 4;

/// Detaches our program from an interface if a killed process has left it there. Programs of others
/// stay attached, and DPDK then reports that it cannot use the interface.
pub(super) fn remove_ours(index: u32) -> io::Result<()> {
    let netlink = Netlink::open(0)?;
    netlink.request_link(index)?;
    let mut buffer = vec![0; 16 << 10];
    let mut program = None;
    netlink.receive(&mut buffer, |message| {
        if let Message::Link { kind: NEW_LINK, index: of, rest, .. } = message
            && of == index
        {
            let about = attributes(rest)
                .find(|(kind, _)| kind & !NESTED == XDP)
                .map_or(&[][..], |(_, value)| value);
            let number =
                attributes(about).find(|(kind, _)| *kind == XDP_PROGRAM).map(|(_, value)| value);
            program = number.and_then(|value| value.first_chunk().copied()).map(u32::from_ne_bytes);
        }
    })?;
    if program.is_none_or(|program| !program_is(program, NAME)) {
        return Ok(());
    }
    let mut none = Vec::new();
    for word in [8_u16, XDP_FD, u16::MAX, u16::MAX] {
        none.extend(word.to_ne_bytes()); // descriptor -1 detaches the program
    }
    netlink.request(SET_LINK, index, XDP | NESTED, &none)
}
