//! The program that the kernel runs on each frame that an interface receives: what is a node's goes
//! to its AF_XDP socket, all else to the kernel as before.
//!
//! Address, port and tag are constants in the program, so that a frame of somebody else's is past
//! it after a few comparisons. The instructions are those of RFC 9669.

use std::net::{IpAddr, SocketAddr};

use crate::ether::{ETHERNET_BYTES, VLAN_BYTES};

/// Whose frames are to be taken.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct Wanted {
    /// The node's address and UDP port.
    pub(super) address: SocketAddr,
    /// The tag that its frames have.
    pub(super) vlan: Option<u16>,
    /// Whether the kernel has the address too: then questions for it are the kernel's to answer.
    pub(super) kernel_has_it: bool,
}

/// Whose frames go to the socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum Taken {
    /// Those of a node.
    Node(Wanted),
    /// Everybody's.
    All,
}

/// A program, and the place in it that names the map of sockets: byte of the instruction.
pub(super) struct Program {
    pub(super) code: Vec<u8>,
    pub(super) map: u64,
}

/// Registers. What the kernel's function takes is in 1 to 3, its result and the program's in 0.
const R0: u8 = 0;
const R1: u8 = 1;
/// The frame, and its end.
const FRAME: u8 = 2;
const END: u8 = 3;
/// A place in the frame.
const AT: u8 = 4;
/// What was read there.
const VALUE: u8 = 5;
/// What the kernel gave us, which outlives the look at the frame.
const CONTEXT: u8 = 6;
const LIMIT: u8 = 7;

/// Places in `struct xdp_md`: frame, its end, number of the queue that received it.
const MD_DATA: i16 = 0;
const MD_DATA_END: i16 = 4;
const MD_QUEUE: i16 = 16;

/// "To the kernel", as the program's result.
const PASS: i32 = 2;

/// The kernel's `bpf_redirect_map`: to the socket that a map has for a key, or what its flags say
/// if there is none.
const REDIRECT_MAP: i32 = 51;

const ARP: u16 = 0x0806;
const IPV4: u16 = 0x0800;
const IPV6: u16 = 0x86dd;
const VLAN: u16 = 0x8100;
const VLAN_MASK: u16 = 0xfff;
const ICMP: i32 = 1;
const UDP: i32 = 17;
const ICMPV6: i32 = 58;
const SOLICITATION: i32 = 135;
/// More fragments, or not the first.
const FRAGMENT: u16 = 0x3fff;

/// Where a jump goes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum To {
    Kernel,
    Node,
    Ip,
    Icmpv6,
    Solicitation,
}

impl Program {
    /// The program that takes those.
    pub(super) fn of(taken: &Taken) -> Self {
        let mut code = Assembler::default();
        code.push(0xbf, CONTEXT, R1, 0, 0);
        if let Taken::Node(wanted) = taken {
            code.look(wanted);
        }
        code.place(To::Node);
        let map = code.instructions.len() as u64 * 8;
        code.push(0x18, R1, 0, 0, 0); // the map; the loader fills it in. Takes the place of two.
        code.push(0, 0, 0, 0, 0);
        code.load(4, 2, CONTEXT, MD_QUEUE);
        code.push(0xb7, 3, 0, 0, PASS);
        code.push(0x85, 0, 0, 0, REDIRECT_MAP);
        code.push(0x95, 0, 0, 0, 0);
        // The kernel refuses a program with instructions that are never reached.
        if !code.jumps.is_empty() {
            code.place(To::Kernel);
            code.push(0xb7, R0, 0, 0, PASS);
            code.push(0x95, 0, 0, 0, 0);
        }
        Self { code: code.finish(), map }
    }
}

/// Two bytes of a frame as the program sees them after a load.
fn raw(number: u16) -> i32 {
    i32::from(u16::from_ne_bytes(number.to_be_bytes()))
}

#[derive(Default)]
struct Assembler {
    instructions: Vec<[u8; 8]>,
    jumps: Vec<(usize, To)>,
    places: Vec<(To, usize)>,
}

impl Assembler {
    fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, value: i32) {
        let ([o0, o1], [v0, v1, v2, v3]) = (offset.to_ne_bytes(), value.to_ne_bytes());
        // Which register has the lower half of its byte depends on the byte order, and all we build
        // for is little-endian.
        self.instructions.push([code, from << 4 | to, o0, o1, v0, v1, v2, v3]);
    }

    /// Loads 1, 2 or 4 bytes.
    fn load(&mut self, bytes: u8, to: u8, from: u8, offset: i16) {
        let code = match bytes {
            1 => 0x71,
            2 => 0x69,
            _ => 0x61,
        };
        self.push(code, to, from, offset, 0);
    }

    fn jump(&mut self, code: u8, a: u8, b: u8, value: i32, to: To) {
        self.jumps.push((self.instructions.len(), to));
        self.push(code, a, b, 0, value);
    }

    /// Jumps if the lower 32 bits of a register are another value.
    fn unless(&mut self, register: u8, value: i32, to: To) {
        self.jump(0x56, register, 0, value, to);
    }

    fn when(&mut self, register: u8, value: i32, to: To) {
        self.jump(0x16, register, 0, value, to);
    }

    /// To the kernel with frames that have fewer bytes. The kernel admits no look at others before.
    fn unless_there(&mut self, bytes: i16) {
        self.push(0xbf, AT, FRAME, 0, 0);
        self.push(0x07, AT, 0, 0, i32::from(bytes));
        self.jump(0x2d, AT, END, 0, To::Kernel);
    }

    /// Jumps unless `bytes`, a multiple of four, are there.
    fn unless_equal(&mut self, at: i16, bytes: &[u8], to: To) {
        for (word, at) in bytes.chunks_exact(4).zip((at..).step_by(4)) {
            self.load(4, VALUE, FRAME, at);
            self.unless(VALUE, i32::from_ne_bytes(word.try_into().expect("4 bytes")), to);
        }
    }

    fn place(&mut self, to: To) {
        self.places.push((to, self.instructions.len()));
    }

    /// Looks at a frame: what is not wanted jumps to the kernel.
    fn look(&mut self, wanted: &Wanted) {
        self.load(4, FRAME, R1, MD_DATA);
        self.load(4, END, R1, MD_DATA_END);
        let network = match wanted.vlan {
            None => ETHERNET_BYTES,
            Some(_) => ETHERNET_BYTES + VLAN_BYTES,
        };
        let network = i16::try_from(network).expect("14 or 18");
        self.unless_there(network);
        self.load(2, VALUE, FRAME, 12);
        if let Some(vlan) = wanted.vlan {
            self.unless(VALUE, raw(VLAN), To::Kernel);
            self.load(2, VALUE, FRAME, 14);
            self.push(0x57, VALUE, 0, 0, raw(VLAN_MASK));
            self.unless(VALUE, raw(vlan), To::Kernel);
            self.load(2, VALUE, FRAME, 16);
        }
        match wanted.address.ip() {
            IpAddr::V4(own) => self.ipv4(network, own.octets(), wanted),
            IpAddr::V6(own) => self.ipv6(network, own.octets(), wanted),
        }
    }

    fn ipv4(&mut self, ip: i16, own: [u8; 4], wanted: &Wanted) {
        if !wanted.kernel_has_it {
            // ARP: questions for our address, and answers to it. Both have it where the target
            // stands.
            self.unless(VALUE, raw(ARP), To::Ip);
            self.unless_there(ip + 28);
            self.unless_equal(ip + 24, &own, To::Kernel);
            self.jump(0x05, 0, 0, 0, To::Node);
            self.place(To::Ip);
        }
        self.unless(VALUE, raw(IPV4), To::Kernel);
        self.unless_there(ip + 20);
        self.unless_equal(ip + 16, &own, To::Kernel);
        self.load(1, VALUE, FRAME, ip + 9);
        if !wanted.kernel_has_it {
            self.when(VALUE, ICMP, To::Node);
        }
        self.unless(VALUE, UDP, To::Kernel);
        self.load(2, VALUE, FRAME, ip + 6);
        self.push(0x57, VALUE, 0, 0, raw(FRAGMENT));
        self.unless(VALUE, 0, To::Kernel);
        // The header has as many words of 4 bytes as the lower half of its first byte says.
        self.load(1, VALUE, FRAME, ip);
        self.push(0x57, VALUE, 0, 0, 0xf);
        self.push(0x67, VALUE, 0, 0, 2);
        self.push(0xbf, AT, FRAME, 0, 0);
        self.push(0x07, AT, 0, 0, i32::from(ip));
        self.push(0x0f, AT, VALUE, 0, 0);
        self.push(0xbf, LIMIT, AT, 0, 0);
        self.push(0x07, LIMIT, 0, 0, 8);
        self.jump(0x2d, LIMIT, END, 0, To::Kernel);
        self.load(2, VALUE, AT, 2);
        self.unless(VALUE, raw(wanted.address.port()), To::Kernel);
    }

    fn ipv6(&mut self, ip: i16, own: [u8; 16], wanted: &Wanted) {
        self.unless(VALUE, raw(IPV6), To::Kernel);
        self.unless_there(ip + 48);
        self.load(1, VALUE, FRAME, ip + 6);
        if !wanted.kernel_has_it {
            self.when(VALUE, ICMPV6, To::Icmpv6);
        }
        self.unless(VALUE, UDP, To::Kernel);
        self.unless_equal(ip + 24, &own, To::Kernel);
        self.load(2, VALUE, FRAME, ip + 42);
        self.unless(VALUE, raw(wanted.address.port()), To::Kernel);
        if !wanted.kernel_has_it {
            self.jump(0x05, 0, 0, 0, To::Node);
            self.place(To::Icmpv6);
            self.unless_equal(ip + 24, &own, To::Solicitation);
            self.jump(0x05, 0, 0, 0, To::Node);
            // A question for our address goes to a group.
            self.place(To::Solicitation);
            self.load(1, VALUE, FRAME, ip + 40);
            self.unless(VALUE, SOLICITATION, To::Kernel);
            self.unless_there(ip + 64);
            self.unless_equal(ip + 48, &own, To::Kernel);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        for (at, to) in self.jumps {
            let (_, place) = self
                .places
                .iter()
                .find(|(name, _)| *name == to)
                .expect("every place is in the program");
            let skipped = i16::try_from(place - at - 1).expect("jumps go forward, and not far");
            self.instructions[at][2..4].copy_from_slice(&skipped.to_ne_bytes());
        }
        self.instructions.concat()
    }
}

const _: () = assert!(
    cfg!(target_endian = "little"),
    "registers of an instruction are in another order otherwise"
);
