//! The counters of a line. They count segments: a super-packet counts as the frames that it would
//! be on a wire.

use crate::frame::Flow;
use crate::rtt::RoundTrips;
use serde::{Deserialize, Serialize};

/// Segments and their Ethernet bytes, headers included.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct Traffic {
    /// Number of frames, as a wire would carry them.
    pub segments: u64,
    /// Bytes of these frames, from the Ethernet header on.
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
    /// Segments lost on purpose, by [`LineSettings::loss`](super::LineSettings::loss).
    pub loss: u64,
    /// Segments that found the buffer full, or were dropped to make room in it.
    pub buffer: u64,
    /// Segments that found no packet memory, because the box was made for less traffic.
    pub memory: u64,
    /// Segments that the port refused.
    pub refused: u64,
    /// Segments of packets longer than the port's MTU. A worker replies "packet too big" to the
    /// senders of such IP packets, at most once a millisecond, but not if it flooded the packet.
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

    /// Returns the drops for all reasons together.
    #[must_use]
    pub fn total(&self) -> u64 {
        self.loss + self.buffer + self.memory + self.refused + self.too_big
    }

    /// Returns the drops that no setting asked for. If there are any, the box did not keep up.
    #[must_use]
    pub fn unwanted(&self) -> u64 {
        self.memory + self.refused
    }
}

/// What a line did with a flow's packets.
#[derive(Clone, Copy, Debug, Default, Deserialize, Eq, PartialEq, Serialize)]
pub struct FlowCounters {
    /// The flow's segments that arrived.
    pub arrived: Traffic,
    /// The flow's segments that left the line.
    pub left: Traffic,
    /// Counts of the segments that did not arrive, by reason.
    pub drops: Drops,
    /// Bytes, as counted on the wire, whose transmission has not begun.
    pub queue: u64,
    /// The largest value that `queue` had after a packet of the flow arrived.
    pub queue_max: u64,
    /// Time from the arrival of the last packet that left to the time at which it was due to leave,
    /// in nanoseconds.
    pub passage_ns: u64,
    /// How long the flow's sender takes to answer. Empty for flows that are counted together.
    pub round_trips: RoundTrips,
}

impl FlowCounters {
    /// Adds the counters of a flow that is no longer counted on its own.
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
    /// Segments that arrived.
    pub arrived: Traffic,
    /// Segments that left the line.
    pub left: Traffic,
    /// Counts of the segments that did not arrive, by reason.
    pub drops: Drops,
    /// Segments that were duplicated. The original and its copy count as one.
    pub duplicated: u64,
    /// Segments of which a bit was flipped.
    pub corrupted: u64,
    /// Segments held back so that later ones overtook them.
    pub reordered: u64,
    /// Segments on the line: waiting or under way.
    pub on_line: u64,
    /// Bytes, as counted on the wire, that wait for the transmitter or that it has not sent yet.
    /// Packets under way do not count.
    pub queue: u64,
    /// The largest value that `queue` had after a packet arrived.
    pub queue_max: u64,
    /// The flows that are counted one by one now; at most [`MAX_FLOWS`](super::MAX_FLOWS).
    #[serde(with = "named")]
    pub flows: Vec<(Flow, FlowCounters)>,
    /// The counters of all other flows together: flows that found no slot of their own, and flows
    /// that lost their slots while they were idle.
    pub other_flows: FlowCounters,
    /// The number of times that an idle flow lost its slot to another flow.
    pub flows_forgotten: u64,
}

/// Serializes each flow as an object that contains its name.
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
