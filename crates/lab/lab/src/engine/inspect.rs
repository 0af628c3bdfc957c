//! What looks at packets on their way into a lane: the filter, and the logger.

use crate::capture::{Recorder, Seen};
use crate::filter::{Counters, Rules, Verdict};
use crate::frame::Packet;
use crate::time::Time;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

/// What looks at the packets of one lane. The logger sees them as they came, before the filter.
#[derive(Debug, Default)]
pub struct Inspection {
    /// The filter.
    pub rules: Rules,
    /// The logger; its interfaces are the ports of the box, in order.
    pub recorder: Option<Recorder>,
}

/// An inspection that a lane has.
#[derive(Debug)]
pub(super) struct Inspector {
    inspection: Inspection,
    /// Number of the lane's first input among the ports of the box.
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

    /// Looks at a packet that came over an input of the lane.
    pub(super) fn look(&mut self, input: usize, packet: &mut Packet) -> Verdict {
        let interface = self.first + input;
        let segments = packet.frame().segments;
        if let Some(recorder) = &mut self.inspection.recorder {
            let vnet = packet.vnet();
            let seen = Seen {
                interface,
                at: self.epoch.saturating_add(packet.arrived.0),
                length: packet.ethernet_bytes(),
                segments: (segments.count > 1).then_some((segments.count, vnet.gso_size)),
            };
            recorder.record(&seen, packet.ethernet());
        }
        if self.inspection.rules.is_empty() {
            return Verdict::default();
        }
        let length = packet.ethernet_bytes();
        let rules = &mut self.inspection.rules;
        let edited = packet
            .edit(|head| rules.apply(interface, head, length, segments.count, segments.bytes()));
        edited.unwrap_or(Verdict { dropped: true, mirrors: 0 }) // no change of ours does that
    }

    /// For moments when nothing passes.
    pub(super) fn idle(&mut self, now: Time) {
        if let Some(recorder) = &mut self.inspection.recorder {
            recorder.flush(self.epoch.saturating_add(now.0));
        }
    }

    /// Takes these rules, and leaves the old ones in their place.
    pub(super) fn change_rules(&mut self, rules: &mut Rules) {
        rules.take_over(&self.inspection.rules);
        std::mem::swap(&mut self.inspection.rules, rules);
    }

    pub(super) fn counters(&self) -> Vec<Counters> {
        self.inspection.rules.counters().map(|(_, counters)| counters).collect()
    }
}
