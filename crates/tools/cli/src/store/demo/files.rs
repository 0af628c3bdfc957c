//! Chooses a tree of real files, imports it and reads it back.

use crate::progress::Bar;
use crate::store::demo::{grouped, seconds};
use anyhow::{Result, bail, ensure};
use sprat_client::{Client, Condition, Table, Ticket};
use sprat_transfer::{Item, ItemSource as _, LargePolicy, Progress, TreeSource, display_key};
use sprat_wire::op::{Request, Status};
use std::collections::VecDeque;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use walkdir::WalkDir;

/// Number of files that a tree must have to be chosen by default.
const ENOUGH_FILES: usize = 10_000;

/// Limits on the files and bytes that are imported, so that the demo ends within two minutes.
const MAX_FILES: u64 = 60_000;

const MAX_BYTES: u64 = 1 << 30;

/// Number of files of which one is shown to a Redis client.
const FIRST_FILES: usize = 100;

/// Limits on the operations, and on the bytes of values, in flight at once.
const WINDOW: usize = 64;

const WINDOW_BYTES: usize = 4 << 20;

/// The tree to import.
pub(super) struct Tree {
    pub(super) root: PathBuf,
    /// Bytes of the files to import.
    pub(super) bytes: u64,
    /// Remarks on why this tree was chosen.
    pub(super) notes: Vec<String>,
}

/// The result of importing or reading all files.
pub(super) struct Passed {
    pub(super) files: u64,
    bytes: u64,
    left_out: u64,
    elapsed: Duration,
}

impl fmt::Display for Passed {
    #[expect(clippy::cast_precision_loss, reason = "for people")]
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (rate, megabytes) = (self.elapsed.as_secs_f64().max(1e-9), self.bytes as f64 / 1e6);
        let files = grouped(self.files);
        let per_second =
            format!("{:.0} MB/s, {:.0} files/s", megabytes / rate, self.files as f64 / rate);
        write!(f, "{files} files, {megabytes:.1} MB in {} ({per_second})", seconds(self.elapsed))?;
        if self.left_out > 0 {
            write!(f, "; left out {}: links, or over 1 MiB", grouped(self.left_out))?;
        }
        Ok(())
    }
}

impl Tree {
    /// Returns the requested tree, or the first of the default trees that has enough files.
    pub(super) fn choose(requested: Option<&Path>) -> Result<Self> {
        if let Some(root) = requested {
            return Self::look(root).map(|(tree, _)| tree);
        }
        let home = |name: &str| std::env::var_os(name).map(PathBuf::from);
        let cargo = home("CARGO_HOME").or_else(|| home("HOME").map(|home| home.join(".cargo")));
        let registry = cargo.map(|cargo| cargo.join("registry/src"));
        let usual = registry.into_iter().chain(["/usr/share", "/usr/include"].map(PathBuf::from));
        let mut notes = Vec::new();
        for root in usual {
            match Self::look(&root) {
                Ok((mut tree, files)) if files >= ENOUGH_FILES => {
                    notes.append(&mut tree.notes);
                    return Ok(Self { notes, ..tree });
                }
                Ok((_, files)) => notes.push(format!("{}: only {files} files", root.display())),
                Err(error) => notes.push(format!("{}: {error:#}", root.display())),
            }
        }
        bail!(
            "found no tree of {ENOUGH_FILES} files: choose one with --tree ({})",
            notes.join("; ")
        )
    }

    /// Returns the longest of the first files, of those that have at most `len` bytes.
    pub(super) fn file_up_to(&self, len: usize) -> Result<Option<Item>> {
        let mut source = TreeSource::open(&self.root, LargePolicy::Skip)?;
        let mut longest: Option<Item> = None;
        for _ in 0..FIRST_FILES {
            let mut item = Item::default();
            if !source.next(&mut item)? {
                break;
            }
            let beats = longest.as_ref().map_or(0, |longest| longest.value.len());
            if (beats + 1..=len).contains(&item.value.len()) {
                longest = Some(item);
            }
        }
        Ok(longest)
    }

    /// Examines a tree. Also returns its number of files, counted up to [`ENOUGH_FILES`].
    fn look(root: &Path) -> Result<(Self, usize)> {
        let source = TreeSource::open(root, LargePolicy::Skip)?;
        let mut tree = Self {
            root: root.to_owned(),
            bytes: source.total_bytes().unwrap_or(0),
            notes: Vec::new(),
        };
        if tree.bytes > MAX_BYTES {
            tree.bytes = MAX_BYTES;
            tree.notes.push(format!("only its first {} MiB", MAX_BYTES >> 20));
        }
        let entries = WalkDir::new(root).into_iter().flatten();
        let files = entries.filter(|entry| entry.file_type().is_file()).take(ENOUGH_FILES).count();
        Ok((tree, files))
    }
}

/// Writes the files to the table, up to [`MAX_FILES`] and [`MAX_BYTES`], with many writes in flight
/// at once.
pub(super) fn import(tree: &Tree, client: &mut Client, table: Table) -> Result<Passed> {
    pass(
        tree,
        client,
        |item| Request::Write {
            table: table.0,
            key: &item.key,
            value: &item.value,
            condition: Condition::None,
            ttl: None,
        },
        false,
    )
}

/// Reads the same files from the table, with many reads in flight at once, and compares the values.
pub(super) fn verify(tree: &Tree, client: &mut Client, table: Table) -> Result<Passed> {
    pass(tree, client, |item| Request::Read { table: table.0, key: &item.key }, true)
}

/// An operation in flight and its file.
struct UnderWay {
    ticket: Ticket,
    item: Item,
}

fn pass(
    tree: &Tree,
    client: &mut Client,
    request: impl Fn(&Item) -> Request<'_>,
    compare: bool,
) -> Result<Passed> {
    let started = Instant::now();
    let mut source = TreeSource::open(&tree.root, LargePolicy::Skip)?;
    let bar = Bar::new(source.total_bytes(), false);
    let mut under_way: VecDeque<UnderWay> = VecDeque::with_capacity(WINDOW);
    let (mut bytes_under_way, mut progress) =
        (0, Progress { total_bytes: source.total_bytes(), ..Progress::default() });
    let mut spare = Vec::new();
    let finish = |client: &mut Client, UnderWay { ticket, item }: UnderWay| -> Result<Item> {
        let equal = client.wait(ticket, |answer| {
            answer.status == Status::Ok && (!compare || answer.body == item.value)
        })?;
        ensure!(equal, "{} differs from the imported file", display_key(&item.key));
        Ok(item)
    };
    loop {
        let mut item = spare.pop().unwrap_or_default();
        let enough = progress.items >= MAX_FILES || progress.consumed_bytes >= MAX_BYTES;
        if enough || !source.next(&mut item)? {
            break;
        }
        while under_way.len() >= WINDOW
            || (bytes_under_way > 0 && bytes_under_way + item.value.len() > WINDOW_BYTES)
        {
            let Some(oldest) = under_way.pop_front() else { break };
            bytes_under_way -= oldest.item.value.len();
            spare.push(finish(client, oldest)?);
        }
        let ticket = client.submit(&request(&item))?;
        bytes_under_way += item.value.len();
        progress.items += 1;
        progress.bytes += item.value.len() as u64;
        progress.consumed_bytes = source.consumed_bytes();
        bar.show(&progress);
        under_way.push_back(UnderWay { ticket, item });
    }
    for rest in under_way {
        finish(client, rest)?;
    }
    bar.done();
    Ok(Passed {
        files: progress.items,
        bytes: progress.bytes,
        left_out: source.omitted().count(),
        elapsed: started.elapsed(),
    })
}
