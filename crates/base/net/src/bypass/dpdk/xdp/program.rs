//! The XDP program that the kernel runs on each frame an interface receives. The program redirects
//! a node's frames to the node's AF_XDP socket, and passes all other frames to the kernel.
//!
//! Address, port and VLAN tag are constants in the program, so that frames for other hosts pass
//! after a few comparisons. RFC 9669 defines the instructions.

use std::net::{IpAddr, SocketAddr};

use crate::ether::{ETHERNET_BYTES, VLAN_BYTES};

/// The frames for a node.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) struct NodeFilter {
    /// The node's address and UDP port.
    pub(super) address: SocketAddr,
    /// The VLAN tag of its frames.
    pub(super) vlan: Option<u16>,
    /// Whether the kernel has the address too. If it has, the kernel answers ARP requests and
    /// neighbour solicitations.
    pub(super) kernel_has_address: bool,
}

/// Which frames go to the socket.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum RedirectedFrames {
    /// Frames for a node.
    Node(NodeFilter),
    /// All frames.
    All,
}

/// A program, and the byte offset of the instruction that refers to the map of sockets.
pub(super) struct Program {
    pub(super) code: Vec<u8>,
    pub(super) map: u64,
}

/// Registers. A kernel function takes its arguments in registers 1 to 3. Register 0 holds the
/// function's result, and at the end the program's.
const R0: u8 = 0;
const R1: u8 = 1;
/// The start and end of the frame.
const FRAME: u8 = 2;
const END: u8 = 3;
/// A position in the frame.
const AT: u8 = 4;
/// The value read at that position.
const VALUE: u8 = 5;
/// The program's context, which outlives the checks of the frame.
const CONTEXT: u8 = 6;
const LIMIT: u8 = 7;

/// Offsets in `struct xdp_md`: of the frame's start, the frame's end, and the number of the queue
/// that received the frame.
const MD_DATA: i16 = 0;
const MD_DATA_END: i16 = 4;
const MD_QUEUE: i16 = 16;

/// XDP_PASS, the result that passes a frame to the kernel.
const PASS: i32 = 2;

/// The kernel's `bpf_redirect_map`: redirects to the socket that a map has for a key, or returns
/// the argument `flags` if the map has no such socket.
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
/// Mask of the flag "more fragments" and of the fragment offset.
const FRAGMENT: u16 = 0x3fff;

/// The target of a jump.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
enum Label {
    Kernel,
    Node,
    Ip,
    Icmpv6,
    Solicitation,
}

impl Program {
    /// Assembles the program that redirects the frames that `redirected` names.
    pub(super) fn of(redirected: &RedirectedFrames) -> Self {
        let mut code = Assembler::default();
        code.push(0xbf, CONTEXT, R1, 0, 0);
        if let RedirectedFrames::Node(node) = redirected {
            code.check_frame(node);
        }
        code.label(Label::Node);
        let map = code.instructions.len() as u64 * 8;
        code.push(0x18, R1, 0, 0, 0); // the map, filled in by the loader; two instructions long
        code.push(0, 0, 0, 0, 0);
        code.load(4, 2, CONTEXT, MD_QUEUE);
        code.push(0xb7, 3, 0, 0, PASS);
        code.push(0x85, 0, 0, 0, REDIRECT_MAP);
        code.push(0x95, 0, 0, 0, 0);
        // The kernel rejects a program with unreachable instructions.
        if !code.jumps.is_empty() {
            code.label(Label::Kernel);
            code.push(0xb7, R0, 0, 0, PASS);
            code.push(0x95, 0, 0, 0, 0);
        }
        Self { code: code.finish(), map }
    }
}

/// Returns the value that a two-byte load has for a 16-bit number in network order.
fn raw(number: u16) -> i32 {
    i32::from(u16::from_ne_bytes(number.to_be_bytes()))
}

#[derive(Default)]
struct Assembler {
    instructions: Vec<[u8; 8]>,
    jumps: Vec<(usize, Label)>,
    labels: Vec<(Label, usize)>,
}

impl Assembler {
    fn push(&mut self, code: u8, to: u8, from: u8, offset: i16, value: i32) {
        let ([o0, o1], [v0, v1, v2, v3]) = (offset.to_ne_bytes(), value.to_ne_bytes());
        // The byte order of the machine decides which register is in the lower half of the byte.
        // All our targets are little-endian.
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

    fn jump(&mut self, code: u8, a: u8, b: u8, value: i32, to: Label) {
        self.jumps.push((self.instructions.len(), to));
        self.push(code, a, b, 0, value);
    }

    /// Jumps unless the lower 32 bits of a register equal `value`.
    fn unless(&mut self, register: u8, value: i32, to: Label) {
        self.jump(0x56, register, 0, value, to);
    }

    fn when(&mut self, register: u8, value: i32, to: Label) {
        self.jump(0x16, register, 0, value, to);
    }

    /// Passes the frame to the kernel if it is shorter than `bytes`. The kernel's verifier demands
    /// this check before a load.
    fn unless_long_enough(&mut self, bytes: i16) {
        self.push(0xbf, AT, FRAME, 0, 0);
        self.push(0x07, AT, 0, 0, i32::from(bytes));
        self.jump(0x2d, AT, END, 0, Label::Kernel);
    }

    /// Jumps unless the frame has `bytes`, a multiple of four, at this offset.
    fn unless_equal(&mut self, at: i16, bytes: &[u8], to: Label) {
        for (word, at) in bytes.chunks_exact(4).zip((at..).step_by(4)) {
            self.load(4, VALUE, FRAME, at);
            self.unless(VALUE, i32::from_ne_bytes(word.try_into().expect("4 bytes")), to);
        }
    }

    fn label(&mut self, to: Label) {
        self.labels.push((to, self.instructions.len()));
    }

    /// Checks a frame, and passes it to the kernel if it is not for the node.
    fn check_frame(&mut self, node: &NodeFilter) {
        self.load(4, FRAME, R1, MD_DATA);
        self.load(4, END, R1, MD_DATA_END);
        let network = match node.vlan {
            None => ETHERNET_BYTES,
            Some(_) => ETHERNET_BYTES + VLAN_BYTES,
        };
        let network = i16::try_from(network).expect("14 or 18");
        self.unless_long_enough(network);
        self.load(2, VALUE, FRAME, 12);
        if let Some(vlan) = node.vlan {
            self.unless(VALUE, raw(VLAN), Label::Kernel);
            self.load(2, VALUE, FRAME, 14);
            self.push(0x57, VALUE, 0, 0, raw(VLAN_MASK));
            self.unless(VALUE, raw(vlan), Label::Kernel);
            self.load(2, VALUE, FRAME, 16);
        }
        match node.address.ip() {
            IpAddr::V4(own) => self.ipv4(network, own.octets(), node),
            IpAddr::V6(own) => self.ipv6(network, own.octets(), node),
        }
    }

    fn ipv4(&mut self, ip: i16, own: [u8; 4], node: &NodeFilter) {
        if !node.kernel_has_address {
            // Matches ARP requests for our address and ARP replies to it. In both our address is
            // the target.
            self.unless(VALUE, raw(ARP), Label::Ip);
            self.unless_long_enough(ip + 28);
            self.unless_equal(ip + 24, &own, Label::Kernel);
            self.jump(0x05, 0, 0, 0, Label::Node);
            self.label(Label::Ip);
        }
        self.unless(VALUE, raw(IPV4), Label::Kernel);
        self.unless_long_enough(ip + 20);
        self.unless_equal(ip + 16, &own, Label::Kernel);
        self.load(1, VALUE, FRAME, ip + 9);
        if !node.kernel_has_address {
            self.when(VALUE, ICMP, Label::Node);
        }
        self.unless(VALUE, UDP, Label::Kernel);
        self.load(2, VALUE, FRAME, ip + 6);
        self.push(0x57, VALUE, 0, 0, raw(FRAGMENT));
        self.unless(VALUE, 0, Label::Kernel);
        // The lower half of the header's first byte is its length in words of 4 bytes.
        self.load(1, VALUE, FRAME, ip);
        self.push(0x57, VALUE, 0, 0, 0xf);
        self.push(0x67, VALUE, 0, 0, 2);
        self.push(0xbf, AT, FRAME, 0, 0);
        self.push(0x07, AT, 0, 0, i32::from(ip));
        self.push(0x0f, AT, VALUE, 0, 0);
        self.push(0xbf, LIMIT, AT, 0, 0);
        self.push(0x07, LIMIT, 0, 0, 8);
        self.jump(0x2d, LIMIT, END, 0, Label::Kernel);
        self.load(2, VALUE, AT, 2);
        self.unless(VALUE, raw(node.address.port()), Label::Kernel);
    }

    fn ipv6(&mut self, ip: i16, own: [u8; 16], node: &NodeFilter) {
        self.unless(VALUE, raw(IPV6), Label::Kernel);
        self.unless_long_enough(ip + 48);
        self.load(1, VALUE, FRAME, ip + 6);
        if !node.kernel_has_address {
            self.when(VALUE, ICMPV6, Label::Icmpv6);
        }
        self.unless(VALUE, UDP, Label::Kernel);
        self.unless_equal(ip + 24, &own, Label::Kernel);
        self.load(2, VALUE, FRAME, ip + 42);
        self.unless(VALUE, raw(node.address.port()), Label::Kernel);
        if !node.kernel_has_address {
            self.jump(0x05, 0, 0, 0, Label::Node);
            self.label(Label::Icmpv6);
            self.unless_equal(ip + 24, &own, Label::Solicitation);
            self.jump(0x05, 0, 0, 0, Label::Node);
            // A solicitation for our address goes to a multicast group.
            self.label(Label::Solicitation);
            self.load(1, VALUE, FRAME, ip + 40);
            self.unless(VALUE, SOLICITATION, Label::Kernel);
            self.unless_long_enough(ip + 64);
            self.unless_equal(ip + 48, &own, Label::Kernel);
        }
    }

    fn finish(mut self) -> Vec<u8> {
        for (at, to) in self.jumps {
            let (_, label) = self
                .labels
                .iter()
                .find(|(name, _)| *name == to)
                .expect("every place is in the program");
            let skipped = i16::try_from(label - at - 1).expect("jumps go forward, and not far");
            self.instructions[at][2..4].copy_from_slice(&skipped.to_ne_bytes());
        }
        self.instructions.concat()
    }
}

const _: () = assert!(
    cfg!(target_endian = "little"),
    "registers of an instruction are in another order otherwise"
);
