//! `backup` and `restore`: backups of a running store, and tables from them.

mod bucket;

use self::bucket::BucketStorage;
use crate::connect::{Connect, connect};
use crate::exit::CORRUPT;
use crate::output::{print_json, print_line};
use anyhow::Result;
use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use sprat_archive::{
    CreateOptions, Created, Folder, Keep, Point, Pruned, Restored, TableChoice, Verified, create,
    restore as restore_tables, utc,
};
use sprat_objects::Location;
use sprat_units::figure::file_size;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat backup create /srv/backups
  sprat backup list /srv/backups
  sprat backup verify /srv/backups
  sprat backup prune /srv/backups --keep 7
  sprat restore /srv/backups users=users_of_yesterday

A backup holds all tables of the cluster at one moment: everything that was acknowledged before it,
and of each transaction all or nothing. The servers go on meanwhile. A backup copies only what
earlier ones in the folder do not have.

Exit codes:
  5   no answer in time, or no server at the address
  8   the identity does not permit it
  10  a file of the backups is damaged")]
pub(crate) struct BackupArgs {
    #[command(subcommand)]
    command: BackupCommand,
    /// Print JSON.
    #[arg(long, global = true)]
    json: bool,
}

#[derive(Debug, Subcommand)]
enum BackupCommand {
    /// Back up all tables of a running cluster.
    #[command(after_help = "Examples:
  sprat backup create /srv/backups
  sprat backup create /srv/backups --rate 20MB/s
  sprat backup create s3://bucket/sprat            with AWS_ACCESS_KEY_ID and so on
  sprat backup create /srv/backups -C tcp:host=10.0.0.1,port=11100 --identity admin.key

Only an administrator may do this. One backup is made at a time.")]
    Create {
        #[command(flatten)]
        connect: Connect,
        /// Folder of backups, or s3://BUCKET/FOLDER; created if it does not exist.
        folder: String,
        /// Rate at which each server is read at most.
        #[arg(long, value_name = "RATE", default_value = "100MB/s", value_parser = rate)]
        rate: u64,
        /// Hide the progress.
        #[arg(short, long)]
        quiet: bool,
    },
    /// List the backups in a folder.
    List {
        /// Folder of backups, or s3://BUCKET/FOLDER.
        folder: String,
    },
    /// Read every file of the backups in a folder, and compare it with its hash.
    Verify {
        /// Folder of backups, or s3://BUCKET/FOLDER.
        folder: String,
        /// Name of a backup [default: all].
        #[arg(long, value_name = "NAME")]
        point: Option<String>,
        /// Hide the progress.
        #[arg(short, long)]
        quiet: bool,
    },
    /// Remove old backups, and what only they need.
    #[command(after_help = "Examples:
  sprat backup prune /srv/backups --keep 7
  sprat backup prune /srv/backups --younger 30d --dry-run

The newest backup is never removed.")]
    Prune {
        /// Folder of backups, or s3://BUCKET/FOLDER.
        folder: String,
        #[command(flatten)]
        keep: KeepArgs,
        /// Only print what would be removed.
        #[arg(long)]
        dry_run: bool,
    },
}

#[derive(Args, Debug)]
#[group(required = true)]
struct KeepArgs {
    /// Keep this number of the newest backups.
    #[arg(long, value_name = "COUNT")]
    keep: Option<usize>,
    /// Keep backups that are not older than this, such as 30d.
    #[arg(long, value_name = "TIME", value_parser = sprat_units::duration)]
    younger: Option<Duration>,
}

impl KeepArgs {
    fn keep(&self) -> Keep {
        match (self.keep, self.younger) {
            (Some(count), _) => Keep::Newest(count),
            (None, age) => Keep::Younger(age.expect("clap requires one")),
        }
    }
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat restore /srv/backups                          all tables, into an empty store
  sprat restore /srv/backups users                    one table
  sprat restore /srv/backups users=users_of_monday --point 20261129T035521Z

Objects keep their versions, types and times of expiry; those that have expired since are left
out. Indexes are made again. Everything that is read is compared with its hash.

Exit codes:
  3   the backup has no such table, or the folder no such backup
  4   a table of that name exists
  5   no answer in time, or no server at the address
  8   the identity does not permit it
  10  a file of the backup is damaged; nothing was restored")]
pub(crate) struct RestoreArgs {
    #[command(flatten)]
    connect: Connect,
    /// Folder of backups, or s3://BUCKET/FOLDER.
    folder: String,
    /// Tables to restore, each with its new name if it gets one [default: all].
    #[arg(value_name = "TABLE[=NEW]", value_parser = choice)]
    tables: Vec<TableChoice>,
    /// Name of the backup, as `sprat backup list` prints it [default: the newest].
    #[arg(long, value_name = "NAME")]
    point: Option<String>,
    /// Hide the progress.
    #[arg(short, long)]
    quiet: bool,
    /// Print JSON: the tables and the totals.
    #[arg(long)]
    json: bool,
}

/// Parses a rate at which a server is read, in bytes a second.
fn rate(text: &str) -> Result<u64, String> {
    match sprat_units::rate(text) {
        Ok(bits) if bits >= 8 * LEAST_RATE => Ok(bits / 8),
        Ok(_) => Err("want 1MB/s or more".to_owned()),
        Err(error) => Err(error.to_string()),
    }
}

/// The lowest rate, in bytes a second. A segment of a cut must be read before its server gives it
/// up.
const LEAST_RATE: u64 = 1_000_000;

fn choice(text: &str) -> Result<TableChoice, String> {
    let (from, to) = text.split_once('=').unwrap_or((text, text));
    match from.is_empty() || to.is_empty() {
        true => Err("want TABLE or TABLE=NEW".to_owned()),
        false => Ok(TableChoice { from: from.to_owned(), to: to.to_owned() }),
    }
}

pub(crate) fn backup(args: &BackupArgs) -> Result<ExitCode> {
    let json = args.json;
    match &args.command {
        BackupCommand::Create { connect, folder, rate, quiet } => {
            let options = connect.options()?;
            let mut folder = lock(folder, true)?;
            let begun = Instant::now();
            let bar = bar(*quiet || json);
            let how = CreateOptions { rate: *rate };
            let created = create(&options, &mut folder, how, &mut |copied| {
                bar.set_position(copied);
            });
            bar.finish_and_clear();
            print_created(&created?, begun.elapsed(), json)?;
        }
        BackupCommand::List { folder } => {
            let points = open(folder)?.points()?;
            match json {
                true => print_json(&points.iter().map(json_of).collect())?,
                false => points.iter().try_for_each(|point| print_line(&line_of(point)))?,
            }
        }
        BackupCommand::Verify { folder, point, quiet } => {
            let folder = open(folder)?;
            let bar = bar(*quiet || json);
            let verified = folder.verify(point.as_deref(), &mut |bytes| bar.set_position(bytes));
            bar.finish_and_clear();
            return print_verified(&verified?, json);
        }
        BackupCommand::Prune { folder, keep, dry_run } => {
            let folder = lock(folder, false)?;
            let pruned = folder.prune(keep.keep(), SystemTime::now(), *dry_run)?;
            print_pruned(&pruned, *dry_run, json)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn restore(args: &RestoreArgs) -> Result<ExitCode> {
    let folder = open(&args.folder)?;
    let point = folder.point(args.point.as_deref())?;
    let mut client = connect(&args.connect)?;
    let begun = Instant::now();
    let bar = bar(args.quiet || args.json);
    let restored = restore_tables(&mut client, &folder, &point, &args.tables, &mut |restored| {
        bar.set_position(restored.bytes);
    });
    bar.finish_and_clear();
    let restored = restored?;
    let objects = restored.objects();
    let Restored { tables, bytes, expired } = restored;
    let seconds = begun.elapsed().as_secs_f64();
    if args.json {
        print_json(&json!({
            "point": point.name, "tables": tables, "objects": objects, "bytes": bytes,
            "expired": expired, "seconds": seconds,
        }))?;
        return Ok(ExitCode::SUCCESS);
    }
    for (table, count) in &tables {
        print_line(&format!("table {table:?}: {count} objects"))?;
    }
    if expired > 0 {
        print_line(&format!("left out {expired} objects that have expired since"))?;
    }
    let made = utc(point.made());
    print_line(&format!(
        "restored {} as of {made} in {seconds:.1} s",
        super::import::summary(objects, bytes, seconds)
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Opens a folder of backups, or one in a bucket, to read it.
fn open(folder: &str) -> Result<Folder> {
    Ok(match Location::is_location(folder) {
        true => Folder::open_in(Box::new(BucketStorage::open(folder)?))?,
        false => Folder::open(Path::new(folder))?,
    })
}

/// Opens a folder of backups, or one in a bucket, to change it.
fn lock(folder: &str, create: bool) -> Result<Folder> {
    if !Location::is_location(folder) {
        return Ok(Folder::lock(Path::new(folder), create)?);
    }
    let storage = BucketStorage::open(folder)?;
    storage.unlock_on_signals()?;
    Ok(Folder::lock_in(Box::new(storage), create)?)
}

/// A counter of bytes. It appears on terminals only.
fn bar(quiet: bool) -> ProgressBar {
    match quiet {
        true => ProgressBar::hidden(),
        false => ProgressBar::new_spinner().with_style(
            ProgressStyle::with_template("{spinner} {bytes}  {bytes_per_sec}")
                .expect("a constant template"),
        ),
    }
}

fn json_of(point: &Point) -> Value {
    json!({
        "name": point.name, "made": utc(point.made()), "cluster": point.cluster,
        "sprat": point.sprat, "servers": point.servers.len(),
        "segments": point.segments().count(), "bytes": point.bytes(),
        "copied_bytes": point.copied_bytes,
    })
}

fn line_of(point: &Point) -> String {
    let Point { name, servers, copied_bytes, .. } = point;
    let servers = count(servers.len() as u64, "server");
    format!(
        "{name}  {:>10}, {:>10} new, {servers}",
        file_size(point.bytes()),
        file_size(*copied_bytes)
    )
}

fn print_created(created: &Created, took: Duration, json: bool) -> Result<()> {
    let Created { point, held } = created;
    let seconds = took.as_secs_f64();
    if json {
        let mut line = json_of(point);
        line["seconds"] = seconds.into();
        line["held_ms"] = (held.as_secs_f64() * 1e3).into();
        return print_json(&line);
    }
    print_line(&format!("backup {} in {seconds:.1} s", line_of(point)))
}

fn print_verified(verified: &Verified, json: bool) -> Result<ExitCode> {
    let Verified { points, segments, bytes, faults } = verified;
    if json {
        let faults: Vec<_> =
            faults.iter().map(|fault| json!({ "file": fault.file, "what": fault.what })).collect();
        print_json(&json!({
            "points": points, "segments": segments, "bytes": bytes, "faults": faults,
        }))?;
    } else {
        faults.iter().try_for_each(|fault| print_line(&fault.to_string()))?;
        let backups = count(points.len() as u64, "backup");
        let (files, found) = (count(*segments, "segment"), count(faults.len() as u64, "fault"));
        print_line(&format!("{backups}: {files}, {}, {found}", file_size(*bytes)))?;
    }
    Ok(if faults.is_empty() { ExitCode::SUCCESS } else { CORRUPT.into() })
}

fn print_pruned(pruned: &Pruned, dry: bool, json: bool) -> Result<()> {
    let Pruned { points, segments, bytes } = pruned;
    if json {
        return print_json(&json!({
            "points": points, "segments": segments, "bytes": bytes, "dry_run": dry,
        }));
    }
    let did = if dry { "would remove" } else { "removed" };
    points.iter().try_for_each(|point| print_line(&format!("{did} backup {point}")))?;
    let (backups, files) = (count(points.len() as u64, "backup"), count(*segments, "segment"));
    print_line(&format!("{did} {backups}, {files}, {}", file_size(*bytes)))
}

fn count(number: u64, what: &str) -> String {
    if number == 1 { format!("1 {what}") } else { format!("{number} {what}s") }
}
