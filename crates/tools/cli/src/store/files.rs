//! `store`: checks, salvages and repairs the files of a server that does not run.

use crate::exit::{CORRUPT, INCOMPLETE};
use crate::output::{print_json, print_line};
use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand};
use serde_json::{Value, json};
use sprat_store::coordinator::{Catalog, MetadataFile, MetadataMemory};
use sprat_store::data_dir::{DataDir, Identity};
use sprat_store::salvage::{Objects, Salvage, SalvageFaults, SalvageTotals, survey};
use sprat_transfer::{Item, ItemSink as _, JsonlExport, JsonlSink, OutFile};
use sprat_wire::frame::{FRAME_BYTES, FileHeader, REPLICA_FILE};
use sprat_wire::value::ValueType;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Verify every file of a stopped server, and locate damage by file and offset.
    Verify(StoreVerifyArgs),
    /// Export every intact object of a stopped server, even from damaged files.
    Export(StoreExportArgs),
    /// Rebuild a coordinator's metadata from the copies that servers keep.
    Rebuild(StoreRebuildArgs),
}

impl StoreCommand {
    /// Runs the command and returns the process's exit code.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        match self {
            Self::Verify(args) => verify(args),
            Self::Export(args) => export(args),
            Self::Rebuild(args) => rebuild(args),
        }
    }
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat store verify /srv/sprat
  sprat store verify /srv/sprat --json

Changes nothing.

Exit codes:
  10  a file is damaged")]
pub(crate) struct StoreVerifyArgs {
    /// Data directory of a stopped server or coordinator.
    dir: PathBuf,
    /// Print JSON: the findings.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat store export /srv/sprat /tmp/saved
  sprat import users /tmp/saved/users.jsonl     load a table into a running store

Each table becomes a file of JSON lines with keys and values, TABLE.jsonl, or table-ID.jsonl if
the name is lost or cannot be a file name. The export includes the replicas that the server
stores for others (-r). Changes nothing in DIR.

Exit codes:
  6   done, but hashes and other collections of Redis clients were left out
  10  a file is damaged; every intact object was exported")]
pub(crate) struct StoreExportArgs {
    /// Data directory of a stopped server.
    dir: PathBuf,
    /// Directory to create for the tables; it must not exist.
    target: PathBuf,
    /// Print JSON: the findings and the exported tables.
    #[arg(long)]
    json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat store rebuild /srv/coordinator --from a/catalog.sprat --from b/catalog.sprat
  sprat store rebuild /srv/sprat --from /srv/sprat/catalog.sprat     a server with a coordinator

Each server keeps a copy, catalog.sprat, in its data directory. Pass the copies of all servers
that you can reach; the newest is used. Stop the coordinator first, and move damaged metadata
away. Changes to tables in the last tenths of a second may be missing.")]
pub(crate) struct StoreRebuildArgs {
    /// Data directory of the coordinator; created if it does not exist.
    dir: PathBuf,
    /// Copy of the metadata from a server. Repeat for each server.
    #[arg(long, value_name = "FILE", required = true)]
    from: Vec<PathBuf>,
    /// Print JSON: the file, its version, tables and servers.
    #[arg(long)]
    json: bool,
}

/// Limit on the tables that are written at once, since each needs an open file.
const TABLES_AT_ONCE: usize = 256;

/// The result of checking one file.
struct Finding {
    file: PathBuf,
    /// A description of the file's content, or of the fault of the whole file.
    what: String,
    is_whole: bool,
}

/// The result of checking directories: a finding for each file, and the faults in the logs.
#[derive(Default)]
struct Findings {
    files: Vec<Finding>,
    faults: SalvageFaults,
}

impl Findings {
    fn note(&mut self, file: &Path, outcome: Result<String, String>) {
        let is_whole = outcome.is_ok();
        let what = outcome.unwrap_or_else(|what| what);
        self.files.push(Finding { file: file.to_owned(), what, is_whole });
    }

    fn note_log(&mut self, file: &Path, salvage: &mut Salvage, totals: SalvageTotals) {
        let faults = std::mem::take(&mut salvage.faults);
        let SalvageTotals { segments, entries, bytes } = totals;
        let text = format!("{entries} entries in {segments} segments ({bytes} bytes)");
        self.note(
            file,
            if faults.count == 0 {
                Ok(text)
            } else {
                Err(format!("{text}, {} faults", faults.count))
            },
        );
        self.faults.count += faults.count;
        self.faults.kept.extend(faults.kept);
    }

    fn is_whole(&self) -> bool {
        self.files.iter().all(|finding| finding.is_whole) && self.faults.count == 0
    }

    fn print(&self, json: bool, more: Value) -> Result<ExitCode> {
        if json {
            let file = |finding: &Finding| {
                json!({
                    "file": finding.file, "whole": finding.is_whole, "what": finding.what,
                })
            };
            let fault = |fault: &sprat_store::salvage::SalvageFault| {
                json!({
                    "file": fault.file, "offset": fault.offset, "what": fault.what,
                })
            };
            let files: Vec<_> = self.files.iter().map(file).collect();
            let faults: Vec<_> = self.faults.kept.iter().map(fault).collect();
            let mut all = json!({ "whole": self.is_whole(), "files": files, "faults": faults });
            all["faults_total"] = self.faults.count.into();
            if let (Some(all), Value::Object(more)) = (all.as_object_mut(), more) {
                all.extend(more);
            }
            print_json(&all)?;
        } else {
            for Finding { file, what, is_whole } in &self.files {
                print_line(&format!(
                    "{}: {}{what}",
                    file.display(),
                    if *is_whole { "intact: " } else { "DAMAGED: " }
                ))?;
            }
            for fault in &self.faults.kept {
                print_line(&fault.to_string())?;
            }
            let unnamed = self.faults.count - self.faults.kept.len() as u64;
            if unnamed > 0 {
                print_line(&format!("and {unnamed} more faults"))?;
            }
        }
        Ok(if self.is_whole() { ExitCode::SUCCESS } else { ExitCode::from(CORRUPT) })
    }
}

pub(crate) fn verify(args: &StoreVerifyArgs) -> Result<ExitCode> {
    let mut findings = Findings::default();
    for path in directories(&args.dir)? {
        let (dir, catalog) = look(&path, &mut findings)?;
        for file in [dir.log(), dir.replicas()] {
            if let Some(mut salvage) = open(&file, &dir, catalog.as_ref(), &mut findings) {
                match salvage.read(true, |_| {}) {
                    Ok(totals) => findings.note_log(&file, &mut salvage, totals),
                    Err(error) => findings.note(&file, Err(error.to_string())),
                }
            }
        }
    }
    findings.print(args.json, json!({}))
}

pub(crate) fn export(args: &StoreExportArgs) -> Result<ExitCode> {
    let mut findings = Findings::default();
    fs::create_dir(&args.target)
        .with_context(|| format!("cannot create directory {}", args.target.display()))?;
    let (mut objects, mut names, mut logs) = (Objects::default(), BTreeMap::new(), Vec::new());
    for path in directories(&args.dir)? {
        let (dir, catalog) = look(&path, &mut findings)?;
        for file in [dir.log(), dir.replicas()] {
            if let Some(mut salvage) = open(&file, &dir, catalog.as_ref(), &mut findings) {
                let totals = salvage.read(true, |entry| objects.add(entry))?;
                findings.note_log(&file, &mut salvage, totals);
                logs.push(salvage);
            }
        }
        names.extend(catalog.iter().flat_map(Catalog::tables).map(|table| (table.id, table.name)));
    }
    let counts = objects.counts();
    let is_dropped = |id: &u32| !names.is_empty() && !names.contains_key(id);
    let (mut written, mut collections) = (Vec::new(), BTreeMap::<u32, u64>::new());
    let tables: Vec<(u32, u64)> = counts.into_iter().filter(|(id, _)| !is_dropped(id)).collect();
    for portion in tables.chunks(TABLES_AT_ONCE) {
        let mut sinks = BTreeMap::new();
        for (id, count) in portion {
            let file = args.target.join(file_name(*id, names.get(id)));
            let out = OutFile::create(&file)?;
            sinks.insert(*id, JsonlSink::new(out, &file.display().to_string(), JsonlExport::Pairs));
            written.push((*id, *count, file));
        }
        let mut failed = None;
        for salvage in &mut logs {
            salvage.read(false, |entry| {
                if let Some(sink) = sinks.get_mut(&entry.table)
                    && objects.take(entry)
                {
                    if entry.value_type == ValueType::Collection {
                        *collections.entry(entry.table).or_default() += 1;
                        return;
                    }
                    let item = Item { key: entry.key.to_vec(), value: entry.value.to_vec() };
                    failed = failed.take().or(sink.put(&item).err());
                }
            })?;
        }
        if let Some(error) = failed {
            return Err(error.into());
        }
        for sink in sinks.into_values() {
            sink.finish()?.0.publish()?;
        }
    }
    for (id, count, _) in &mut written {
        *count -= collections.get(id).copied().unwrap_or_default();
    }
    let left_out = collections.values().sum();
    if left_out > 0 {
        eprintln!("sprat: {}", super::export::without_collections(left_out));
    }
    let table = |(id, count, file): &(u32, u64, PathBuf)| {
        json!({
            "id": id, "name": names.get(id), "objects": count, "file": file,
        })
    };
    let code = findings
        .print(args.json, json!({ "tables": written.iter().map(table).collect::<Vec<_>>() }))?;
    if !args.json {
        for (id, count, file) in &written {
            let name =
                names.get(id).map_or_else(|| "name unknown".to_owned(), |name| format!("{name:?}"));
            print_line(&format!("table {id} ({name}): {count} objects, {}", file.display()))?;
        }
    }
    Ok(if left_out > 0 && code == ExitCode::SUCCESS { INCOMPLETE.into() } else { code })
}

pub(crate) fn rebuild(args: &StoreRebuildArgs) -> Result<ExitCode> {
    let mut newest: Option<(Catalog<MetadataMemory>, &PathBuf)> = None;
    for path in &args.from {
        let bytes = fs::read(path).with_context(|| format!("cannot read {}", path.display()))?;
        let copy = Catalog::<MetadataMemory>::from_copy(&bytes).map_err(anyhow::Error::msg);
        let copy =
            copy.with_context(|| format!("{}: not a copy of the metadata", path.display()))?;
        if let Some((other, at)) =
            newest.as_ref().filter(|(other, _)| other.cluster() != copy.cluster())
        {
            let (one, two) = (other.cluster(), copy.cluster());
            bail!(
                "{} is of cluster {one:016x} and {} of cluster {two:016x}: pass copies of one \
                 cluster",
                at.display(),
                path.display()
            );
        }
        if newest.as_ref().is_none_or(|(other, _)| other.version() < copy.version()) {
            newest = Some((copy, path));
        }
    }
    let (copy, from) = newest.expect("clap requires at least one");
    let mut dir = DataDir::open_unchecked(&args.dir, random()?)?;
    let path = dir.coordinator();
    if path.exists() {
        bail!("{} exists: move these metadata away first (nothing was changed)", path.display());
    }
    let known = dir.identity();
    if ![0, copy.cluster()].contains(&known.coordinator)
        || ![0, copy.cluster()].contains(&known.cluster)
    {
        bail!(
            "{}: the data directory and the copies are of different clusters (nothing was changed)",
            args.dir.display()
        );
    }
    let version = copy.version();
    let catalog = copy.rebuild(MetadataFile::open(&path)?).map_err(anyhow::Error::msg)?;
    dir.set_identity(Identity { coordinator: catalog.cluster(), ..known })?;
    let tables: Vec<String> = catalog.tables().map(|table| table.name).collect();
    let servers = catalog.servers().count();
    if args.json {
        print_json(&json!({
            "file": path, "from": from, "version": catalog.version(), "tables": tables,
            "servers": servers,
        }))?;
    } else {
        let count = tables.len();
        print_line(&format!(
            "rebuilt {}: {count} tables and {servers} servers, from version {version} in {}",
            path.display(),
            from.display()
        ))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn random() -> Result<u64> {
    let mut bytes = [0; 8];
    let file = fs::File::open("/dev/urandom").context("cannot open /dev/urandom")?;
    std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes, 0)
        .context("cannot read /dev/urandom")?;
    Ok(u64::from_le_bytes(bytes))
}

/// Returns the data directories of a server's nodes: the given directory, and those inside it.
fn directories(dir: &Path) -> Result<Vec<PathBuf>> {
    if !dir.join("identity.toml").exists() {
        bail!("{} is not a data directory: identity.toml is missing", dir.display());
    }
    let within =
        (2..).map(|number| dir.join(format!("node-{number}"))).take_while(|path| path.exists());
    Ok([dir.to_owned()].into_iter().chain(within).collect())
}

/// Checks the files of a directory other than its logs. Returns the catalog that names the tables:
/// either the coordinator's metadata or the server's copy of the metadata, whichever is newer.
fn look(
    path: &Path,
    findings: &mut Findings,
) -> Result<(DataDir, Option<Catalog<MetadataMemory>>)> {
    let dir = DataDir::open_unchecked(path, 0)?;
    let identity = dir.identity();
    let text = format!(
        "cluster {:016x}, server {}, format {}",
        identity.cluster, identity.server, identity.format
    );
    findings.note(&path.join("identity.toml"), Ok(text));
    if let Err(error) = dir.check_files() {
        findings.note(path, Err(error.to_string()));
    }
    let describe = |tables: usize, version: u64| format!("{tables} tables, version {version}");
    let mut catalog = None;
    match dir.catalog() {
        Ok(Some(copy)) => {
            findings.note(
                &path.join("catalog.sprat"),
                Ok(describe(copy.table_count(), copy.version())),
            );
            catalog = Some(copy);
        }
        Ok(None) => {}
        Err(error) => findings.note(&path.join("catalog.sprat"), Err(error.to_string())),
    }
    if dir.coordinator().exists() {
        // Open a copy, since redb may write to a file even to read it.
        let scratch =
            tempfile::tempdir().context("cannot create a directory for a copy of the metadata")?;
        let copy = scratch.path().join("coordinator.redb");
        let opened = fs::copy(dir.coordinator(), &copy)
            .map_err(|error| error.to_string())
            .and_then(|_| MetadataFile::open(&copy).map_err(|error| error.to_string()))
            .and_then(|metadata| Catalog::open_standalone(metadata, 1, 1));
        match opened {
            Ok(metadata) => {
                let older = catalog.as_ref().filter(|copy| copy.version() > metadata.version());
                let text = describe(metadata.table_count(), metadata.version());
                findings.note(
                    &dir.coordinator(),
                    match older {
                        Some(copy) => Err(format!(
                            "{text}: older than catalog.sprat, version {}",
                            copy.version()
                        )),
                        None => Ok(text),
                    },
                );
                if older.is_none() {
                    catalog =
                        Catalog::<MetadataMemory>::from_copy(&metadata.copy()).ok().or(catalog);
                }
            }
            Err(error) => findings.note(&dir.coordinator(), Err(error)),
        }
    }
    Ok((dir, catalog))
}

/// Surveys a log or a file of replicas. Returns `None` if it is missing, empty or unreadable.
fn open(
    file: &Path,
    dir: &DataDir,
    catalog: Option<&Catalog<MetadataMemory>>,
    findings: &mut Findings,
) -> Option<Salvage> {
    let len = fs::metadata(file).ok()?.len();
    if len == 0 {
        return None; // `DataDir::check_files` reports an empty file
    }
    let Identity { cluster, server, .. } = dir.identity();
    let mut id = [0; 16];
    id[..8].copy_from_slice(&cluster.to_le_bytes());
    let server = if file == dir.replicas() { REPLICA_FILE } else { server.into() };
    let whose = FileHeader {
        cluster: id,
        server,
        frame_bytes: u32::try_from(FRAME_BYTES).expect("9 MB"),
        segment_bytes: u32::try_from(sprat_wire::SEGMENT_BYTES).expect("8 MB"),
        incarnation: 1,
        clean: None,
        frames: 0,
    };
    let next_table = catalog.map_or(UNKNOWN_TABLES, Catalog::next_table);
    match survey(file, whose, next_table) {
        Ok(salvage) => Some(salvage),
        Err(error) => {
            findings.note(file, Err(error.to_string()));
            None
        }
    }
}

/// Limit on the tables' ids if there is no catalog: far more than the tables of a cluster.
const UNKNOWN_TABLES: u32 = 1 << 20;

/// Returns the file name for a table: the table's name if it is a plain file name and does not
/// begin with `table-`, otherwise its id.
fn file_name(id: u32, name: Option<&String>) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    match name.filter(|name| !name.starts_with('.') && name.len() <= 200 && name.bytes().all(plain))
    {
        Some(name) if !name.starts_with("table-") => format!("{name}.jsonl"),
        _ => format!("table-{id}.jsonl"),
    }
}
