//! `sprat store`: the files of servers that are stopped.

use clap::{Args, Subcommand};
use std::path::PathBuf;

#[derive(Debug, Subcommand)]
pub(crate) enum StoreCommand {
    /// Check every file of a stopped server, and name what is damaged by file and offset.
    Verify(StoreVerifyArgs),
    /// Write every whole object of a stopped server to files, though its log or metadata may be damaged.
    Export(StoreExportArgs),
    /// Make a coordinator's metadata again from the copies that servers keep.
    Rebuild(StoreRebuildArgs),
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat store verify /srv/sprat
  sprat store verify /srv/sprat --json

Nothing is changed. Exit code 10: something is damaged.")]
pub(crate) struct StoreVerifyArgs {
    /// Data directory of a server or coordinator that does not run.
    pub(crate) dir: PathBuf,
    /// Print the findings as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat store export /srv/sprat /tmp/saved
  sprat import users /tmp/saved/users.jsonl              into a store that runs

Each table becomes a file of JSON lines with key and value. Its name is the table's, or
table-ID.jsonl where no file can have that, or where the name is lost with the metadata.
Nothing is changed in DIR. Exit code 10: something is damaged, and all that is whole came out.
A server that keeps replicas for others (-r) gives what it keeps of them.")]
pub(crate) struct StoreExportArgs {
    /// Data directory of a server that does not run.
    pub(crate) dir: PathBuf,
    /// Directory to make.
    pub(crate) target: PathBuf,
    /// Print the findings as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat store rebuild /srv/coordinator --from a/catalog.sprat --from b/catalog.sprat --from c/catalog.sprat
  sprat store rebuild /srv/sprat --from /srv/sprat/catalog.sprat       a server that brings its own

Each server keeps a copy, catalog.sprat, in its data directory: give those of all servers that can
be reached, and the newest counts. Stop the coordinator first, and put damaged metadata aside. Of
changes of the last tenths of a second some may be missing.")]
pub(crate) struct StoreRebuildArgs {
    /// Data directory of the coordinator; made if there is none.
    pub(crate) dir: PathBuf,
    /// A server's copy; once for each.
    #[arg(long, value_name = "FILE", required = true)]
    pub(crate) from: Vec<PathBuf>,
    /// Print what was made as JSON.
    #[arg(long)]
    pub(crate) json: bool,
}
