//! Opens a log: on an empty disk, or with what an earlier process left there.

use crate::backup::{self, Backup, OpenError, Options, ReplayReport};
use crate::coordinator::REMEDY;
use sprat_disk::Disk;
use sprat_log::{Config, ConfigError, Log, Restore, RestoreError};
use sprat_wire::expiry::Time;
use sprat_wire::frame::{BLOCK_BYTES, FILE_HEADERS, FileHeader};
use std::collections::BTreeMap;
use std::fs::File;
use std::io::Read as _;
use std::ops::ControlFlow;
use std::path::Path;
use thiserror::Error;

/// Why a log cannot be opened. Nothing on the disk was changed, except after [`OpenError::Failed`],
/// when a new log's configuration is invalid, or when there is no memory for another head. In these
/// cases the file's headers, and the seal of the newest head, may have been written.
#[derive(Debug, Error)]
pub enum RestartError {
    /// The log's configuration is invalid.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The log's file cannot be opened: it is damaged, for example, or another server's.
    #[error(transparent)]
    Disk(#[from] OpenError),
    /// The log does not fit into the memory.
    #[error("{0}; start the server with more --memory (nothing was changed)")]
    Full(RestoreError),
    /// The log is inconsistent, or there is no memory left for another head.
    #[error("cannot replay the log: {0} (nothing was changed)")]
    Replay(RestoreError),
    /// The log has objects of tables that cannot have been dropped.
    #[error(
        "{log} has objects that no table claims: {tables}. The coordinator's metadata do not fit \
         this log: {REMEDY} \
         (nothing was changed)"
    )]
    Unclaimed {
        /// The log's file.
        log: String,
        /// Which tables, and how many objects of each.
        tables: String,
    },
}

/// The tables whose objects may be in a log, as the coordinator knows them.
#[derive(Clone, Debug, Default)]
pub struct LogTables {
    /// Ids of the tables that this server serves: their objects count.
    pub served: Vec<u32>,
    /// No table was ever given this id or a higher one; `None` if that is not known.
    pub next: Option<u32>,
    /// The tables that other servers serve, with their names.
    pub elsewhere: BTreeMap<u32, String>,
}

impl LogTables {
    /// Returns these tables as served. Nothing is known of other tables: their objects count as
    /// dropped.
    #[must_use]
    pub fn served(ids: &[u32]) -> Self {
        Self { served: ids.to_vec(), ..Self::default() }
    }

    /// Describes the objects that are left out although their tables were not dropped; empty if
    /// there are none.
    fn unclaimed(&self, left_out: &BTreeMap<u32, u64>) -> String {
        let describe = |(&id, count): (&u32, &u64)| match self.elsewhere.get(&id) {
            Some(name) => Some(format!(
                "{count} of table {id}, which is {name:?} and given to another server"
            )),
            None if self.next.is_some_and(|next| id >= next) => {
                Some(format!("{count} of table {id}, which was never created"))
            }
            None => None,
        };
        left_out.iter().filter_map(describe).collect::<Vec<_>>().join("; ")
    }
}

/// An open log, with the backup that makes it durable.
pub struct OpenedLog<D: Disk> {
    /// The log.
    pub log: Log,
    /// The backup on the log's disk.
    pub backup: Backup<D>,
    /// The results of the replay; empty for a new log.
    pub report: ReplayReport,
}

/// Opens the log on `disk`. Leaves out the objects of tables that are not served, which were
/// dropped; the report counts these objects. If such a table cannot have been dropped, the log is
/// not opened. Leaves out objects that have expired at `now`.
///
/// [`Options::threads`] threads read, check and hash the segments, while the calling thread
/// restores their entries.
///
/// # Errors
/// [`RestartError`] when the configuration is invalid, the disk cannot be read or is damaged, the
/// log does not fit into memory or is inconsistent, or it has objects of tables that cannot have
/// been dropped.
pub fn open<D: Disk>(
    disk: D,
    config: &Config,
    options: &Options,
    tables: &LogTables,
    now: Time,
) -> Result<OpenedLog<D>, RestartError> {
    let mut restore: Option<Restore> = None;
    let mut failure: Option<RestartError> = None;
    let seed = config.seed;
    let name = disk.name();
    let (mut segments, mut listed) = (0, 0);
    let hash = |table: u32, key: &[u8]| sprat_wire::tablet::hash(seed, table, key);
    let opened = Backup::open(disk, options, hash, |segment| {
        let begun = match &mut restore {
            Some(begun) => begun,
            // The first segment is the newest head, and its digest lists the other segments.
            None => {
                match Restore::new(config.clone(), &segment.header.digest, Some(&tables.served)) {
                    Ok(mut begun) => {
                        begun.set_time(now);
                        listed = segment.header.digest.len();
                        restore.insert(begun)
                    }
                    Err(error) => {
                        failure = Some(error.into());
                        return ControlFlow::Break(());
                    }
                }
            }
        };
        let entries =
            segment.entries.iter().map(|&(at, hash)| (hash, &segment.bytes[at as usize..]));
        match begun.segment(segment.id, segment.header.safe_version, entries) {
            Ok(()) => {
                segments += 1;
                let unclaimed = tables.unclaimed(begun.left_out());
                // The count of objects left out is complete only after the last segment; nothing
                // has been changed on disk by then.
                if segments < listed || unclaimed.is_empty() {
                    return ControlFlow::Continue(());
                }
                failure = Some(RestartError::Unclaimed { log: name.clone(), tables: unclaimed });
                ControlFlow::Break(())
            }
            Err(error) => {
                failure = Some(match error {
                    RestoreError::Full(_) => RestartError::Full(error),
                    _ => RestartError::Replay(error),
                });
                ControlFlow::Break(())
            }
        }
    });
    match (opened, failure) {
        (_, Some(failure)) => Err(failure),
        (Err(error), None) => Err(error.into()),
        (Ok((backup, mut report)), None) => {
            let log = match restore {
                Some(restore) => {
                    report.left_out = restore.left_out().clone();
                    restore.finish(report.highest_segment).map_err(RestartError::Replay)?
                }
                None => Log::new(config.clone())?,
            };
            Ok(OpenedLog { log, backup, report })
        }
    }
}

/// Returns the segment size of the log at `path`, in bytes; `None` when there is no log yet, or
/// when no copy of its header can be read, which opening the log will report. A log keeps the
/// segment size with which it was created, whatever memory it has later.
#[must_use]
pub fn segment_bytes_of(path: &Path) -> Option<usize> {
    let mut file = File::open(path).ok()?;
    let mut block = [0; BLOCK_BYTES];
    let mut copy =
        || file.read_exact(&mut block).ok().and_then(|()| FileHeader::parse(&block).ok());
    let header = (0..FILE_HEADERS).find_map(|_| copy())?;
    usize::try_from(header.segment_bytes).ok()
}

/// Makes the configurations of a log and its backup agree. Both get the same segment size. The log
/// may have as many segments on disk as the disk has room for, but at most as many as the memory
/// can use and a digest can list.
///
/// # Errors
/// A message, when the disk space is too small for the memory.
pub fn configure(
    mut config: Config,
    disk_bytes: u64,
    identity: (u64, u32),
    durability: backup::Durability,
) -> Result<(Config, Options), String> {
    let mut cluster = [0; 16];
    cluster[..8].copy_from_slice(&identity.0.to_le_bytes());
    let mut options = Options::new(cluster, u64::from(identity.1), 0);
    options.durability = durability;
    options.segment_bytes = u32::try_from(config.segment_bytes).expect("at most 8 MB");
    let full = u64::from(options.frame_bytes) * u64::from(options.segment_bytes);
    let frame = full / sprat_wire::SEGMENT_BYTES as u64;
    options.frame_bytes = u32::try_from(frame.next_multiple_of(4096)).expect("at most 9 MB");
    let frames = disk_bytes / u64::from(options.frame_bytes);
    // Some frames are freed but cannot be written again yet, and some are being prepared.
    let slack = backup::SPARE_FRAMES as u64 + 4;
    let segments = frames.saturating_sub(slack);
    let least = config.least_segments_on_disk() as u64;
    if segments < least {
        let needed = (least + slack) * u64::from(options.frame_bytes);
        let (needed, given) = (needed.div_ceil(1 << 20), disk_bytes >> 20);
        return Err(format!(
            "{given} MB of disk are too few for this memory: give --disk {needed}M, or less \
             --memory"
        ));
    }
    // A head's digest lists every segment, and may take half of the head.
    let digest = (config.segment_bytes as u64 / 2 - 64) / 8;
    // If there is more disk space than the memory can use, the rest of the disk space stays unused.
    let most = digest.min(config.most_segments_on_disk() as u64);
    config.max_segments_on_disk = usize::try_from(segments.min(most)).expect("64-bit");
    options.max_frames = u32::try_from(frames).unwrap_or(u32::MAX);
    Ok((config, options))
}
