//! What befalls a cluster, and when.

use super::settings::Settings;
use crate::random::Random;
use sprat_disk::Latency;
use sprat_net::Nanos;
use std::time::Duration;

/// Something that goes wrong.
#[derive(Clone, Debug)]
pub enum Fault {
    /// A server's process ends, or its power fails, and it begins again after so long.
    Crash {
        /// Which.
        server: usize,
        /// How long it stays down.
        down: Duration,
        /// Only the process: the kernel still writes what it has.
        process: bool,
    },
    /// A server stands still for so long, as under SIGSTOP: it does not know that time has passed.
    Pause(usize, Duration),
    /// Frames from some servers to others are lost for so long; and those the other way, if `both`.
    Cut {
        /// Whose.
        from: Vec<usize>,
        /// Both ways.
        both: bool,
        /// Those servers are cut off from the coordinator too.
        coordinator: bool,
        /// How long.
        lasts: Duration,
    },
    /// A coordinator's process ends, and another begins after so long.
    CrashCoordinator(usize, Duration),
    /// A coordinator stands still for so long.
    PauseCoordinator(usize, Duration),
    /// Some coordinators do not reach etcd for so long.
    CutFromEtcd(Vec<usize>, Duration),
    /// Frames between a coordinator and the others, and some servers, are lost for so long; or only
    /// those that it sends.
    CutCoordinator {
        /// Which.
        coordinator: usize,
        /// The servers.
        servers: Vec<usize>,
        /// Both ways.
        both: bool,
        /// How long.
        lasts: Duration,
    },
    /// A server's disk fails, at the operation so many away, until somebody has put in another and
    /// the process is begun anew, after so long.
    FailDisk {
        /// Which.
        server: usize,
        /// Operations that still work.
        after: u64,
        /// How it fails.
        how: sprat_disk::Fault,
        /// How long.
        lasts: Duration,
    },
    /// A server's disk holds no more than is on it, for so long.
    FillDisk(usize, Duration),
    /// A server's disk takes so long from now on.
    Latency(usize, Latency),
    /// On the disk of one server, always the same, a bit of a replica is another than was written:
    /// which of them, and which bit, by chance.
    Flip(u64),
    /// Somebody has a tablet, or half of one, moved to a server. No fault, but what has to go well
    /// while there are some.
    Move {
        /// Which of the tables, and which of its tablets; of as many as there are, the rest of a
        /// division.
        tablet: (usize, usize),
        /// Half of it: the first, or the second.
        half: Option<usize>,
        /// Where to.
        to: usize,
    },
    /// Somebody drops a table, by a number of which as many as there are leave a rest; another is
    /// made in its place.
    Drop(usize),
    /// Somebody has a server drained, or has it no longer drained.
    Drain(usize, bool),
    /// The network is like this from now on.
    Weather {
        /// Frames lost, of a million.
        loss: u64,
        /// Frames that come twice, of a million.
        twice: u64,
        /// Shortest way, nanoseconds.
        delay: u64,
        /// At most this much longer, nanoseconds.
        jitter: u64,
    },
}

/// The faults of a history by when they come, earliest first.
pub(super) fn plan(settings: &Settings, random: &mut Random) -> Vec<(Nanos, Fault)> {
    let span = u64::try_from(settings.work.span.as_nanos()).expect("seconds");
    let mut faults: Vec<_> =
        (0..settings.faults).map(|_| (Nanos(random.below(span)), draw(settings, random))).collect();
    // Never a history without a crash.
    let server = usize::try_from(random.below(settings.servers as u64)).expect("few");
    faults.push((Nanos(random.between(span / 4, span)), crash(server, random)));
    faults.sort_by_key(|&(at, _)| at);
    faults
}

fn crash(server: usize, random: &mut Random) -> Fault {
    Fault::Crash { server, down: random.micros(1_000, 1_500_000), process: random.chance(1, 2) }
}

fn few(random: &mut Random) -> usize {
    usize::try_from(random.below(64)).expect("few")
}

fn draw(settings: &Settings, random: &mut Random) -> Fault {
    let server = usize::try_from(random.below(settings.servers as u64)).expect("few");
    let several = settings.coordinators > 1;
    let coordinator = usize::try_from(random.below(settings.coordinators as u64)).expect("few");
    let kind = random.below(if several { 53 } else { 41 });
    // One coordinator has nothing to be cut from.
    let kind = if !several && kind >= 32 { kind + 12 } else { kind };
    match kind {
        0..8 => crash(server, random),
        44..47 => Fault::FailDisk {
            server,
            after: random.below(20),
            how: *random.pick(&[
                sprat_disk::Fault::Io,
                sprat_disk::Fault::NoSpace,
                sprat_disk::Fault::Hang,
            ]),
            lasts: random.micros(1_000, 2_000_000),
        },
        47 => Fault::FillDisk(server, random.micros(1_000, 3_000_000)),
        48 => Fault::Latency(
            server,
            Latency {
                base: random.between(1_000, 2_000_000),
                durable: random.between(1_000, 5_000_000),
                jitter: random.between(1, 3_000_000),
            },
        ),
        49..52 => Fault::Flip(random.draw()),
        52 => Fault::Drop(few(random)),
        8..11 => Fault::Pause(server, random.micros(1_000, 1_500_000)),
        11..15 => Fault::Cut {
            from: (0..settings.servers).filter(|_| random.chance(1, 3)).collect(),
            both: random.chance(1, 2),
            coordinator: random.chance(1, 2),
            lasts: random.micros(1_000, 1_500_000),
        },
        15 | 16 => Fault::CrashCoordinator(coordinator, random.micros(1_000, 500_000)),
        32..34 => Fault::CrashCoordinator(coordinator, random.micros(1_000, 2_000_000)),
        34..37 => Fault::PauseCoordinator(coordinator, random.micros(1_000, 5_000_000)),
        37..40 => Fault::CutFromEtcd(
            (0..settings.coordinators).filter(|_| random.chance(2, 3)).collect(),
            random.micros(1_000, 6_000_000),
        ),
        40..44 => Fault::CutCoordinator {
            coordinator,
            servers: (0..settings.servers).filter(|_| random.chance(1, 2)).collect(),
            both: random.chance(1, 2),
            lasts: random.micros(1_000, 4_000_000),
        },
        20..30 => Fault::Move {
            tablet: (few(random), few(random)),
            half: random.chance(1, 3).then(|| usize::from(random.chance(1, 2))),
            to: server,
        },
        30 | 31 => Fault::Drain(server, random.chance(1, 2)),
        _ => Fault::Weather {
            loss: random.below(20_000) * random.below(3),
            twice: random.below(20_000) * random.below(3),
            delay: random.between(2_000, 100_000),
            jitter: random.between(1, 300_000),
        },
    }
}
