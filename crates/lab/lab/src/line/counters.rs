//! The counters of a line. They count segments: a super-packet counts as the frames that it would
//! be on a wire.

use crate::frame::Flow;
use crate::rtt::RoundTrips;
use serde::{Deserialize, Serialize};

/// Segments and their Ethernet bytes, headers included.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Traffic {
    /// Frames as a wire would carry them.
    pub segments: u64,
    /// Their bytes.
    pub bytes: u64,
}

impl Traffic {
    pub(crate) fn add(&mut self, other: Self) {
        self.segments += other.segments;
        self.bytes += other.bytes;
    }
}

/// Segments that did not arrive, by reason.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Drops {
    /// Lost on purpose, by [`LineSettings::loss`](super::LineSettings::loss).
    pub loss: u64,
    /// The buffer was full.
    pub buffer: u64,
    /// Packet memory was exhausted, because the box was made for less traffic.
    pub memory: u64,
    /// The port refused them.
    pub refused: u64,
    /// They are longer than the port's MTU; the box sent "packet too big" to their senders.
    #[serde(default)]
    pub too_big: u64,
}

impl Drops {
    fn add(&mut self, other: Self) {
        self.loss += other.loss;
        self.buffer += other.buffer;
        self.memory += other.memory;
        self.refused += other.refused;
        self.too_big += other.too_big;
    }

    /// Returns the sum of all.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.loss + self.buffer + self.memory + self.refused + self.too_big
    }

    /// Returns the drops that no setting asked for: the box did not keep up.
    #[must_use]
    pub fn unwanted(&self) -> u64 {
        self.memory + self.refused
    }
}

/// What a line did with a flow's packets.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct FlowCounters {
    /// What arrived.
    pub arrived: Traffic,
    /// What left.
    pub left: Traffic,
    /// Counts of the segments that did not arrive, by reason.
    pub drops: Drops,
    /// Bytes on the wire that wait now.
    pub queue: u64,
    /// The largest number of bytes on the wire that waited at one time.
    pub queue_max: u64,
    /// Time that the last packet that left spent on the line, in nanoseconds.
    pub passage_ns: u64,
    /// How long the flow's sender takes to answer; empty if flows are counted together.
    pub round_trips: RoundTrips,
}

impl FlowCounters {
    /// Adds the counters of a flow that is no longer counted by itself.
    pub(super) fn join(&mut self, other: &Self) {
        self.arrived.add(other.arrived);
        self.left.add(other.left);
        self.drops.add(other.drops);
        self.queue += other.queue;
        self.queue_max = self.queue_max.max(other.queue_max);
    }
}

/// What a line did with all packets.
///
/// `arrived + duplicated = left + drops.total() + on the line`, in segments.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Counters {
    /// What arrived.
    pub arrived: Traffic,
    /// What left.
    pub left: Traffic,
    /// Counts of the segments that did not arrive, by reason.
    pub drops: Drops,
    /// Segments that were duplicated; each counts once.
    pub duplicated: u64,
    /// Segments of which a bit was flipped.
    pub corrupted: u64,
    /// Segments held back so that later ones overtook them.
    pub reordered: u64,
    /// Segments on the line: waiting or under way.
    pub on_line: u64,
    /// Bytes on the wire that wait or whose last bit has not left the transmitter, without what is
    /// under way.
    pub queue: u64,
    /// The largest number of bytes on the wire that waited at one time.
    pub queue_max: u64,
    /// The flows that are counted one by one now, at most [`MAX_FLOWS`](super::MAX_FLOWS).
    #[serde(with = "named")]
    pub flows: Vec<(Flow, FlowCounters)>,
    /// All other flows together: those that found no slot, and those that were idle and lost their
    /// slots.
    pub other_flows: FlowCounters,
    /// The number of times that an idle flow lost its slot to another.
    pub flows_forgotten: u64,
}

/// Serializes flows as objects, each with its name.
mod named {
    use super::{Flow, FlowCounters};
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    #[derive(Deserialize, Serialize)]
    struct Named {
        flow: String,
        #[serde(flatten)]
        counters: FlowCounters,
    }

    pub(super) fn serialize<S: Serializer>(
        flows: &[(Flow, FlowCounters)],
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(
            flows
                .iter()
                .map(|(flow, counters)| Named { flow: flow.to_string(), counters: *counters }),
        )
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Vec<(Flow, FlowCounters)>, D::Error> {
        let flows = Vec::<Named>::deserialize(deserializer)?.into_iter();
        let flow = |Named { flow, counters }| {
            Ok((flow.parse().map_err(serde::de::Error::custom)?, counters))
        };
        flows.map(flow).collect()
    }
}
