//! `rack up`, `status` and `down`.

use clap::{Args, ValueEnum};
use std::path::PathBuf;

#[derive(Args, Clone, Debug)]
pub(crate) struct RackPlace {
    /// A file, or a rack that comes with the program.
    pub(crate) rack: String,

    /// Hosts are made on this machine, as namespaces with an ssh server each. Needs root.
    #[arg(long, group = "here")]
    pub(crate) local: bool,

    /// Hosts are made on this machine, as guests with a kernel, disks and a clock each (User-Mode Linux). Needs root.
    #[arg(long, group = "here")]
    pub(crate) guests: bool,

    /// The folder with all of the rack: inventory, files, keys, data of hosts on this machine [default: below
    /// $XDG_STATE_HOME/sprat/racks or ~/.local/state/sprat/racks, by the rack's name].
    #[arg(long, value_name = "FOLDER")]
    pub(crate) state: Option<PathBuf>,

    /// The folder into which pip put Ansible with --target; else ansible-playbook is looked for on the path.
    #[arg(long, value_name = "FOLDER", env = "SPRAT_ANSIBLE")]
    pub(crate) ansible: Option<PathBuf>,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack up rack.toml --jars lib                  on its servers, over ssh
  sprat rack up rack.toml --jars lib --check          what would change, and nothing is
  sprat rack up three.toml --local --jars lib         on this machine
  sprat rack up three.toml --guests --jars lib        there, each server with a kernel and disks of its own
  sprat rack up rack.toml --jars lib --limit c0-n3    one server

Safe to run again: what is right is left alone, what is missing is made, who does not run is started.
Servers need ssh, Python 3 and, unless Java 17 is there, Debian's packages; this machine needs Ansible
(ansible-core). Jars of Cassandra 5: deploy/cassandra/pom.xml names them, Maven fetches them.")]
pub(crate) struct RackUpArgs {
    #[command(flatten)]
    pub(crate) place: RackPlace,

    /// The folder with Cassandra's jars on this machine, where the description has Cassandra.
    #[arg(long, value_name = "FOLDER", env = "SPRAT_CASSANDRA")]
    pub(crate) jars: Option<PathBuf>,

    /// Tell what would change, and change nothing.
    #[arg(long)]
    pub(crate) check: bool,

    /// Only these servers: names, with commas between.
    #[arg(long, value_name = "NAMES")]
    pub(crate) limit: Option<String>,

    /// Print JSON: what was changed, by server.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack replace rack.toml c0-n3-i1 --jars lib
  sprat rack replace three.toml c0-n2-i1 --local --jars lib

For an instance whose disks or server are new, or whose data is not to be trusted. It is stopped, what it had is
kept beside it (HOME/kept-TIME), and it fetches from the others what it should have. They must see that it is down,
which takes them some seconds; it is waited for that.")]
pub(crate) struct RackReplaceArgs {
    #[command(flatten)]
    pub(crate) place: RackPlace,

    /// The instance, by its name in `sprat rack status`.
    pub(crate) instance: String,

    /// The folder with Cassandra's jars on this machine.
    #[arg(long, value_name = "FOLDER", env = "SPRAT_CASSANDRA")]
    pub(crate) jars: PathBuf,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack rolling config rack.toml --jars lib      bring changed settings to who has others, one at a time
  sprat rack rolling upgrade rack.toml --jars new     the same with other jars, and their files written anew
  sprat rack rolling restart rack.toml --jars lib
  sprat rack rolling config rack.toml --jars lib --check

Each instance in turn: all others must be up and agree on the schema; it writes down what it has in memory, stops, is given its
files, starts, and the others must see it before the next one. Ctrl-C ends it after the present one. Safe to
run again: `config` and `upgrade` pass over who has its files already. Jars of several versions lie beside each
other on servers: the way back is `upgrade` with the old ones, as long as Cassandra reads what the new one wrote.")]
pub(crate) struct RackRollingArgs {
    /// What to do.
    pub(crate) what: RollingArg,

    #[command(flatten)]
    pub(crate) place: RackPlace,

    /// The folder with Cassandra's jars on this machine.
    #[arg(long, value_name = "FOLDER", env = "SPRAT_CASSANDRA")]
    pub(crate) jars: PathBuf,

    /// Only these: names of servers or instances, with commas between.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub(crate) limit: Vec<String>,

    /// Tell what would change, and change nothing.
    #[arg(long)]
    pub(crate) check: bool,
}

#[derive(Clone, Copy, Debug, Eq, PartialEq, ValueEnum)]
pub(crate) enum RollingArg {
    /// Stop each and start it.
    Restart,
    /// Start those anew whose settings are others than before.
    Config,
    /// Start those anew whose jars are others than before, and have all write their tables in the new form.
    Upgrade,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack status rack.toml
  sprat rack status three.toml --local --json")]
pub(crate) struct RackStatusArgs {
    #[command(flatten)]
    pub(crate) place: RackPlace,

    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat rack down rack.toml               instances stop, data stays
  sprat rack down three.toml --local      and the hosts are gone
  sprat rack down three.toml --local --purge")]
pub(crate) struct RackDownArgs {
    #[command(flatten)]
    pub(crate) place: RackPlace,

    /// With --local or --guests: remove the rack's folder too, data and all.
    #[arg(long, requires = "here")]
    pub(crate) purge: bool,
}
