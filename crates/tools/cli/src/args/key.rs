//! `sprat key`.

use clap::{Args, Subcommand, ValueEnum};
use sprat_key::{FileError, Grant, Identity, Rights, Role};
use sprat_store::server::Guard;
use std::path::PathBuf;
use std::sync::Arc;

/// Where a cluster's root is unless told.
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

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat key init
  sprat key init --root /media/stick/cluster.root

Whoever has this file can be anybody in the cluster. No server needs it.")]
pub(crate) struct KeyInitArgs {
    /// File to write; there must be none.
    #[arg(long, value_name = "FILE", default_value = DEFAULT_ROOT)]
    pub(crate) root: PathBuf,
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
    pub(crate) role: RoleArg,
    /// A table that a client may use, or a pattern with *, and r to read or rw to write too.
    #[arg(long, value_name = "NAME:r|rw", value_parser = parse_grant)]
    pub(crate) table: Vec<Grant>,
    /// Days until it expires.
    #[arg(long, value_name = "N", default_value_t = 365, value_parser = clap::value_parser!(u32).range(1..=36_500))]
    pub(crate) days: u32,
    /// What people call it [default: its role].
    #[arg(long, value_name = "NAME")]
    pub(crate) name: Option<String>,
    /// The cluster's root.
    #[arg(long, value_name = "FILE", default_value = DEFAULT_ROOT)]
    pub(crate) root: PathBuf,
    /// File to write; there must be none [default: the name, and .id].
    #[arg(short, long, value_name = "FILE")]
    pub(crate) output: Option<PathBuf>,
}

#[derive(Args, Debug)]
pub(crate) struct KeyShowArgs {
    /// A root or an identity.
    pub(crate) file: PathBuf,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
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
    /// Identity by which others know this process, made by `sprat key issue`; then nobody is spoken to without.
    #[arg(long, value_name = "FILE", env = "SPRAT_IDENTITY", global = true)]
    pub(crate) identity: Option<PathBuf>,
}

impl IdentityArgs {
    /// The identity, if there is to be one.
    ///
    /// # Errors
    /// [`FileError`].
    pub(crate) fn load(&self) -> Result<Option<Arc<Identity>>, FileError> {
        self.identity.as_deref().map(Identity::load).transpose().map(|identity| identity.map(Arc::new))
    }
}

/// Whom a server lets in.
#[derive(Args, Clone, Debug, Default)]
pub(crate) struct GuardArgs {
    #[command(flatten)]
    pub(crate) identity: IdentityArgs,

    /// Let anybody in who can reach this machine, to read and write everything; without it, that takes an identity.
    #[arg(long, conflicts_with = "identity")]
    pub(crate) insecure: bool,
}

impl GuardArgs {
    /// The same for a server.
    ///
    /// # Errors
    /// [`FileError`].
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
