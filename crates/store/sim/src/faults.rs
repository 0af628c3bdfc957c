//! The faults of a history, and when they happen.

use crate::random::Random;
use crate::settings::Settings;
use sprat_chance::mix;
use sprat_disk::Latency;
use sprat_net::{Delivery, Flight, Nanos};
use std::cell::RefCell;
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::rc::Rc;
use std::time::Duration;

/// Something that goes wrong.
#[derive(Clone, Debug)]
pub enum Fault {
    /// The server's power fails, or only its process ends.
    Crash {
        /// How long the server stays down.
        down: Duration,
        /// Whether only the process ends; then the kernel still writes what it has.
        process: bool,
        /// Whether the server crashes only while its disk has operations in flight, so that there
        /// may be a write to tear.
        at_work: bool,
    },
    /// The server is shut down properly, and started again later.
    Stop,
    /// At the server's next start, one operation of its disk fails.
    FailStart {
        /// Number of operations that still work before the one that fails.
        after: u64,
        /// How the disk's operation fails.
        how: sprat_disk::Fault,
    },
    /// One operation of the disk fails.
    FailDisk {
        /// Number of operations that still work before the one that fails.
        after: u64,
        /// How the disk's operation fails.
        how: sprat_disk::Fault,
    },
    /// If the server is up, its disk gets no more room than its present contents take, until the
    /// next crash or the end of the work.
    FillDisk,
    /// The disk has this latency from now on.
    Latency(Latency),
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
    /// A client is cut off, or all clients are.
    Cut {
        /// The client's index; `None` for all clients.
        client: Option<usize>,
        /// How long the client is cut off.
        lasts: Duration,
    },
    /// The server does not run for this time.
    PauseServer(Duration),
    /// A client does not run for this time.
    PauseClient(usize, Duration),
    /// A client ends, and another begins at its address.
    RestartClient(usize),
    /// A table, by its index, is dropped, and another is created.
    Recreate(usize),
}

/// Plans the faults of a history, earliest first.
pub fn plan(settings: &Settings, random: &mut Random) -> Vec<(Nanos, Fault)> {
    let span = u64::try_from(settings.span.as_nanos()).expect("seconds");
    let mut faults: Vec<(Nanos, Fault)> = (0..settings.faults)
        .flat_map(|_| {
            let at = Nanos(random.below(span));
            let fault = draw(settings, random);
            // A start that fails needs a crash before it.
            let crash = matches!(fault, Fault::FailStart { .. })
                .then(|| (at + Duration::from_nanos(1), crash(settings, random)));
            std::iter::once((at, fault)).chain(crash)
        })
        .collect();
    // Every history has at least one crash.
    faults.push((Nanos(random.between(span / 4, span)), crash(settings, random)));
    faults.sort_by_key(|&(at, _)| at);
    faults
}

fn crash(settings: &Settings, random: &mut Random) -> Fault {
    // Buffered writes survive the end of the process, but not a power failure.
    let process = settings.spares_power() || random.chance(1, 4);
    Fault::Crash { down: random.micros(100, 100_000), process, at_work: random.chance(2, 3) }
}

fn draw(settings: &Settings, random: &mut Random) -> Fault {
    let client = usize::try_from(random.below(settings.clients as u64)).expect("few");
    let disk_fault =
        *random.pick(&[sprat_disk::Fault::Io, sprat_disk::Fault::NoSpace, sprat_disk::Fault::Hang]);
    match random.below(24) {
        0..5 => crash(settings, random),
        5..7 => Fault::Stop,
        7..9 => Fault::FailStart { after: random.below(12), how: disk_fault },
        9 => Fault::FailDisk { after: random.below(20), how: disk_fault },
        10 => Fault::FillDisk,
        11 => Fault::Latency(Latency {
            base: random.between(1_000, 2_000_000),
            durable: random.between(1_000, 5_000_000),
            jitter: random.between(1, 3_000_000),
        }),
        12..16 => weather(settings, random),
        16..18 => {
            let client = random.chance(3, 4).then_some(client);
            Fault::Cut { client, lasts: random.micros(1_000, 400_000) }
        }
        18 | 19 => Fault::PauseServer(random.micros(100, 50_000)),
        20 => Fault::PauseClient(client, random.micros(100, 200_000)),
        21 => Fault::RestartClient(client),
        _ => Fault::Recreate(usize::try_from(random.below(settings.tables as u64)).expect("few")),
    }
}

fn weather(settings: &Settings, random: &mut Random) -> Fault {
    let delay = random.between(5_000, 200_000);
    if settings.network.reliable {
        return Fault::Weather { loss: 0, twice: 0, delay: 50_000, jitter: 0 };
    }
    let often = |random: &mut Random| match random.below(4) {
        0 => 0,
        1 | 2 => random.below(20_000),
        _ => random.below(200_000),
    };
    Fault::Weather {
        loss: often(random),
        twice: often(random),
        delay,
        jitter: random.between(1, 500_000),
    }
}

/// The network's behaviour, shared with the hub's policy.
#[derive(Debug)]
pub struct NetworkConditions {
    random: Random,
    loss: u64,
    twice: u64,
    delay: u64,
    jitter: u64,
    /// Addresses of clients that are cut off.
    pub cut: BTreeSet<SocketAddr>,
    /// Pairs of addresses; every frame from the first to the second is lost.
    pub cut_links: BTreeSet<(SocketAddr, SocketAddr)>,
    /// Number of lost frames, including those lost to cuts.
    pub lost: u64,
    /// Number of frames sent.
    pub frames: u64,
    /// A hash of the times and lengths of all frames sent.
    pub digest: u64,
}

impl NetworkConditions {
    /// Creates a network without faults.
    pub fn new(random: &mut Random, reliable: bool) -> Self {
        let mut weather = Self {
            random: random.fork(),
            loss: 0,
            twice: 0,
            delay: 0,
            jitter: 0,
            cut: BTreeSet::new(),
            cut_links: BTreeSet::new(),
            lost: 0,
            frames: 0,
            digest: 0,
        };
        weather.clear(reliable);
        weather
    }

    /// Ends all faults of the network except those of [`cut_links`](Self::cut_links).
    pub fn clear(&mut self, reliable: bool) {
        (self.loss, self.twice, self.delay) = (0, 0, 20_000);
        self.jitter = if reliable { 0 } else { 50_000 };
        self.cut.clear();
    }

    /// Sets loss, duplication and delays, as [`Fault::Weather`] gives them.
    pub fn set(&mut self, loss: u64, twice: u64, delay: u64, jitter: u64) {
        (self.loss, self.twice, self.delay, self.jitter) = (loss, twice, delay, jitter);
    }

    fn delay(&mut self) -> Duration {
        let more = if self.jitter > 0 { self.random.below(self.jitter) } else { 0 };
        // Occasionally a frame takes a detour.
        let detour = if self.jitter > 0 && self.random.chance(1, 500) {
            self.random.below(30_000_000)
        } else {
            0
        };
        Duration::from_nanos(self.delay + more + detour)
    }

    /// Decides what happens to a frame.
    fn decide(&mut self, flight: &Flight<'_>) -> Delivery {
        self.frames += 1;
        self.digest = mix(self.digest ^ flight.now.0 ^ (flight.frame.len() as u64).rotate_left(40));
        let cut = self.cut.contains(&flight.from)
            || self.cut.contains(&flight.to)
            || self.cut_links.contains(&(flight.from, flight.to));
        if cut || self.random.chance(self.loss, 1_000_000) {
            self.lost += 1;
            return Delivery::Drop;
        }
        let first = self.delay();
        if self.random.chance(self.twice, 1_000_000) {
            Delivery::Twice(first, self.delay())
        } else {
            Delivery::Deliver(first)
        }
    }
}

/// Returns the hub's policy, which applies these conditions.
pub fn policy(
    weather: &Rc<RefCell<NetworkConditions>>,
) -> impl FnMut(Flight<'_>) -> Delivery + use<> {
    let weather = Rc::clone(weather);
    move |flight| weather.borrow_mut().decide(&flight)
}
