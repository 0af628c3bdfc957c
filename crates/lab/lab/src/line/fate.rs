//! What becomes of each segment on a line, drawn from a seed.
//!
//! The seed is salted with the box, the line, the kind of mishap and the *stream* that a packet
//! belongs to: the n-th segment of a stream meets the same fate in every run, whatever passes
//! beside it. A stream is what goes from one address to another by a protocol, and by the lower of
//! the two ports, which names the service; the other is a new one for every connection. What
//! kernels send of their own accord, such as neighbour discovery, has streams of its own.

use super::settings::{Loss, Settings};
use crate::chance::{Probability, salted};
use crate::frame::{Flow, Packet};
use sprat_chance::Chance;
use std::collections::HashMap;
use std::net::IpAddr;

/// Most streams that have a sequence of chance of their own; those that come later share one.
const MAX_STREAMS: usize = 4_096;

/// The stream that all share for which there is no room.
const SHARED: u64 = 0;

/// Kinds of mishap, as salts.
const LOSS: u64 = 1;
const DUPLICATE: u64 = 2;
const CORRUPT: u64 = 3;
const REORDER: u64 = 4;
const BITS: u64 = 5;
const JITTER: u64 = 6;

/// What becomes of a segment.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(super) struct Fate {
    pub(super) lost: bool,
    pub(super) twice: bool,
    pub(super) corrupted: bool,
    pub(super) held: bool,
}

impl Fate {
    /// It stays with its neighbours.
    pub(super) fn is_plain(self) -> bool {
        self == Self::default()
    }
}

/// The chance of one stream. Each kind of mishap has a sequence of its own, so that asking for one
/// more does not change the others.
#[derive(Clone, Debug)]
struct Stream {
    loss: Chance,
    duplicate: Chance,
    corrupt: Chance,
    reorder: Chance,
    bits: Chance,
    jitter: Chance,
    /// The state of Gilbert and Elliott's model.
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

    /// Draws the fate of the next segment, which has this number on the line if it has any.
    fn next(&mut self, settings: &Settings, number: Option<u64>) -> Fate {
        let lost = match &settings.loss {
            Loss::None => false,
            Loss::Random(share) => share.happens(&mut self.loss),
            Loss::Listed(numbers) => {
                number.is_some_and(|number| numbers.binary_search(&number).is_ok())
            }
            Loss::Bursts(model) => {
                let turn = if self.bad { model.to_good } else { model.to_bad };
                self.bad ^= turn.happens(&mut self.loss);
                let loss = if self.bad { model.loss_bad } else { model.loss_good };
                loss.happens(&mut self.loss)
            }
        };
        Fate {
            lost,
            twice: settings.duplicate.happens(&mut self.duplicate),
            corrupted: settings.corrupt.happens(&mut self.corrupt),
            held: settings.reorder.is_some_and(|reorder| reorder.share.happens(&mut self.reorder)),
        }
    }
}

/// Draws the fates of all segments of a line.
#[derive(Clone, Debug)]
pub(super) struct Fates {
    seed: u64,
    /// What tells the line from all others.
    salt: u64,
    streams: Vec<Stream>,
    index: HashMap<u64, usize>,
    /// Segments that came, what kernels send of their own accord not counted.
    number: u64,
}

impl Fates {
    pub(super) fn new(seed: u64, salt: u64) -> Self {
        Self { seed, salt, streams: Vec::new(), index: HashMap::new(), number: 0 }
    }

    /// Draws from other numbers than lines with another salt.
    pub(super) fn salted(self, salt: u64) -> Self {
        Self { salt, ..self }
    }

    /// Starts all sequences of chance again if the seed is another.
    pub(super) fn seed(&mut self, seed: u64) {
        if seed != self.seed {
            *self = Self { number: self.number, ..Self::new(seed, self.salt) };
        }
    }

    /// Draws the fates of the segments of `packet`, one after the other.
    pub(super) fn of<'a>(
        &'a mut self,
        packet: &Packet,
        settings: &'a Settings,
    ) -> impl Iterator<Item = Fate> + 'a {
        let counts = !packet.is_housekeeping();
        let (stream, number) = self.stream(packet);
        std::iter::repeat_with(move || {
            *number += u64::from(counts);
            stream.next(settings, counts.then_some(*number))
        })
    }

    /// Counts segments of `packet` to which nothing can happen.
    pub(super) fn skip(&mut self, packet: &Packet, segments: u32) {
        if !packet.is_housekeeping() {
            self.number += u64::from(segments);
        }
    }

    /// The chance by which a bit of `packet` is chosen.
    pub(super) fn bits(&mut self, packet: &Packet) -> &mut Chance {
        &mut self.stream(packet).0.bits
    }

    /// The chance by which `packet` is late.
    pub(super) fn jitter(&mut self, packet: &Packet) -> &mut Chance {
        &mut self.stream(packet).0.jitter
    }

    /// The stream of a packet, and the number of the last segment on the line.
    fn stream(&mut self, packet: &Packet) -> (&mut Stream, &mut u64) {
        let Self { seed, salt, streams, index, number } = self;
        let name = name_of(packet);
        let name =
            if index.len() < MAX_STREAMS || index.contains_key(&name) { name } else { SHARED };
        let at = *index.entry(name).or_insert_with(|| {
            streams.push(Stream::new(*seed, *salt, name));
            streams.len() - 1
        });
        (&mut streams[at], number)
    }
}

/// A number that names the stream of a packet.
fn name_of(packet: &Packet) -> u64 {
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
    let kind = u64::from(packet.kind_on_ethernet()) << 32 | u64::from(protocol) << 16 | service;
    salted(kind, &[a, b, c, d, u64::from(packet.is_housekeeping())]).draw()
}

/// Whether something can happen to a segment.
pub(super) fn eventful(settings: &Settings) -> bool {
    settings.loss != Loss::None
        || settings.duplicate != Probability::NEVER
        || settings.corrupt != Probability::NEVER
        || settings.reorder.is_some()
}
