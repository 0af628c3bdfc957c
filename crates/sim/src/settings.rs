//! What a history is like, drawn from its seed.

use crate::random::Random;
use sprat_disk::Latency;
use sprat_net::HubOptions;
use sprat_store::backup::Durability;
use sprat_wire::SEGLET_BYTES;
use std::time::Duration;

/// The fixed parts of a history.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Clients.
    pub clients: usize,
    /// Operations that a client has under way at most.
    pub window: usize,
    /// Operations of all clients, scans' pages not counted.
    pub operations: u64,
    /// Time over which operations and faults are spread.
    pub span: Duration,
    /// Tables at a time.
    pub tables: usize,
    /// Keys of each table.
    pub keys: u16,
    /// Longest value of most writes, bytes.
    pub usual_value: u64,
    /// Longest value, bytes.
    pub longest_value: u64,
    /// Memory of the server's log, bytes.
    pub memory: usize,
    /// Bytes of a segment.
    pub segment_bytes: usize,
    /// Disk space of the server, bytes.
    pub disk_bytes: u64,
    /// What acknowledged writes survive.
    pub durability: Durability,
    /// Threads that replay.
    pub replay_threads: usize,
    /// The network.
    pub network: HubOptions,
    /// How long the disk takes.
    pub latency: Latency,
    /// How many faults.
    pub faults: u64,
}

impl Settings {
    /// Those of a seed.
    pub fn draw(random: &mut Random) -> Self {
        let large = random.chance(1, 8);
        let heavy = random.chance(1, 2);
        let (memory, seglets) =
            if large { (16 << 20, random.between(18, 32)) } else { (4 << 20, random.between(5, 8)) };
        let segment_bytes = usize::try_from(seglets).expect("small") * SEGLET_BYTES;
        // As many segments on disk as a log of so little memory may have.
        let segments = memory / SEGLET_BYTES / 2;
        let disk_bytes = (segments + 7) as u64 * (segment_bytes + segment_bytes / 8 + 4096) as u64;
        let (usual_value, longest_value) = match (large, heavy) {
            (true, _) => (64 << 10, 1 << 20),
            (false, true) => (48 << 10, 250 << 10),
            (false, false) => (1 << 10, 64 << 10),
        };
        let reliable = random.chance(1, 8);
        Self {
            clients: usize::try_from(random.between(2, 5)).expect("small"),
            window: usize::try_from(random.between(1, 4)).expect("small"),
            operations: random.between(150, 300),
            span: random.micros(200_000, 1_500_000),
            tables: usize::try_from(random.between(1, 2)).expect("small"),
            keys: u16::try_from(random.between(3, 10)).expect("small"),
            usual_value,
            longest_value,
            memory,
            segment_bytes,
            disk_bytes,
            durability: if random.chance(1, 4) { Durability::Buffered } else { Durability::Sync },
            replay_threads: if random.chance(1, 8) { 2 } else { 1 },
            network: HubOptions { mtu: *random.pick(&[1472, 1472, 8972, 60_000]), reliable },
            latency: Latency {
                base: random.between(5_000, 50_000),
                durable: random.between(20_000, 500_000),
                jitter: random.between(1, 400_000),
            },
            faults: random.between(6, 14),
        }
    }
}
