//! The BPF programs, as instructions of the kernel's virtual machine (RFC 9669).

use super::btf::Types;

/// Offsets of the members that the programs access, in bytes from the beginning of the kernel's
/// `tcp_sock`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offsets {
    max_pacing_rate: i16,
    pacing_rate: i16,
    srtt: i16,
    mss: i16,
    cwnd: i16,
    cwnd_clamp: i16,
}

impl Offsets {
    /// Finds the offsets. The error is the name of a missing member.
    pub(super) fn find(types: &Types<'_>) -> Result<Self, &'static str> {
        const SOCK: [&str; 3] = ["inet_conn", "icsk_inet", "sk"];
        let socket = types.structure("tcp_sock").ok_or("tcp_sock")?;
        let find = |path: &[&str], name: &'static str| {
            let whole: Vec<_> = path.iter().copied().chain([name]).collect();
            types.offset(socket, &whole).and_then(|at| i16::try_from(at).ok()).ok_or(name)
        };
        Ok(Self {
            max_pacing_rate: find(&SOCK, "sk_max_pacing_rate")?,
            pacing_rate: find(&SOCK, "sk_pacing_rate")?,
            srtt: find(&[], "srtt_us")?,
            mss: find(&[], "mss_cache")?,
            cwnd: find(&[], "snd_cwnd")?,
            cwnd_clamp: find(&[], "snd_cwnd_clamp")?,
        })
    }
}

/// Number of segments that the window has in addition to twice what the rate sends in a round trip.
/// While nothing is known of the path, these segments alone are the window.
const WINDOW_BASE: i32 = 32;

/// The bit that marks the rate of a knock, and the ratio of that rate to the rate around the knock.
const KNOCK_BIT: i32 = 1;
const KNOCK: i32 = 5;
const _: () = assert!(KNOCK_BIT as u64 == super::KNOCK_BIT && KNOCK as f64 == crate::weir::KNOCK);

/// A slow start threshold that is never reached.
const INFINITE_SSTHRESH: i32 = 0x7fff_ffff;

/// Opcodes: class, operation and source of the operand (RFC 9669, section 4).
mod op {
    pub(super) const LOAD_32: u8 = 0x61;
    pub(super) const LOAD_64: u8 = 0x79;
    pub(super) const STORE_32: u8 = 0x63;
    pub(super) const STORE_64: u8 = 0x7b;
    pub(super) const ADD: u8 = 0x07;
    pub(super) const MUL_REG: u8 = 0x2f;
    pub(super) const DIV: u8 = 0x37;
    pub(super) const DIV_REG: u8 = 0x3f;
    pub(super) const AND: u8 = 0x57;
    pub(super) const SHIFT_LEFT: u8 = 0x67;
    pub(super) const SHIFT_RIGHT: u8 = 0x77;
    pub(super) const MOVE: u8 = 0xb7;
    pub(super) const MOVE_REG: u8 = 0xbf;
    pub(super) const JUMP_EQUAL: u8 = 0x15;
    pub(super) const JUMP_NOT_ABOVE_REG: u8 = 0xbd;
    pub(super) const EXIT: u8 = 0x95;
}

#[derive(Default)]
struct Code(Vec<u8>);

impl Code {
    fn put(mut self, op: u8, to: u8, from: u8, offset: i16, value: i32) -> Self {
        self.0.extend([op, from << 4 | to]);
        self.0.extend(offset.to_ne_bytes());
        self.0.extend(value.to_ne_bytes());
        self
    }

    /// Loads the first argument, the socket, into register 6. Register 1 points to the arguments.
    fn socket() -> Self {
        Self::default().put(op::LOAD_64, 6, 1, 0, 0)
    }

    fn end(self, result: i32) -> Vec<u8> {
        self.put(op::MOVE, 0, 0, 0, result).put(op::EXIT, 0, 0, 0, 0).0
    }
}

/// Returns the program that the kernel runs when a connection begins to use the congestion control,
/// and on every acknowledgement. The program sets the pacing rate to the limit that was set with
/// `SO_MAX_PACING_RATE`. It sets the window to twice what that rate sends in a round trip, plus
/// `WINDOW_BASE`, so that the rate is the limit. For a knock's rate, the window is that of the rate
/// around the knock. Without a limit, the program changes nothing.
pub(super) fn follow(offsets: &Offsets) -> Vec<u8> {
    Code::socket()
        .put(op::LOAD_64, 2, 6, offsets.max_pacing_rate, 0)
        .put(op::JUMP_EQUAL, 2, 0, 17, -1)
        .put(op::STORE_64, 6, 2, offsets.pacing_rate, 0)
        .put(op::MOVE_REG, 7, 2, 0, 0)
        .put(op::AND, 7, 0, 0, KNOCK_BIT)
        .put(op::LOAD_32, 3, 6, offsets.srtt, 0)
        .put(op::SHIFT_RIGHT, 3, 0, 0, 3) // `srtt_us` is in eighths of microseconds
        .put(op::LOAD_32, 4, 6, offsets.mss, 0)
        .put(op::MUL_REG, 2, 3, 0, 0)
        .put(op::DIV, 2, 0, 0, 1_000_000)
        .put(op::SHIFT_LEFT, 2, 0, 0, 1)
        .put(op::DIV_REG, 2, 4, 0, 0) // division by zero yields zero in BPF
        .put(op::JUMP_EQUAL, 7, 0, 1, 0)
        .put(op::DIV, 2, 0, 0, KNOCK)
        .put(op::ADD, 2, 0, 0, WINDOW_BASE)
        .put(op::LOAD_32, 5, 6, offsets.cwnd_clamp, 0)
        .put(op::JUMP_NOT_ABOVE_REG, 2, 5, 1, 0)
        .put(op::MOVE_REG, 2, 5, 0, 0)
        .put(op::STORE_32, 6, 2, offsets.cwnd, 0)
        .end(0)
}

/// Returns the program that the kernel runs on a loss. It does not change the window: the
/// controller evaluates the loss and sets the rate.
pub(super) fn ssthresh() -> Vec<u8> {
    Code::default().end(INFINITE_SSTHRESH)
}

/// Returns the program that undoes a decrease after a loss. It keeps the window, because a loss
/// does not decrease it.
pub(super) fn undo(offsets: &Offsets) -> Vec<u8> {
    Code::socket().put(op::LOAD_32, 0, 6, offsets.cwnd, 0).put(op::EXIT, 0, 0, 0, 0).0
}
