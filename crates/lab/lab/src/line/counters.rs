//! What a line counts. Segments, always: a super-packet counts as the frames that it is on a wire.

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
    /// Lost on the way, as was asked for.
    pub loss: u64,
    /// The buffer was full.
    pub buffer: u64,
    /// Packet memory was exhausted: more than the box was made for.
    pub memory: u64,
    /// The port refused them.
    pub refused: u64,
    /// They are longer than the port's MTU; the box answered their senders.
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

    /// All of them.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.loss + self.buffer + self.memory + self.refused + self.too_big
    }

    /// Those that nobody asked for: the box did not keep up.
    #[must_use]
    pub fn unwanted(&self) -> u64 {
        self.memory + self.refused
    }
}

/// What became of a flow on a line.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct FlowCounters {
    /// What came.
    pub arrived: Traffic,
    /// What left.
    pub left: Traffic,
    /// What did not.
    pub drops: Drops,
    /// Bytes on the wire that wait now.
    pub queue: u64,
    /// Most that ever waited.
    pub queue_max: u64,
    /// How long the last packet that left was on the line, in nanoseconds.
    pub passage_ns: u64,
    /// How long its sender takes to answer; nothing where flows are counted together.
    pub round_trips: RoundTrips,
}

impl FlowCounters {
    /// Counts a flow that is told apart no more among others.
    pub(super) fn join(&mut self, other: &Self) {
        self.arrived.add(other.arrived);
        self.left.add(other.left);
        self.drops.add(other.drops);
        self.queue += other.queue;
        self.queue_max = self.queue_max.max(other.queue_max);
    }
}

/// What became of everything on a line.
///
/// `arrived + duplicated = left + drops.total() + on the line`, in segments.
#[derive(Clone, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Counters {
    /// What came.
    pub arrived: Traffic,
    /// What left.
    pub left: Traffic,
    /// What did not.
    pub drops: Drops,
    /// Segments that came twice, counted once each.
    pub duplicated: u64,
    /// Segments of which a bit was turned.
    pub corrupted: u64,
    /// Segments held back for others to overtake.
    pub reordered: u64,
    /// Segments on the line: waiting and under way.
    pub on_line: u64,
    /// Bytes on the wire that wait, or of which the last bit has not left the transmitter. Not
    /// what is under way.
    pub queue: u64,
    /// Most that ever waited.
    pub queue_max: u64,
    /// The flows that are told apart now, at most [`MAX_FLOWS`](super::MAX_FLOWS).
    #[serde(with = "named")]
    pub flows: Vec<(Flow, FlowCounters)>,
    /// All others together: those that came when every place was taken, and those that were idle
    /// and gave theirs to another.
    pub other_flows: FlowCounters,
    /// How often a flow gave its place to another.
    pub flows_forgotten: u64,
}

/// Flows as objects, each with its name.
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
