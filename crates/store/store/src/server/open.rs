//! Opens the log, the replicas and the master of a node when a server starts.

use super::{Guard, RedisPassword, ServerError};
use crate::agent::Enlisted;
use crate::backup::{self, ReplayReport};
use crate::data_dir::Identity;
use crate::master::{Inbox, Master};
use crate::member::ClusterNode;
use crate::replicas::{self, Replicas};
use crate::replication::Replicator;
use crate::restart::{self, LogTables, OpenedLog};
use sprat_disk::{Access, FileDisk, OpenError};
use sprat_log::{Config, Log};
use sprat_net::{EventCounter, Mode, PerfEvent};
use sprat_wire::expiry::{MAX_TIME, Time};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long the kernel may take to finish the writes of a server that was killed.
const RELEASE_PATIENCE: Duration = Duration::from_secs(30);

/// Segments counted for a recovered server's new log, in addition to the full ones: heads, and
/// survivors of the cleaner.
const NEW_HEADS: usize = 16;

/// The smallest number of frames for which a file of replicas must have disk space. With less disk
/// space the node does not start.
const LEAST_FRAMES: u32 = 16;

/// The failure that an acknowledged write survives. If the log has replicas, this holds on each
/// server that keeps one.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Durability {
    /// The write is on disk.
    #[default]
    Sync,
    /// The kernel has the write: it survives the end of the process, but the last second may be
    /// lost in a power failure.
    Buffered,
    /// The write is only in memory.
    None,
}

/// How to run a server: the arguments of [`Server::start`](super::Server::start).
///
/// One process may have several nodes, one for each locator in [`listen`](Self::listen); they share
/// [`memory`](Self::memory) and [`disk`](Self::disk) in equal parts. If [`copies`](Self::copies) is
/// not zero, a node's log is kept on other servers, and the node's disk has replicas of their logs.
/// Otherwise the node's log is on its own disk. Start from [`alone`](Self::alone) and change what
/// differs:
///
/// ```no_run
/// use sprat_store::server::{Server, ServerOptions};
///
/// let options = ServerOptions { memory: 1 << 30, ..ServerOptions::alone("data".as_ref()) };
/// let server = Server::start(&options)?;
/// server.wait()?;
/// # Ok::<(), sprat_store::server::ServerError>(())
/// ```
#[derive(Clone, Debug)]
pub struct ServerOptions {
    /// Locator of the coordinator, or locators of several.
    pub coordinator: String,
    /// Whether this process includes the coordinator.
    pub embedded: bool,
    /// Where clients reach the objects: a locator for each node, 1 to
    /// [`MAX_NODES`](super::MAX_NODES).
    pub listen: Vec<String>,
    /// Memory for the logs of all nodes, in bytes.
    pub memory: u64,
    /// Disk space for all nodes, in bytes.
    pub disk: u64,
    /// Data directory.
    pub data: PathBuf,
    /// The failure that an acknowledged write survives.
    pub durability: Durability,
    /// Number of replicas of the log on other servers. In exchange, the server keeps replicas of
    /// their logs. Zero: the log is only on the server's own disk.
    pub copies: u8,
    /// The server's rack; empty if it is not known. Replicas of the server's log are put in other
    /// racks where possible.
    pub rack: String,
    /// The data threads' behaviour when idle.
    pub idle: Mode,
    /// Cores that the data threads are pinned to: one for each node. Empty: no thread is pinned.
    pub cores: Vec<usize>,
    /// Where Redis clients reach the objects; `None` if they do not. The server must be a complete
    /// store with one node.
    pub redis: Option<SocketAddr>,
    /// With what Redis clients must authenticate; `None` if they need not.
    pub redis_password: Option<RedisPassword>,
    /// Where metrics are served; `None` if they are not.
    pub metrics: Option<SocketAddr>,
    /// Whether requests are timed on their way through the server.
    pub timed: bool,
    /// The event that is counted for each request, instead of its time.
    pub counted: Option<PerfEvent>,
    /// Which peers the server accepts, and its own identity.
    pub guard: Guard,
    /// How often the coordinator has declared this process dead, after which it started again.
    pub deaths: u64,
}

/// The contents of a log at the start.
#[derive(Clone, Debug, Default)]
pub struct Restored {
    /// The report of the replay.
    pub report: ReplayReport,
    /// Live objects.
    pub objects: u64,
    /// Time that opening took, from the first byte read until the log can be appended to.
    pub elapsed: Duration,
    /// How the disk is accessed; empty without a disk.
    pub access: String,
}

impl ServerOptions {
    /// Returns the options of a small server that is a cluster by itself: 64 MiB of memory and 256
    /// MiB of disk, every write durable, on loopback ports that the kernel chooses.
    #[must_use]
    pub fn alone(data: &Path) -> Self {
        Self {
            coordinator: "tcp:host=127.0.0.1,port=0".into(),
            embedded: true,
            listen: vec!["fast+udp:host=127.0.0.1,port=0".into()],
            memory: 64 << 20,
            disk: 256 << 20,
            data: data.to_owned(),
            durability: Durability::Sync,
            copies: 0,
            rack: String::new(),
            idle: Mode::Adaptive,
            cores: Vec::new(),
            redis: None,
            redis_password: None,
            metrics: None,
            timed: false,
            counted: None,
            guard: Guard::default(),
            deaths: 0,
        }
    }

    /// Returns the number of bytes of disk that a server takes by default. The server has `nodes`
    /// nodes, which share `memory` bytes, and each node's log has `copies` replicas on other
    /// servers.
    ///
    /// Without replicas it is two and a half times the memory and 256 MiB more, so that the cleaner
    /// has segments to choose from.
    ///
    /// With replicas each node keeps those of `copies` logs on average. For each of these logs it
    /// needs room for the log's greatest length, and in addition for the contents of the log's
    /// memory, because a cluster that lost power as a whole writes new logs while the old ones are
    /// still there. Two and a half times the memory were too little: such a cluster was never
    /// recovered, and a cluster with little memory refused writes.
    #[must_use]
    pub fn default_disk_bytes(memory: u64, nodes: u64, copies: u8) -> u64 {
        if copies == 0 {
            return (memory / 2).saturating_mul(5).saturating_add(256 << 20);
        }
        let each = usize::try_from(memory / nodes).unwrap_or(usize::MAX / 4);
        let config = Config::new(each, sprat_log::Durability::Tracked);
        let new = each / config.segment_bytes + NEW_HEADS;
        let frames = u64::from(copies) * (config.max_segments_on_disk + new) as u64;
        frames
            .saturating_mul(replicas::Options::new([0; 16], 0, 0).frame_bytes.into())
            .saturating_mul(nodes)
    }

    /// Returns each node's part of the memory and the disk.
    fn divided(&self) -> (u64, u64) {
        let nodes = self.listen.len() as u64;
        (self.memory / nodes, self.disk / nodes)
    }

    /// Adds to `reason` that the sizes in it are those of one node, if there are several nodes.
    fn per_node(&self, reason: String) -> String {
        match self.listen.len() {
            1 => reason,
            nodes => {
                format!(
                    "{reason} (for each of {nodes} nodes, which share what the server is given)"
                )
            }
        }
    }
}

/// Opens a node's log and replays it. `tables` are the tables that the coordinator has assigned;
/// the node's clock began at `begun`.
pub(super) fn open(
    options: &ServerOptions,
    dir: Option<(PathBuf, Identity)>,
    tables: &LogTables,
    inbox: Inbox,
    begun: Instant,
) -> Result<(Master<FileDisk>, Restored), ServerError> {
    let failed = |error: &dyn std::fmt::Display| ServerError::Log(error.to_string());
    let (memory, disk) = options.divided();
    let memory = usize::try_from(memory).expect("64-bit");
    let Some((path, identity)) = dir else {
        let config = Config {
            seed: super::random(),
            ..Config::new(memory, sprat_log::Durability::Volatile)
        };
        let log = Log::new(config).map_err(|error| failed(&error))?;
        return Ok((finish(options, Master::new(log, None, inbox), begun)?, Restored::default()));
    };
    let (access, durability) = match options.durability {
        Durability::Sync => (Access::Direct, backup::Durability::Sync),
        Durability::Buffered | Durability::None => (Access::Cached, backup::Durability::Buffered),
    };
    let config =
        configured(&path, memory).map_err(|reason| ServerError::Log(options.per_node(reason)))?;
    let config = Config { seed: identity.seed, ..config };
    let (config, setup) =
        restart::configure(config, disk, (identity.cluster, identity.server), durability)
            .map_err(|reason| ServerError::Log(options.per_node(reason)))?;
    let disk = open_disk(&path, access).map_err(|error| failed(&error))?;
    let access = disk.describe().to_owned();
    let started = Instant::now();
    let OpenedLog { log, backup, report } =
        restart::open(disk, &config, &setup, tables, time_at(begun))
            .map_err(|error| failed(&error))?;
    let restored =
        Restored { report, objects: log.stats().objects, elapsed: started.elapsed(), access };
    Ok((finish(options, Master::new(log, Some(backup), inbox), begun)?, restored))
}

/// Returns the configuration of a log with `memory` bytes of memory: a new one, or one with the
/// segments of the log at `path`.
fn configured(path: &Path, memory: usize) -> Result<Config, String> {
    let durability = sprat_log::Durability::Tracked;
    let Some(segment_bytes) = restart::segment_bytes_of(path) else {
        return Ok(Config::new(memory, durability));
    };
    let fits = Config::memory_for(segment_bytes);
    if fits.contains(&memory) {
        return Ok(Config::with_segments(memory, segment_bytes, durability));
    }
    Err(format!(
        "{} was created with another --memory, and can have {} to {} MiB, not {}: to go beyond, \
         start a server with a new --data and that --memory beside it, and copy each table by \
         `sprat export` and `sprat import`",
        path.display(),
        fits.start() >> 20,
        fits.end() >> 20,
        memory >> 20,
    ))
}

/// A cluster's node whose replicas are in a file.
pub(super) type FileNode = ClusterNode<FileDisk, Replicas<FileDisk>>;

/// Opens a node of a cluster, whose log is replicated on other servers. The node's own log begins
/// empty. The replicas that the node keeps for other servers are opened from the file at `path`.
pub(super) fn open_cluster_node(
    options: &ServerOptions,
    path: &Path,
    enlisted: Enlisted,
    inbox: Inbox,
    begun: Instant,
) -> Result<FileNode, ServerError> {
    let failed = |error: &dyn std::fmt::Display| ServerError::Log(error.to_string());
    let (memory, disk) = options.divided();
    let Enlisted { server, cluster } = enlisted;
    // All servers hash keys with the same seed, so that a scan can continue after another server
    // has taken the table over.
    let memory = usize::try_from(memory).expect("64-bit");
    let config = Config { seed: cluster, ..Config::new(memory, sprat_log::Durability::Tracked) };
    let copies = usize::from(options.copies);
    let replicator = Replicator::new(server, copies, config.segment_bytes, super::random());
    let log = Log::new(config).map_err(|error| failed(&error))?;
    let (access, durability) = match options.durability {
        Durability::Sync => (Access::Direct, backup::Durability::Sync),
        Durability::Buffered | Durability::None => (Access::Cached, backup::Durability::Buffered),
    };
    let mut cluster_id = [0; 16];
    cluster_id[..8].copy_from_slice(&cluster.to_le_bytes());
    // The file belongs to the data directory, whatever id its server has now.
    let mut setup = replicas::Options::new(cluster_id, 0, 0);
    setup.durability = durability;
    setup.max_frames = u32::try_from(disk / u64::from(setup.frame_bytes)).unwrap_or(u32::MAX);
    if setup.max_frames < LEAST_FRAMES {
        let needed = u64::from(LEAST_FRAMES) * u64::from(setup.frame_bytes);
        let reason = format!(
            "{} MiB of disk are too few to keep replicas: give --disk {}M",
            disk >> 20,
            needed >> 20
        );
        return Err(ServerError::Log(options.per_node(reason)));
    }
    let disk = open_disk(path, access).map_err(|error| failed(&error))?;
    let (replicas, report) = Replicas::open(disk, &setup).map_err(|error| failed(&error))?;
    if report.header_repaired {
        tracing::warn!(
            "{}: one of the two copies of its header was damaged; it is written again",
            path.display()
        );
    }
    tracing::info!(
        "keeps {} replicas of other servers' logs, {} MiB",
        report.replicas,
        report.bytes >> 20
    );
    let master =
        Master::replicated(log, replicator, inbox).clocked(begun).after_deaths(options.deaths);
    Ok(ClusterNode::new(finish(options, master, begun)?, replicas.clocked(begun)))
}

/// Returns the system's time at `begun`. A clock before 1970 is as good as one at 1970, because
/// time records in the log count as well.
fn time_at(begun: Instant) -> Time {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = now.saturating_sub(begun.elapsed()).as_millis();
    Time::try_from(time).unwrap_or(MAX_TIME).min(MAX_TIME)
}

fn finish(
    options: &ServerOptions,
    master: Master<FileDisk>,
    begun: Instant,
) -> Result<Master<FileDisk>, ServerError> {
    let master = master.with_time(time_at(begun));
    Ok(match options.counted {
        Some(event) => master.counted(
            EventCounter::start(event).map_err(ServerError::system("count what requests do"))?,
        ),
        None if options.timed => master.timed(),
        None => master,
    })
}

/// Opens the file of a log or of replicas. This process has locked the data directory, so another
/// process can hold the lock on the file only if a server was killed: the kernel keeps that lock
/// until the writes under way have ended. Reading the file earlier would miss these writes.
fn open_disk(path: &Path, access: Access) -> Result<FileDisk, OpenError> {
    let mut logged = false;
    let passes = |error: &OpenError| {
        let passes = matches!(error, OpenError::Locked(_));
        if passes && !logged {
            tracing::info!("waiting until the kernel has finished the previous server's writes");
            logged = true;
        }
        passes
    };
    sprat_host::retry(RELEASE_PATIENCE, Duration::from_millis(5), passes, || {
        FileDisk::open(path, access)
    })
}
