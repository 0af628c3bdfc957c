//! The parameters of a history, drawn from its seed.

use crate::random::Random;
use sprat_disk::Latency;
use sprat_net::HubOptions;
use sprat_store::backup::Durability;
use sprat_wire::SEGLET_BYTES;
use std::time::Duration;

/// The parameters of a history.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Number of clients.
    pub clients: usize,
    /// The largest number of operations that a client has in progress.
    pub window: usize,
    /// Number of random calls and scans that all clients together begin. The pages of a scan do not
    /// count.
    pub operations: u64,
    /// One in this many calls is a transaction.
    pub transactions: u64,
    /// Time over which operations and faults are spread.
    pub span: Duration,
    /// Number of tables at a time.
    pub tables: usize,
    /// Number of keys in each table.
    pub keys: u16,
    /// The longest value that most writes store, in bytes.
    pub usual_value: u64,
    /// The longest value that any write stores, in bytes.
    pub longest_value: u64,
    /// Number of objects that exist from the beginning, so that the log is nearly full and the
    /// cleaner has work.
    pub ballast: u16,
    /// Length in bytes of each of these objects at the beginning. Later texts of these objects are
    /// at most as long.
    pub ballast_bytes: u32,
    /// Memory of the server's log, in bytes.
    pub memory: usize,
    /// Bytes of a segment.
    pub segment_bytes: usize,
    /// Disk space of the server, in bytes.
    pub disk_bytes: u64,
    /// The failures that acknowledged writes survive.
    pub durability: Durability,
    /// Whether the power may fail although acknowledged writes are only buffered. A power failure
    /// may then lose these writes, but the log must still open.
    pub reckless: bool,
    /// Number of threads that replay the log.
    pub replay_threads: usize,
    /// The behaviour of the network.
    pub network: HubOptions,
    /// The disk's latency.
    pub latency: Latency,
    /// Number of random faults, without the crash that every history has and the crashes that are
    /// needed for a failing start.
    pub faults: u64,
}

impl Settings {
    /// Draws the settings of a seed.
    pub fn draw(random: &mut Random) -> Self {
        let large = random.chance(1, 8);
        let heavy = random.chance(1, 2);
        let (memory, seglets) = if large {
            (16 << 20, random.between(18, 32))
        } else {
            (4 << 20, random.between(5, 8))
        };
        let segment_bytes = usize::try_from(seglets).expect("small") * SEGLET_BYTES;
        // The range is from the fewest segments on disk that a log of so little memory may have, to
        // the most.
        let (least, most) = (memory / segment_bytes * 3 / 2 + 12, memory / SEGLET_BYTES / 2);
        let segments = random.between(least as u64, most as u64) + 7;
        let disk_bytes = segments * (segment_bytes + segment_bytes / 8 + 4096) as u64;
        let (usual_value, longest_value) = match (large, heavy) {
            (true, _) => (64 << 10, 1 << 20),
            (false, true) => (48 << 10, 250 << 10),
            (false, false) => (1 << 10, 64 << 10),
        };
        let ballast_bytes = 100_000;
        let full = random.chance(2, 5);
        let share = if full { random.between(50, 66) } else { 0 };
        let ballast = memory as u64 * share / 100 / u64::from(ballast_bytes);
        let durability = if random.chance(1, 4) { Durability::Buffered } else { Durability::Sync };
        let reliable = random.chance(1, 8);
        let mut settings = Self {
            clients: usize::try_from(random.between(2, 5)).expect("small"),
            window: usize::try_from(random.between(1, 4)).expect("small"),
            operations: random.between(120, 240),
            transactions: 12,
            span: random.micros(200_000, 1_500_000),
            tables: usize::try_from(random.between(1, 2)).expect("small"),
            keys: u16::try_from(random.between(3, 10)).expect("small"),
            usual_value: if full { usual_value.max(32 << 10) } else { usual_value },
            longest_value,
            ballast: u16::try_from(ballast).expect("few"),
            ballast_bytes,
            memory,
            segment_bytes,
            disk_bytes,
            durability,
            reckless: durability == Durability::Buffered && random.chance(1, 2),
            replay_threads: if random.chance(1, 8) { 2 } else { 1 },
            network: HubOptions { mtu: *random.pick(&[1472, 1472, 8972, 60_000]), reliable },
            latency: Latency {
                base: random.between(5_000, 50_000),
                durable: random.between(20_000, 500_000),
                jitter: random.between(1, 400_000),
            },
            faults: random.between(6, 14),
        };
        // One history in four has many. No number is drawn for it, so the others stay as they were.
        if settings.latency.base.is_multiple_of(4) {
            settings.transactions = 2;
        }
        settings
    }

    /// Returns the mean time between two operations of a client, in nanoseconds, if each client
    /// spreads its operations over the whole span.
    pub fn mean_rest(&self) -> u64 {
        let span = u64::try_from(self.span.as_nanos()).expect("seconds");
        span * self.clients as u64 / self.operations
    }

    /// Returns whether the power must not fail, since a power failure loses buffered writes.
    pub fn spares_power(&self) -> bool {
        self.durability == Durability::Buffered && !self.reckless
    }
}
