//! `key`: makes a cluster's root and the identities that it issues, and shows them.

use crate::connect::HEADING;
use crate::output::{print_json, print_line};
use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use sprat_key::{Certificate, FileError, Grant, Identity, Rights, Role, Root, Terms};
use sprat_store::server::Guard;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Default file of a cluster's root.
const DEFAULT_ROOT: &str = "sprat.root";

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Create the root key of a new cluster.
    Init(KeyInitArgs),
    /// Issue an identity to a server, a client or an administrator.
    Issue(KeyIssueArgs),
    /// Describe a root or identity file, without its secrets.
    Show(KeyShowArgs),
}

impl KeyCommand {
    /// Runs the command and returns the process's exit code.
    pub(crate) fn run(&self) -> Result<ExitCode> {
        match self {
            Self::Init(args) => init(args),
            Self::Issue(args) => issue(args),
            Self::Show(args) => show(args),
        }
    }
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat key init
  sprat key init --root /media/stick/cluster.root

The root key signs the identities of a cluster's members. Anyone who has the file can issue
identities with every right, so keep it off the servers: no running process needs it.")]
pub(crate) struct KeyInitArgs {
    /// File to write; it must not exist.
    #[arg(long, value_name = "FILE", default_value = DEFAULT_ROOT)]
    root: PathBuf,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat key issue --role server
  sprat key issue --role admin --days 30
  sprat key issue --role client --table 'log-*:r' --table users:rw --name reporting

Pass the file to the process with --identity or SPRAT_IDENTITY. An identity cannot be revoked:
it is valid until it expires.")]
pub(crate) struct KeyIssueArgs {
    /// Role of the holder in the cluster.
    #[arg(long, value_enum)]
    role: RoleArg,
    /// Let a client use the tables of this name or pattern (with *): r to read, rw to read and
    /// write, such as users:rw or 'log-*:r'. Repeatable.
    #[arg(long, value_name = "NAME:r|rw", value_parser = parse_grant)]
    table: Vec<Grant>,
    /// Days until the identity expires.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 365,
        value_parser = clap::value_parser!(u32).range(1..=36_500)
    )]
    days: u32,
    /// Name of the holder, for people [default: the role].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// Root key of the cluster, as `sprat key init` wrote it.
    #[arg(long, value_name = "FILE", default_value = DEFAULT_ROOT)]
    root: PathBuf,
    /// File to write; it must not exist [default: NAME.id].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat key show server.id
  sprat key show reporting.id --json")]
pub(crate) struct KeyShowArgs {
    /// Root or identity file.
    file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RoleArg {
    /// Create and drop tables, read and write all tables, and read counters.
    Admin,
    /// Run a server or coordinator.
    Server,
    /// Read and write the tables of --table.
    Client,
}

impl From<RoleArg> for Role {
    fn from(role: RoleArg) -> Self {
        match role {
            RoleArg::Admin => Self::Admin,
            RoleArg::Server => Self::Server,
            RoleArg::Client => Self::Client,
        }
    }
}

/// The identity of a client.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct IdentityArgs {
    /// Identity of this client, from `sprat key issue`. The client then encrypts, and accepts only
    /// servers of the same cluster.
    #[arg(
        long,
        value_name = "FILE",
        env = "SPRAT_IDENTITY",
        help_heading = HEADING,
        global = true
    )]
    identity: Option<PathBuf>,
}

impl IdentityArgs {
    /// Loads the identity from its file, if the flags name one.
    ///
    /// # Errors
    /// [`FileError`] when the file cannot be read or contains no valid identity.
    pub(crate) fn load(&self) -> Result<Option<Arc<Identity>>, FileError> {
        load(self.identity.as_deref())
    }
}

fn load(file: Option<&Path>) -> Result<Option<Arc<Identity>>, FileError> {
    let identity = file.map(Identity::load).transpose()?;
    Ok(identity.map(Arc::new))
}

/// The flags of servers and coordinators that decide which clients they accept.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct GuardArgs {
    /// Identity of this process, from `sprat key issue --role server`. The process then encrypts,
    /// and accepts only peers and clients with an identity of the same cluster.
    #[arg(long, value_name = "FILE", env = "SPRAT_IDENTITY", help_heading = "Access")]
    identity: Option<PathBuf>,

    /// Accept every client and peer without an identity, and let it read and write everything.
    /// Without this flag, only loopback addresses are served without --identity.
    #[arg(long, conflicts_with = "identity", help_heading = "Access")]
    insecure: bool,
}

impl GuardArgs {
    /// Loads a server's identity, and returns it with the `--insecure` flag.
    ///
    /// # Errors
    /// [`FileError`] when the file cannot be read or contains no valid identity.
    pub(crate) fn guard(&self) -> Result<Guard, FileError> {
        Ok(Guard { identity: load(self.identity.as_deref())?, insecure: self.insecure })
    }
}

fn parse_grant(text: &str) -> Result<Grant, String> {
    let parsed = text.rsplit_once(':').and_then(|(pattern, rights)| {
        let rights = match rights {
            "r" => Rights::Read,
            "rw" => Rights::Write,
            _ => return None,
        };
        (!pattern.is_empty()).then(|| Grant { pattern: pattern.to_owned(), rights })
    });
    parsed.ok_or_else(|| "want NAME:r or NAME:rw, such as users:rw or log-*:r".to_owned())
}

/// Seconds by which an identity's validity begins before it is issued. The identity is then valid
/// on machines whose clocks are up to an hour late.
const CLOCK_TOLERANCE: u64 = 3600;

const DAY: u64 = 24 * 3600;

/// Bytes of a public key that are shown: enough for people to recognise the key.
const SHOWN_BYTES: usize = 8;

pub(crate) fn init(args: &KeyInitArgs) -> Result<ExitCode> {
    let root = Root::generate()?;
    root.save(&args.root).context("cannot write the root key")?;
    let path = args.root.display();
    print_line(&format!(
        "wrote {path}, the root key of cluster {}; keep it off the servers",
        brief(&root.public())
    ))?;
    print_line("next: sprat key issue --role server")?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn issue(args: &KeyIssueArgs) -> Result<ExitCode> {
    let role = Role::from(args.role);
    if role == Role::Client && args.table.is_empty() {
        bail!(
            "a client identity needs tables: add --table NAME:r or --table NAME:rw, or --table \
             '*:rw' for all tables"
        );
    }
    if role != Role::Client && !args.table.is_empty() {
        bail!("omit --table: the role {role} has access to all tables");
    }
    let root = Root::load(&args.root)
        .context("cannot read the root key (create one: `sprat key init`)")?;
    let name = args.name.clone().unwrap_or_else(|| role.to_string());
    let output = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("{}.id", name.replace('/', "-"))));
    let now = unix();
    let valid = (now.saturating_sub(CLOCK_TOLERANCE), now + u64::from(args.days) * DAY);
    let identity = root.issue(&Terms { role, name, grants: args.table.clone(), valid })?;
    identity.save(&output).context("cannot write the identity")?;
    print_line(&format!("wrote {}: {}", output.display(), describe(&identity)))?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn show(args: &KeyShowArgs) -> Result<ExitCode> {
    match Identity::load(&args.file) {
        Ok(identity) if args.json => print_json(&json(&identity))?,
        Ok(identity) => print_line(&describe(&identity))?,
        Err(error @ FileError::Damaged { .. }) => {
            let Ok(root) = Root::load(&args.file) else { return Err(error.into()) };
            let cluster = brief(&root.public());
            match args.json {
                true => print_json(&serde_json::json!({"kind": "root", "cluster": cluster}))?,
                false => print_line(&format!("root key of cluster {cluster}"))?,
            }
        }
        Err(error) => return Err(error.into()),
    }
    Ok(ExitCode::SUCCESS)
}

fn describe(identity: &Identity) -> String {
    let Certificate { role, name, from, until, grants, .. } = identity.certificate();
    let mut text = format!("{role} `{name}` of cluster {}", brief(identity.root()));
    for Grant { pattern, rights } in grants {
        let may = match rights {
            Rights::Read => "reads",
            Rights::Write => "reads and writes",
        };
        write!(text, ", {may} {pattern}").expect("into a string");
    }
    write!(text, "; valid from {} until {}", date(*from), date(*until)).expect("into a string");
    match identity.check(unix()) {
        Ok(()) => text,
        Err(why) => format!("{text}; NOT VALID: {why}"),
    }
}

fn json(identity: &Identity) -> serde_json::Value {
    let Certificate { role, name, from, until, grants, .. } = identity.certificate();
    let may = |rights: &Rights| if *rights == Rights::Read { "r" } else { "rw" };
    let tables: Vec<_> =
        grants.iter().map(|grant| format!("{}:{}", grant.pattern, may(&grant.rights))).collect();
    serde_json::json!({
        "kind": "identity",
        "cluster": brief(identity.root()),
        "role": role.to_string(),
        "name": name,
        "tables": tables,
        "from": from,
        "until": until,
        "valid": identity.check(unix()).is_ok(),
    })
}

/// Renders the beginning of a key in hexadecimal.
fn brief(key: &[u8]) -> String {
    key[..SHOWN_BYTES].iter().map(|byte| format!("{byte:02x}")).collect()
}

fn date(unix: u64) -> String {
    match UNIX_EPOCH.checked_add(Duration::from_secs(unix)).filter(|_| unix < 1 << 37) {
        Some(time) => httpdate::fmt_http_date(time),
        None => format!("second {unix}"),
    }
}

/// Returns the seconds since 1970.
fn unix() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}
