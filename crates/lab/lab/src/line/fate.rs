//! Draws the impairments of each segment on a line from a seed.
//!
//! The seed is salted with the box, the line, the kind of impairment and the *stream* of the
//! packet. The n-th segment of a stream is impaired in the same way in every run, whatever other
//! streams do. There are two exceptions: [`Loss::Listed`] counts the segments of the whole line,
//! and streams beyond the first [`MAX_STREAMS`] share their random sequences.
//!
//! A stream is all packets from one address to another, with one protocol and one service. The
//! service is the lower of the two ports; the higher port differs for every connection. Packets
//! that kernels send by themselves, such as neighbour discovery, have streams of their own.

use super::settings::{LineSettings, Loss};
use crate::chance::{Probability, salted};
use crate::frame::{Flow, Packet};
use sprat_chance::Chance;
use std::collections::HashMap;
use std::net::IpAddr;

/// Limit on the streams with random sequences of their own. All further streams share the same
/// sequences.
const MAX_STREAMS: usize = 4_096;

/// Id of the random sequences that all further streams share.
const SHARED: u64 = 0;

/// The kinds of impairment, as salts.
const LOSS: u64 = 1;
const DUPLICATE: u64 = 2;
const CORRUPT: u64 = 3;
const REORDER: u64 = 4;
const BITS: u64 = 5;
const JITTER: u64 = 6;

/// The impairments of a segment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Impairment {
    pub(super) lost: bool,
    pub(super) duplicated: bool,
    pub(super) corrupted: bool,
    pub(super) held: bool,
}

impl Impairment {
    /// Returns whether the segment is not impaired at all.
    pub(super) fn is_plain(self) -> bool {
        self == Self::default()
    }
}

/// The random sequences of one stream. Each kind of impairment has its own sequence: to switch one
/// kind on does not change which segments the other kinds choose.
#[derive(Clone, Debug)]
struct Stream {
    loss: Chance,
    duplicate: Chance,
    corrupt: Chance,
    reorder: Chance,
    bits: Chance,
    jitter: Chance,
    /// Whether the Gilbert-Elliott model is in its bad state.
    bad: bool,
}

impl Stream {
    fn new(seed: u64, line: u64, stream: u64) -> Self {
        let chance = |kind| salted(seed, &[line, stream, kind]);
        Self {
            loss: chance(LOSS),
            duplicate: chance(DUPLICATE),
            corrupt: chance(CORRUPT),
            reorder: chance(REORDER),
            bits: chance(BITS),
            jitter: chance(JITTER),
            bad: false,
        }
    }

    /// Draws the impairments of the next segment. `number` is the segment's number on the line;
    /// `None` for a packet that a kernel sent by itself.
    fn next(&mut self, settings: &LineSettings, number: Option<u64>) -> Impairment {
        let lost = match &settings.loss {
            Loss::None => false,
            Loss::Random(share) => share.happens(&mut self.loss),
            Loss::Listed(numbers) => {
                number.is_some_and(|number| numbers.binary_search(&number).is_ok())
            }
            Loss::Bursts(model) => {
                let change = if self.bad { model.to_good } else { model.to_bad };
                self.bad ^= change.happens(&mut self.loss);
                let loss = if self.bad { model.loss_bad } else { model.loss_good };
                loss.happens(&mut self.loss)
            }
        };
        Impairment {
            lost,
            duplicated: settings.duplicate.happens(&mut self.duplicate),
            corrupted: settings.corrupt.happens(&mut self.corrupt),
            held: settings.reorder.is_some_and(|reorder| reorder.share.happens(&mut self.reorder)),
        }
    }
}

/// Draws the impairments of all segments of a line.
#[derive(Clone, Debug)]
pub(super) struct Impairments {
    seed: u64,
    /// Salt that distinguishes the line from all others.
    salt: u64,
    streams: Vec<Stream>,
    index: HashMap<u64, usize>,
    /// Number of segments that were pushed onto the line, without packets that kernels send by
    /// themselves.
    number: u64,
}

impl Impairments {
    pub(super) fn new(seed: u64, salt: u64) -> Self {
        Self { seed, salt, streams: Vec::new(), index: HashMap::new(), number: 0 }
    }

    /// Salts the seed. Lines with different salts draw different numbers.
    pub(super) fn salted(self, salt: u64) -> Self {
        Self { salt, ..self }
    }

    /// Starts all random sequences again if `seed` differs from the current one.
    pub(super) fn seed(&mut self, seed: u64) {
        if seed != self.seed {
            *self = Self { number: self.number, ..Self::new(seed, self.salt) };
        }
    }

    /// Draws the impairments of the segments of `packet`, in order. Each item that is taken counts
    /// as one segment.
    pub(super) fn of<'a>(
        &'a mut self,
        packet: &Packet,
        settings: &'a LineSettings,
    ) -> impl Iterator<Item = Impairment> + 'a {
        let counts = !packet.is_housekeeping();
        let (stream, number) = self.stream(packet);
        std::iter::repeat_with(move || {
            *number += u64::from(counts);
            stream.next(settings, counts.then_some(*number))
        })
    }

    /// Counts segments of `packet` for which no impairments are drawn.
    pub(super) fn skip(&mut self, packet: &Packet, segments: u32) {
        if !packet.is_housekeeping() {
            self.number += u64::from(segments);
        }
    }

    /// Returns the random sequence that chooses the bit of `packet` to flip.
    pub(super) fn bits(&mut self, packet: &Packet) -> &mut Chance {
        &mut self.stream(packet).0.bits
    }

    /// Returns the random sequence that chooses the jitter of `packet`.
    pub(super) fn jitter(&mut self, packet: &Packet) -> &mut Chance {
        &mut self.stream(packet).0.jitter
    }

    /// Returns the stream of a packet, and the number of the last segment on the line.
    fn stream(&mut self, packet: &Packet) -> (&mut Stream, &mut u64) {
        let Self { seed, salt, streams, index, number } = self;
        let id = stream_id(packet);
        let id = if index.len() < MAX_STREAMS || index.contains_key(&id) { id } else { SHARED };
        let at = *index.entry(id).or_insert_with(|| {
            streams.push(Stream::new(*seed, *salt, id));
            streams.len() - 1
        });
        (&mut streams[at], number)
    }
}

/// Returns a number that identifies the stream of a packet.
fn stream_id(packet: &Packet) -> u64 {
    let Flow { source, destination, protocol, source_port, destination_port } = packet.frame().flow;
    let words = |address| match address {
        IpAddr::V4(v4) => [u64::from(v4.to_bits()), 4],
        IpAddr::V6(v6) => {
            let bits = v6.to_bits();
            [bits, bits >> 64]
                .map(|word| u64::try_from(word & u128::from(u64::MAX)).expect("64 bits"))
        }
    };
    let ([a, b], [c, d]) = (words(source), words(destination));
    let service = u64::from(source_port.min(destination_port));
    let kind = u64::from(packet.ethertype()) << 32 | u64::from(protocol) << 16 | service;
    salted(kind, &[a, b, c, d, u64::from(packet.is_housekeeping())]).draw()
}

/// Returns whether these settings may lose, duplicate, corrupt or hold back segments.
pub(super) fn impairs(settings: &LineSettings) -> bool {
    settings.loss != Loss::None
        || settings.duplicate != Probability::NEVER
        || settings.corrupt != Probability::NEVER
        || settings.reorder.is_some()
}
