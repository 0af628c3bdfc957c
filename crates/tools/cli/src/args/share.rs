//! `share`.

use clap::Args;
use sprat_flow::share::{MAX_CONNECTIONS, MAX_FROM_ONE, Pace};
use std::net::{IpAddr, SocketAddr};
use std::path::PathBuf;
use std::time::Duration;

/// Where the mover is found, unless told.
pub(crate) const DEFAULT_PORT: u16 = 8040;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat share /srv/data                         everything in it, to everybody, at port 8040
  sprat share . --listen 127.0.0.1              to this machine alone
  sprat share . --token-file tokens             to those who know a token, one on each line
  sprat share . --tls-self --tls-save cert.pem  encrypted; others trust it by curl --cacert cert.pem
  sprat share . --tls-cert chain.pem --tls-key key.pem
  sprat share . --pace 2Gb/s --json
  sprat share inbox --writable --token-file tokens  takes files too, from those who know a token

  curl -O http://HOST:8040/file                 any client will do; ranges, resuming and all
  curl 'http://HOST:8040/?format=json'          what there is; format=jsonl&recursive=1 for a tree
  sprat cp sprat://HOST:8040/file .             verified on the way
  curl -T file http://HOST:8040/                into it, with --writable; better:
  sprat cp file sprat://HOST:8040/              verified, and resumed after any interruption

Only files and directories are given, and nothing is written unless --writable. What comes then
lies under a hidden name until all of it is there; a file that is there is replaced only when that
is asked for. Links are followed as long as
they stay inside. Names that begin with a dot are neither listed nor given, unless --hidden. Each
answer is told in a line. Ctrl-C lets what is being sent go on for five seconds; another one ends
it at once.")]
pub(crate) struct ShareArgs {
    /// The directory.
    #[arg(value_name = "DIR")]
    pub(crate) directory: PathBuf,

    /// An address to listen at, with a port or without; once for each. Default: all there are, IPv6 and IPv4.
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    pub(crate) listen: Vec<Listen>,

    /// The port where --listen tells none; 0 for one that is free.
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_PORT)]
    pub(crate) port: u16,

    /// Encrypt, with this chain of certificates (PEM), the server's own first.
    #[arg(long, value_name = "FILE", requires = "tls_key")]
    pub(crate) tls_cert: Option<PathBuf>,

    /// The private key of --tls-cert (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert")]
    pub(crate) tls_key: Option<PathBuf>,

    /// Encrypt, with a certificate made now for the names and addresses of this machine; its fingerprint is told.
    #[arg(long, conflicts_with = "tls_cert")]
    pub(crate) tls_self: bool,

    /// Write the certificate of --tls-self into this file, for those who are to trust it.
    #[arg(long, value_name = "FILE", requires = "tls_self")]
    pub(crate) tls_save: Option<PathBuf>,

    /// Give only to those who know one of the tokens in this file, one on each line; `TOKEN read`
    /// is for reading alone. SIGHUP has the file read again.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// Take files too, and put them into the directory. Wants --token-file where anybody but this machine can reach it, or --open.
    #[arg(long)]
    pub(crate) writable: bool,

    /// With --writable: let everybody who reaches the port put files there.
    #[arg(long, requires = "writable")]
    pub(crate) open: bool,

    /// With --writable: the longest file that is taken.
    #[arg(long, value_name = "SIZE", requires = "writable", value_parser = sprat_units::size)]
    pub(crate) max_file: Option<u64>,

    /// With --writable: how much of the disk unfinished uploads may hold together. Default: half of
    /// the file system.
    #[arg(long, value_name = "SIZE", requires = "writable", value_parser = sprat_units::size)]
    pub(crate) max_unfinished: Option<u64>,

    /// With --writable: how long what has come of an upload is kept that nobody goes on with, such
    /// as 12h. Default: 168h.
    #[arg(long, value_name = "TIME", requires = "writable", value_parser = sprat_units::duration)]
    pub(crate) keep_unfinished: Option<Duration>,

    /// Give files with their extended attributes (`user.*`) to who asks for them, and take them too with --writable.
    #[arg(long)]
    pub(crate) xattrs: bool,

    /// Also what has a name that begins with a dot. Nothing is put under such a name.
    #[arg(long)]
    pub(crate) hidden: bool,

    /// How fast each connection sends: `auto` (a controller of ours, on paths of 2 ms and more), `off` (as the kernel sees fit), or
    /// a rate such as 2Gb/s, kept evenly.
    #[arg(long, value_name = "PACE", default_value = "auto", value_parser = pace)]
    pub(crate) pace: Pace,

    /// Most connections at a time; one more waits until another ends.
    #[arg(long, value_name = "N", default_value_t = MAX_CONNECTIONS)]
    pub(crate) max_connections: usize,

    /// Most connections at a time from one address (of IPv6: one network of 64 bits); one more
    /// waits. Raise it for a proxy, or for many behind one address.
    #[arg(long, value_name = "N", default_value_t = MAX_FROM_ONE)]
    pub(crate) max_per_address: usize,

    /// A name by which it may be asked for where it listens on loopback or private addresses and
    /// wants no token; once for each. Addresses, localhost and this machine's own name always may:
    /// any other could be a page's that leads its visitors' browsers here.
    #[arg(long, value_name = "NAME")]
    pub(crate) host_name: Vec<String>,

    /// Print what happens as JSON, a value on each line.
    #[arg(long)]
    pub(crate) json: bool,
}

/// Where to listen; without a port it is that of --port.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listen {
    address: IpAddr,
    port: Option<u16>,
}

impl Listen {
    pub(crate) fn at(self, port: u16) -> SocketAddr {
        SocketAddr::new(self.address, self.port.unwrap_or(port))
    }
}

fn parse_listen(text: &str) -> Result<Listen, String> {
    let bare = text.strip_prefix('[').and_then(|text| text.strip_suffix(']')).unwrap_or(text);
    if let Ok(address) = bare.parse() {
        return Ok(Listen { address, port: None });
    }
    let address: SocketAddr =
        text.parse().map_err(|_| "want an address, such as 10.0.0.1, 10.0.0.1:8040 or [fd00::1]:8040".to_owned())?;
    Ok(Listen { address: address.ip(), port: Some(address.port()) })
}

pub(super) fn pace(text: &str) -> Result<Pace, String> {
    match text {
        "auto" => Ok(Pace::Auto),
        "off" => Ok(Pace::Off),
        _ => super::units::limit(text)
            .map(|bits| Pace::Limit(bits / 8))
            .map_err(|_| format!("{text:?} is no pace: auto, off, or a rate such as 2Gb/s, 8kb/s at least")),
    }
}
