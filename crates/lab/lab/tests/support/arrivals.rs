//! Random frames that arrive at a line, and random settings of the line.
#![allow(dead_code, reason = "each test binary uses its part")]

use super::{Sample, numbered};
use proptest::prelude::*;
use sprat_lab::chance::Probability;
use sprat_lab::line::{Discipline, LineSettings, Loss, Rate, Reorder, Timing};
use std::num::NonZeroU32;
use std::time::Duration;

/// Enough cells for every test.
pub(crate) const CELLS: usize = 4_000;

pub(crate) fn rate(bits_per_second: u64) -> Option<Rate> {
    Some(Rate::new(bits_per_second).expect("within limits"))
}

pub(crate) fn share(share: f64) -> Probability {
    Probability::new(share).expect("a share")
}

/// Frames to send. Each has the nanoseconds since the previous one, its length or payload, and its
/// kind.
pub(crate) type Arrivals = Vec<(u64, usize, u8)>;

pub(crate) fn arrivals() -> impl Strategy<Value = Arrivals> {
    prop::collection::vec(
        (prop_oneof![Just(0u64), 0..3_000u64, 0..2_000_000u64], 1usize..20_000, 0u8..5),
        1..60,
    )
}

/// Distance between the sequence numbers of two packets. It is more than the bytes of a packet.
pub(crate) const SPACING: u32 = 100_000;

/// Returns a frame of flow `kind`. Kind 0 is a numbered frame without a flow. The other kinds are
/// TCP, and may be super-packets.
pub(crate) fn bytes_of(number: u32, len: usize, kind: u8) -> Vec<u8> {
    match kind {
        0 => numbered(number, 18 + len % 1500),
        flow => Sample {
            payload: len,
            sequence: number * SPACING,
            source_port: u16::from(flow),
            ..Sample::default()
        }
        .bytes(),
    }
}

pub(crate) fn settings() -> impl Strategy<Value = LineSettings> {
    let rates = prop_oneof![Just(None), (100_000u64..20_000_000_000).prop_map(rate)];
    let times = (0u64..3_000_000, prop_oneof![Just(0u64), 0..2_000_000u64]);
    let queue = (
        any::<bool>(),
        1_000u64..100_000,
        prop_oneof![Just(None), (1_000_000u64..1_000_000_000).prop_map(rate)],
    );
    let shares = || prop_oneof![Just(0.0), 0.0..0.3f64];
    let bursts = prop_oneof![Just(None), (1u32..5).prop_map(NonZeroU32::new)];
    let mishaps = (shares(), shares(), shares(), shares(), any::<u64>());
    (rates, times, queue, mishaps, bursts, any::<bool>()).prop_map(
        |(rate, (delay, jitter), queue, mishaps, burst, cut_through)| {
            let (harmonize, buffer, flow_rate) = queue;
            let (loss, reorder, duplicate, corrupt, seed) = mishaps;
            LineSettings {
                delay: Duration::from_nanos(delay),
                rate,
                buffer,
                queue: if harmonize { Discipline::Harmonize } else { Discipline::DropTail },
                flow_rate,
                burst,
                timing: if cut_through { Timing::CutThrough } else { Timing::StoreAndForward },
                loss: if loss == 0.0 { Loss::None } else { Loss::Random(share(loss)) },
                jitter: Duration::from_nanos(jitter),
                reorder: (reorder > 0.0)
                    .then(|| Reorder { share: share(reorder), by: Duration::from_micros(300) }),
                duplicate: share(duplicate),
                corrupt: share(corrupt),
                seed,
                ..LineSettings::default()
            }
        },
    )
}
