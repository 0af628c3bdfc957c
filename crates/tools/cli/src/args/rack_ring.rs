//! `rack add` and `remove`.

use super::rack_up::RackPlace;
use clap::Args;
use std::path::PathBuf;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack add rack.toml --jars lib                 all that the description has and the ring lacks
  sprat rack add rack.toml c0-n4 --jars lib           this server's instances, also if they have left before
  sprat rack add rack.toml --jars lib --check         who would come, with which share of rows

Say in the description what there is now: more servers of a chassis, more chassis. Who is on the ring keeps its
tokens; those of newcomers are fitted in between. Each in turn is brought to its server, fetches its rows from the others, and
must be seen by all before the next one; then the others remove what is theirs no more (nodetool cleanup), one at a
time. All must be well before, as for `rolling`. Ctrl-C ends it between two steps: the same command goes on, and
what fetches its rows meanwhile goes on by itself.")]
pub(crate) struct RackAddArgs {
    #[command(flatten)]
    pub(crate) place: RackPlace,

    /// Servers or instances; without any, all that were never there.
    #[arg(value_name = "NAME")]
    pub(crate) names: Vec<String>,

    /// The folder with Cassandra's jars on this machine.
    #[arg(long, value_name = "FOLDER", env = "SPRAT_CASSANDRA")]
    pub(crate) jars: PathBuf,

    /// Tell who would come, and change nothing.
    #[arg(long)]
    pub(crate) check: bool,

    /// Print JSON: who came, and who was cleaned up.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack remove rack.toml c0-n4-i1                its rows go to the others, then it stops
  sprat rack remove rack.toml c0-n4                   all instances of a server
  sprat rack remove rack.toml c0-n4 --gone            its server is dead: the others make its rows anew from replicas
  sprat rack remove rack.toml c0-n4 --check

Who stays must be well, and enough for all replicas. What it had is kept on its server (HOME/kept-TIME), unless
--purge. It is not on the ring any more, whatever the description says: `up` leaves it alone, `add` with its name has
it come back. Safe to run again after an interruption: the same command goes on.")]
pub(crate) struct RackRemoveArgs {
    #[command(flatten)]
    pub(crate) place: RackPlace,

    /// The instance, or the server.
    pub(crate) name: String,

    /// It does not run and never will again: nothing is asked of it.
    #[arg(long)]
    pub(crate) gone: bool,

    /// Remove its data, once its rows are with others.
    #[arg(long)]
    pub(crate) purge: bool,

    /// Tell whether it may leave, and change nothing.
    #[arg(long)]
    pub(crate) check: bool,

    /// Print JSON: who left.
    #[arg(long)]
    pub(crate) json: bool,
}
