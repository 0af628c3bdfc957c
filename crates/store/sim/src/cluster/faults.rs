//! The faults of a cluster's history, and when they happen.

use super::settings::Settings;
use crate::random::Random;
use sprat_disk::Latency;
use sprat_net::Nanos;
use std::time::Duration;

/// Something that goes wrong.
#[derive(Clone, Debug)]
pub enum Fault {
    /// A server's process ends, or its power fails; it starts again later.
    Crash {
        /// The server's index.
        server: usize,
        /// How long the server stays down.
        down: Duration,
        /// Whether only the process ends; then the kernel still writes what it has.
        process: bool,
    },
    /// A server does not run for this time, as under SIGSTOP, and does not know that time has
    /// passed.
    Pause(usize, Duration),
    /// Frames from some servers to all others are lost.
    Cut {
        /// The servers' indexes.
        from: Vec<usize>,
        /// Whether frames from all other servers to these are lost too.
        both: bool,
        /// Whether the coordinators count among the others, so that frames to them are lost too.
        coordinator: bool,
        /// How long the frames are lost.
        lasts: Duration,
    },
    /// A coordinator's process ends, and starts again after this time.
    CrashCoordinator(usize, Duration),
    /// A coordinator does not run for this time.
    PauseCoordinator(usize, Duration),
    /// Some coordinators cannot reach etcd for this time.
    CutFromEtcd(Vec<usize>, Duration),
    /// Frames from a coordinator to other coordinators and to some servers are lost.
    CutCoordinator {
        /// The coordinator's index.
        coordinator: usize,
        /// The servers' indexes.
        servers: Vec<usize>,
        /// Whether frames to the coordinator are lost too.
        both: bool,
        /// How long the frames are lost.
        lasts: Duration,
    },
    /// One operation of a server's disk fails. Later the fault is removed, if it has not happened
    /// yet, and the process is restarted.
    FailDisk {
        /// The server's index.
        server: usize,
        /// Number of operations that still work before the one that fails.
        after: u64,
        /// How the disk's operation fails.
        how: sprat_disk::Fault,
        /// The time after which the fault is removed and the process is restarted.
        lasts: Duration,
    },
    /// A server's disk gets no more room than its present contents take, for this time. Then the
    /// process is restarted.
    FillDisk(usize, Duration),
    /// A server's disk has this latency from now on.
    Latency(usize, Latency),
    /// A random bit flips in a random complete replica of which another server has a complete copy.
    /// The server whose disk flips it is the same each time.
    Flip(u64),
    /// An administrator moves a tablet, or half of one, to a server. This is no fault, but must
    /// succeed in spite of faults.
    Move {
        /// The indexes of the table and of its tablet, modulo their numbers.
        tablet: (usize, usize),
        /// Whether to move only a half of the tablet: 0 is the first half, 1 the second.
        half: Option<usize>,
        /// The server's index.
        to: usize,
    },
    /// An administrator drops a table, given by its index modulo their number. Another is created
    /// in its place.
    Drop(usize),
    /// An administrator makes an index of a table, given by its index modulo their number, or, if
    /// the table has one, drops it if the flag is set.
    Index(usize, bool),
    /// An administrator makes some backups. If there is a time, the client that makes them dies
    /// after that time.
    Backup(Option<Duration>),
    /// An administrator drains a server of its tablets, or, if the flag is false, undoes that.
    Drain(usize, bool),
    /// The network behaves like this from now on.
    Weather {
        /// Frames lost, per million.
        loss: u64,
        /// Frames duplicated, per million.
        twice: u64,
        /// The shortest delay, in nanoseconds.
        delay: u64,
        /// Bound of the additional random delay, in nanoseconds: the delay is less than `jitter`.
        /// If `jitter` is not 0, one frame in 500 takes up to 30 ms more.
        jitter: u64,
    },
}

/// Plans the faults of a history, earliest first.
pub(super) fn plan(settings: &Settings, random: &mut Random) -> Vec<(Nanos, Fault)> {
    let span = u64::try_from(settings.work.span.as_nanos()).expect("seconds");
    let mut faults: Vec<_> =
        (0..settings.faults).map(|_| (Nanos(random.below(span)), draw(settings, random))).collect();
    // Every history has at least one crash.
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
    let kind = random.below(if several { 60 } else { 48 });
    // A single coordinator cannot be cut from others.
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
        53..57 => Fault::Index(few(random), random.chance(1, 4)),
        57..60 => Fault::Backup(random.chance(1, 4).then(|| random.micros(1_000, 300_000))),
        8..11 => Fault::Pause(server, random.micros(1_000, 1_500_000)),
        11..15 => Fault::Cut {
            from: (0..settings.servers).filter(|_| random.chance(1, 3)).collect(),
            both: random.chance(1, 2),
            coordinator: random.chance(1, 2),
            lasts: random.micros(1_000, 1_500_000),
        },
        15 | 16 => Fault::CrashCoordinator(coordinator, random.micros(1_000, 4_000_000)),
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
