//! `key`: makes a cluster's root and the identities that it issues, and shows them.

use crate::output::{print_json, print_line};
use anyhow::{Context as _, Result, bail};
use clap::{Args, Subcommand, ValueEnum};
use sprat_key::{Certificate, FileError, Grant, Identity, Rights, Role, Root, Terms};
use sprat_store::server::Guard;
use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// Default file of a cluster's root.
const DEFAULT_ROOT: &str = "sprat.root";

#[derive(Debug, Subcommand)]
pub(crate) enum KeyCommand {
    /// Make the root of a new cluster: by it, identities are issued.
    Init(KeyInitArgs),
    /// Issue an identity: to a server, to a client, to whoever administers.
    Issue(KeyIssueArgs),
    /// Tell what a file holds, and nothing that is secret.
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

Whoever has this file can be anybody in the cluster. No server needs it.")]
pub(crate) struct KeyInitArgs {
    /// File to write; there must be none.
    #[arg(long, value_name = "FILE", default_value = DEFAULT_ROOT)]
    root: PathBuf,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat key issue --role server
  sprat key issue --role admin --days 30
  sprat key issue --role client --table 'log-*:r' --table users:rw --name reporting

Give the file to the process with --identity or SPRAT_IDENTITY. It cannot be taken back before its days are over.")]
pub(crate) struct KeyIssueArgs {
    /// What its holder is to the cluster.
    #[arg(long, value_enum)]
    role: RoleArg,
    /// A table that a client may use, or a pattern with *, and r to read or rw to write too.
    #[arg(long, value_name = "NAME:r|rw", value_parser = parse_grant)]
    table: Vec<Grant>,
    /// Days until it expires.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 365,
        value_parser = clap::value_parser!(u32).range(1..=36_500)
    )]
    days: u32,
    /// What people call it [default: its role].
    #[arg(long, value_name = "NAME")]
    name: Option<String>,
    /// The cluster's root.
    #[arg(long, value_name = "FILE", default_value = DEFAULT_ROOT)]
    root: PathBuf,
    /// File to write; there must be none [default: the name, and .id].
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct KeyShowArgs {
    /// A root or an identity.
    file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
pub(crate) enum RoleArg {
    /// Makes and drops tables, reads and writes all of them.
    Admin,
    /// A server or coordinator.
    Server,
    /// Reads and writes what --table says.
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

/// Who a process is to a cluster.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct IdentityArgs {
    /// Identity by which others know this process, made by `sprat key issue`; then nobody is spoken
    /// to without.
    #[arg(long, value_name = "FILE", env = "SPRAT_IDENTITY", global = true)]
    identity: Option<PathBuf>,
}

impl IdentityArgs {
    /// Loads the identity from its file, if the flags name one.
    ///
    /// # Errors
    /// [`FileError`] when the file cannot be read.
    pub(crate) fn load(&self) -> Result<Option<Arc<Identity>>, FileError> {
        self.identity
            .as_deref()
            .map(Identity::load)
            .transpose()
            .map(|identity| identity.map(Arc::new))
    }
}

/// Whom a server lets in.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct GuardArgs {
    #[command(flatten)]
    identity: IdentityArgs,

    /// Let anybody in who can reach this machine, to read and write everything; without it, that
    /// takes an identity.
    #[arg(long, conflicts_with = "identity")]
    insecure: bool,
}

impl GuardArgs {
    /// Loads a server's identity, and returns it with the `--insecure` flag.
    ///
    /// # Errors
    /// [`FileError`] when the file cannot be read.
    pub(crate) fn guard(&self) -> Result<Guard, FileError> {
        Ok(Guard { identity: self.identity.load()?, insecure: self.insecure })
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
    parsed.ok_or_else(|| "want a table or pattern, a colon, and r or rw".to_owned())
}

/// Seconds by which an identity's validity begins before it is issued, so that it is valid on
/// machines whose clocks are late by as much.
const CLOCK_TOLERANCE: u64 = 3600;

const DAY: u64 = 24 * 3600;

/// Bytes of a public key that are shown, enough for people to recognize it.
const SHOWN_BYTES: usize = 8;

pub(crate) fn init(args: &KeyInitArgs) -> Result<ExitCode> {
    let root = Root::generate()?;
    root.save(&args.root).context("cannot write the root")?;
    let path = args.root.display();
    print_line(&format!(
        "{path}: the root of cluster {}; keep it off the servers",
        brief(&root.public())
    ))?;
    print_line("next: sprat key issue --role server")?;
    Ok(ExitCode::SUCCESS)
}

pub(crate) fn issue(args: &KeyIssueArgs) -> Result<ExitCode> {
    let role = Role::from(args.role);
    if role == Role::Client && args.table.is_empty() {
        bail!(
            "a client without tables may do nothing: give --table NAME:r or --table NAME:rw, or \
             --table '*:rw' for all"
        );
    }
    if role != Role::Client && !args.table.is_empty() {
        bail!("--table is for clients: an {role} identity is good for all tables");
    }
    let root =
        Root::load(&args.root).context("cannot read the root (`sprat key init` makes one)")?;
    let name = args.name.clone().unwrap_or_else(|| role.to_string());
    let output = args
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(format!("{}.id", name.replace('/', "-"))));
    let now = unix();
    let valid = (now.saturating_sub(CLOCK_TOLERANCE), now + u64::from(args.days) * DAY);
    let identity = root.issue(&Terms { role, name, grants: args.table.clone(), valid })?;
    identity.save(&output).context("cannot write the identity")?;
    print_line(&format!("{}: {}", output.display(), describe(&identity)))?;
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
                false => print_line(&format!("the root of cluster {cluster}"))?,
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
