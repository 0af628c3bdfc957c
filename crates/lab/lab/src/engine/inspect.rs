//! What inspects packets as a worker reads them: the capture, then the filter.

use crate::capture::{CapturedPacket, Recorder};
use crate::filter::{Counters, Rules, Verdict};
use crate::frame::Packet;
use crate::time::Time;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What inspects the packets of one worker: a capture and a filter. The capture records packets as
/// they arrived, before the filter changes them.
#[derive(Debug, Default)]
pub struct Inspection {
    /// The filter.
    pub rules: Rules,
    /// The capture's recorder; its interfaces are the ports of the box, in order.
    pub recorder: Option<Recorder>,
}

/// An [`Inspection`] that a worker runs.
#[derive(Debug)]
pub(super) struct Inspector {
    inspection: Inspection,
    /// Index of the worker's first input among the ports of the box.
    first: usize,
    /// When the box started, in nanoseconds since 1970.
    epoch: u64,
}

impl Inspector {
    pub(super) fn new(inspection: Inspection, first: usize, started: Instant) -> Self {
        let epoch = SystemTime::now()
            .checked_sub(started.elapsed())
            .and_then(|at| at.duration_since(UNIX_EPOCH).ok());
        let epoch =
            epoch.and_then(|since| u64::try_from(since.as_nanos()).ok()).unwrap_or_default();
        Self { inspection, first, epoch }
    }

    /// Captures and filters a packet that arrived at an input of the worker.
    pub(super) fn inspect(&mut self, input: usize, packet: &mut Packet) -> Verdict {
        let interface = self.first + input;
        let segments = packet.frame().segments;
        if let Some(recorder) = &mut self.inspection.recorder {
            let vnet = packet.vnet();
            let captured = CapturedPacket {
                interface,
                at: self.epoch.saturating_add(packet.arrived.0),
                length: packet.ethernet_bytes(),
                segments: (segments.count > 1).then_some((segments.count, vnet.gso_size)),
            };
            recorder.record(&captured, packet.ethernet());
        }
        if self.inspection.rules.is_empty() {
            return Verdict::default();
        }
        let length = packet.ethernet_bytes();
        let rules = &mut self.inspection.rules;
        let edited = packet
            .edit(|head| rules.apply(interface, head, length, segments.count, segments.bytes()));
        // No rewrite makes a frame invalid; if one did, the packet would be dropped.
        edited.unwrap_or(Verdict { dropped: true, mirrors: 0 })
    }

    /// Passes the recorder's current slab to the capture's writer if the slab is old enough. Call
    /// this when no packet passed.
    pub(super) fn idle(&mut self, now: Time) {
        if let Some(recorder) = &mut self.inspection.recorder {
            recorder.flush(self.epoch.saturating_add(now.0));
        }
    }

    /// Swaps the inspector's rules with `rules`; rules that are in both lists keep their counters.
    pub(super) fn change_rules(&mut self, rules: &mut Rules) {
        rules.take_over(&self.inspection.rules);
        std::mem::swap(&mut self.inspection.rules, rules);
    }

    pub(super) fn counters(&self) -> Vec<Counters> {
        self.inspection.rules.counters().map(|(_, counters)| counters).collect()
    }
}
