//! `share`: serves a directory over HTTP.

use crate::output::{print_json, print_line};
use crate::quantity;
use crate::signals::signals;
use anyhow::{Context as _, Result};
use clap::Args;
use serde_json::json;
use signal_hook::consts::SIGHUP;
use sprat_flow::escape_controls;
use sprat_flow::share::put::MAX_FILE;
use sprat_flow::share::{
    Event, KEPT_FOR, Limits, MAX_CONNECTIONS, MAX_PER_ADDRESS, Options, Pace, Share, Snapshot,
    Tokens, tls,
};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// Default port of the file mover.
pub(crate) const DEFAULT_PORT: u16 = 8040;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat share /srv/data                         read-only, for everybody, on port 8040
  sprat share . --listen 127.0.0.1              for this machine only
  sprat share . --token-file tokens             for clients that send a token of this file
  sprat share . --tls-self --tls-save cert.pem  encrypted; clients use curl --cacert cert.pem
  sprat share . --tls-cert chain.pem --tls-key key.pem
  sprat share . --pace 2Gb/s --json
  sprat share inbox --writable --token-file tokens

Clients:
  sprat cp sprat://HOST:8040/file .             verified on the way, resumable
  curl -O http://HOST:8040/file                 any HTTP client works
  curl 'http://HOST:8040/?format=json'          list; format=jsonl&recursive=1: the whole tree
  sprat cp file sprat://HOST:8040/              upload (--writable), verified and resumable
  curl -T file http://HOST:8040/                upload with any HTTP client

Only files, directories, and links that stay inside DIR are served. An upload has a hidden name
until it is complete, and replaces an existing file only if the client demands it (--force).

Each answer is printed as one line. Ctrl-C gives downloads five seconds to finish and interrupts
uploads, which can resume later; a second Ctrl-C ends everything at once.")]
pub(crate) struct ShareArgs {
    /// Directory to serve.
    #[arg(value_name = "DIR")]
    directory: PathBuf,

    /// Address to listen at, such as 10.0.0.1 or [fd00::1]:8040. Repeat for several [default: all
    /// addresses, IPv6 and IPv4].
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    listen: Vec<Listen>,

    /// Port of the --listen addresses that have none; 0 picks a free one.
    #[arg(long, value_name = "PORT", default_value_t = DEFAULT_PORT)]
    port: u16,

    /// Also serve names that begin with a dot. Uploads can never have such names.
    #[arg(long)]
    hidden: bool,

    /// Serve extended attributes of files (`user.*`) to clients that request them, and accept them
    /// with --writable.
    #[arg(long)]
    xattrs: bool,

    /// Print results as JSON, one value a line.
    #[arg(long)]
    json: bool,

    /// Serve only clients that send one of the tokens in this file, one a line; `TOKEN read` is
    /// read-only. SIGHUP reloads the file.
    #[arg(long, value_name = "FILE", help_heading = "Access")]
    token_file: Option<PathBuf>,

    /// Encrypt with a new certificate for this machine's names and addresses, and print its
    /// fingerprint.
    #[arg(long, conflicts_with = "tls_cert", help_heading = "Access")]
    tls_self: bool,

    /// Write the certificate of --tls-self to this file, for clients to trust.
    #[arg(long, value_name = "FILE", requires = "tls_self", help_heading = "Access")]
    tls_save: Option<PathBuf>,

    /// Encrypt with the certificate chain in this file (PEM), the server's own first.
    #[arg(long, value_name = "FILE", requires = "tls_key", help_heading = "Access")]
    tls_cert: Option<PathBuf>,

    /// Private key of --tls-cert (PEM).
    #[arg(long, value_name = "FILE", requires = "tls_cert", help_heading = "Access")]
    tls_key: Option<PathBuf>,

    /// Accept this host name in requests to private addresses without a token, besides localhost
    /// and this machine's name; others are refused (DNS rebinding). Repeat for several.
    #[arg(long, value_name = "NAME", help_heading = "Access")]
    host_name: Vec<String>,

    /// Accept uploads into DIR. Needs --token-file or --open, unless the share listens on loopback
    /// only.
    #[arg(long, help_heading = "Uploads")]
    writable: bool,

    /// Let everybody who can reach the port upload files.
    #[arg(long, requires = "writable", help_heading = "Uploads")]
    open: bool,

    /// Largest file to accept, such as 10GB [default: 64TiB].
    #[arg(
        long,
        value_name = "SIZE",
        requires = "writable",
        value_parser = sprat_units::size,
        help_heading = "Uploads"
    )]
    max_file: Option<u64>,

    /// Disk space that unfinished uploads may take together [default: half of the file system].
    #[arg(
        long,
        value_name = "SIZE",
        requires = "writable",
        value_parser = sprat_units::size,
        help_heading = "Uploads"
    )]
    max_unfinished: Option<u64>,

    /// Time without progress after which an unfinished upload is removed, such as 12h [default:
    /// 168h].
    #[arg(
        long,
        value_name = "TIME",
        requires = "writable",
        value_parser = sprat_units::duration,
        help_heading = "Uploads"
    )]
    keep_unfinished: Option<Duration>,

    /// Pace each connection that sends: `auto` (by Sprat's controller, on paths of 2 ms and more),
    /// `off` (by the kernel), or at a fixed rate such as 2Gb/s.
    #[arg(
        long,
        value_name = "PACE",
        default_value = "auto",
        value_parser = pace,
        help_heading = "Speed and limits"
    )]
    pace: Pace,

    /// Connections at a time; more wait for their turn.
    #[arg(
        long,
        value_name = "N",
        default_value_t = MAX_CONNECTIONS,
        help_heading = "Speed and limits"
    )]
    max_connections: usize,

    /// Connections at a time from one address (IPv6: one /64 network); more wait. Raise it for
    /// clients behind a proxy.
    #[arg(
        long,
        value_name = "N",
        default_value_t = MAX_PER_ADDRESS,
        help_heading = "Speed and limits"
    )]
    max_per_address: usize,
}

/// An address to listen at. If it has no port of its own, the port of `--port` is used.
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
    let address: SocketAddr = text.parse().map_err(|_| {
        "want an address, such as 10.0.0.1, 10.0.0.1:8040 or [fd00::1]:8040".to_owned()
    })?;
    Ok(Listen { address: address.ip(), port: Some(address.port()) })
}

pub(super) fn pace(text: &str) -> Result<Pace, String> {
    match text {
        "auto" => Ok(Pace::Auto),
        "off" => Ok(Pace::Off),
        _ => quantity::limit(text).map(|bits| Pace::Limit(bits / 8)).map_err(|_| {
            format!(
                "{text:?} is not a pace: want auto, off, or a rate of at least 8kb/s, such as 2Gb/s"
            )
        }),
    }
}

/// How long downloads in progress may continue after the first Ctrl-C. Uploads are interrupted at
/// once.
const GRACE: Duration = Duration::from_secs(5);

/// Interval between two reports of the transfers under way, as JSON.
const REPORT_INTERVAL: Duration = Duration::from_secs(1);

/// Limit on the addresses that are printed.
const MAX_URLS: usize = 16;

pub(crate) fn share(args: &ShareArgs) -> Result<ExitCode> {
    let listen = listen(args);
    let mut options = Options::new(args.directory.clone(), listen);
    options.hidden = args.hidden;
    options.pace = args.pace;
    options.xattrs = args.xattrs;
    options.limits = Limits {
        connections: args.max_connections,
        per_address: args.max_per_address,
        ..Limits::default()
    };
    options.names.clone_from(&args.host_name);
    options.max_unfinished = args.max_unfinished;
    options.keep_unfinished = args.keep_unfinished.unwrap_or(KEPT_FOR);
    if let Some(file) = &args.token_file {
        options.tokens = Tokens::read(file)?;
    }
    options.writable = writable(args, &options)?;
    let fingerprint = encrypt(args, &mut options)?;
    let (json, tls) = (args.json, options.tls.is_some());
    options.observer = Some(Arc::new(move |event| print_event(event, json)));
    // From here on a signal ends the share cleanly, or reloads the tokens.
    let signals = signals()?;
    let hung_up = Arc::new(AtomicBool::new(false));
    if args.token_file.is_some() {
        signal_hook::flag::register(SIGHUP, hung_up.clone()).context("cannot watch for SIGHUP")?;
    }
    let share = Share::start(options)?;
    let hosts: Vec<String> =
        share.addresses().iter().flat_map(|address| reached_at(*address)).collect();
    let scheme = if tls { "https" } else { "http" };
    let urls: Vec<String> =
        hosts.iter().take(MAX_URLS).map(|host| format!("{scheme}://{host}/")).collect();
    if json {
        let directory = args.directory.display().to_string();
        print_json(&json!({
            "event": "listening", "directory": directory, "urls": urls,
            "fingerprint": fingerprint,
        }))?;
    } else {
        print_line(&format!("sharing {}", args.directory.display()))?;
        urls.iter().try_for_each(|url| print_line(&format!("  {url}")))?;
        if let Some(fingerprint) = &fingerprint {
            print_line(&format!("certificate (SHA-256): {fingerprint}"))?;
        }
        if let Some(host) = hosts.first() {
            let scheme = if tls { "sprats" } else { "sprat" };
            print_line(&format!("fetch a file with: sprat cp {scheme}://{host}/NAME ."))?;
            if args.writable {
                print_line(&format!("send one with: sprat cp NAME {scheme}://{host}/"))?;
            }
        }
    }
    if args.token_file.is_none()
        && !share.addresses().iter().all(|address| address.ip().is_loopback())
    {
        let may = if args.writable { "read and upload files" } else { "read these files" };
        eprintln!(
            "sprat: everybody who can reach this machine may {may}; restrict access with \
             --token-file"
        );
    }
    while let Err(RecvTimeoutError::Timeout) = signals.recv_timeout(REPORT_INTERVAL) {
        if let Some(file) =
            args.token_file.as_ref().filter(|_| hung_up.swap(false, Ordering::AcqRel))
        {
            reload_tokens(&share, file);
        }
        if json {
            share.transfers().snapshot().0.iter().try_for_each(print_transfer)?;
        }
    }
    // Uploads are interrupted: a sender resumes its upload by running the same command again.
    let outgoing =
        share.transfers().snapshot().0.iter().filter(|transfer| !transfer.incoming).count();
    if outgoing > 0 {
        let seconds = GRACE.as_secs();
        eprintln!("sprat: {outgoing} downloads have {seconds} s to finish; Ctrl-C ends them now");
    }
    share.stop(GRACE);
    if json {
        print_json(&json!({ "event": "stopped" }))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the tokens again. If the file cannot be read, the present tokens stay valid, so that a
/// mistake in the file does not open the share to strangers.
fn reload_tokens(share: &Share, file: &Path) {
    match Tokens::read(file) {
        Ok(tokens) => {
            eprintln!("sprat: {}: reloaded {tokens:?}", file.display());
            share.set_tokens(tokens);
        }
        Err(error) => {
            eprintln!("sprat: tokens not reloaded, the previous ones stay valid: {error}")
        }
    }
}

/// Returns the size limit of uploaded files, or `None` if uploads are not allowed.
///
/// # Errors
/// Without `--open`, if the share has no tokens and listens at an address that is not loopback:
/// everybody who reaches this machine could upload.
fn writable(args: &ShareArgs, options: &Options) -> Result<Option<u64>> {
    if !args.writable {
        return Ok(None);
    }
    let here = options.listen.iter().all(|address| address.ip().is_loopback());
    if args.token_file.is_none() && !here && !args.open {
        let why = "--writable without tokens would let everybody who can reach this machine fill \
                   its disk; require a token with --token-file, accept only this machine with \
                   --listen 127.0.0.1, or allow everybody with --open";
        return Err(sprat_flow::copy::Error::Usage(why.to_owned()).into());
    }
    Ok(Some(args.max_file.unwrap_or(MAX_FILE)))
}

/// Returns the addresses to listen at: those of `--listen`, or by default all addresses of IPv6 and
/// IPv4. On a machine without IPv6 the default is all addresses of IPv4.
fn listen(args: &ShareArgs) -> Vec<SocketAddr> {
    if !args.listen.is_empty() {
        return args.listen.iter().map(|listen| listen.at(args.port)).collect();
    }
    let has_v6 = std::net::UdpSocket::bind((Ipv6Addr::UNSPECIFIED, 0)).is_ok();
    let every =
        if has_v6 { IpAddr::from(Ipv6Addr::UNSPECIFIED) } else { Ipv4Addr::UNSPECIFIED.into() };
    vec![SocketAddr::new(every, args.port)]
}

/// Sets up TLS as the flags require. Returns the fingerprint of a new certificate, if one is made.
fn encrypt(args: &ShareArgs, options: &mut Options) -> Result<Option<String>> {
    if let (Some(chain), Some(key)) = (&args.tls_cert, &args.tls_key) {
        options.tls = Some(tls::load(chain, key)?);
    }
    if !args.tls_self {
        return Ok(None);
    }
    let mut names = vec!["localhost".to_owned()];
    names.extend(Some(sprat_host::name()).filter(|name| !name.is_empty() && *name != names[0]));
    names.extend(own_addresses().iter().map(ToString::to_string));
    let made = tls::self_signed(&names)?;
    if let Some(path) = &args.tls_save {
        std::fs::write(path, &made.pem)
            .with_context(|| format!("--tls-save {}", path.display()))?;
    }
    options.tls = Some(made.config);
    Ok(Some(made.fingerprint))
}

/// Returns the hosts and ports at which other machines reach a socket bound to `address`. A
/// wildcard address gives all addresses of this machine, loopback last.
fn reached_at(address: SocketAddr) -> Vec<String> {
    if !address.ip().is_unspecified() {
        return vec![address.to_string()];
    }
    let both = address.is_ipv6();
    let own = own_addresses().into_iter().filter(|ip| both || ip.is_ipv4());
    own.map(|ip| SocketAddr::new(ip, address.port()).to_string()).collect()
}

/// Returns the addresses of this machine's interfaces, loopback last. Leaves out link-local IPv6
/// addresses, which other machines cannot use without naming an interface.
fn own_addresses() -> Vec<IpAddr> {
    let mut own: Vec<IpAddr> = Vec::new();
    for interface in nix::ifaddrs::getifaddrs().into_iter().flatten() {
        let Some(address) = interface.address else { continue };
        let ip = match (address.as_sockaddr_in(), address.as_sockaddr_in6()) {
            (Some(v4), _) => IpAddr::V4(v4.ip()),
            (_, Some(v6)) if !v6.ip().is_unicast_link_local() => IpAddr::V6(v6.ip()),
            _ => continue,
        };
        if !own.contains(&ip) {
            own.push(ip);
        }
    }
    own.sort_by_key(|ip| (ip.is_loopback(), ip.is_ipv6(), *ip));
    own
}

/// Prints a transfer's progress as JSON. Leaves out the earlier points of its progress (`history`),
/// since earlier lines contain them.
fn print_transfer(transfer: &Snapshot) -> Result<()> {
    let mut value = serde_json::to_value(transfer)?;
    if let Some(object) = value.as_object_mut() {
        object.remove("history");
        object.insert("event".to_owned(), "transfer".into());
    }
    print_json(&value)
}

/// Prints a line for an answered request. Ignores write errors: the share continues without a
/// reader.
fn print_event(event: &Event, json: bool) {
    let Event { peer, method, path, status, bytes, verified, summed, took, network, error } = event;
    let seconds = took.as_secs_f64();
    let _ = if json {
        print_json(&json!({
            "event": "answer", "peer": peer.to_string(), "method": method, "path": path,
            "status": status,
            "bytes": bytes, "verified": verified, "summed": summed, "seconds": seconds,
            "error": error,
            "rtt_ms": network.map(|network| network.rtt.as_secs_f64() * 1e3),
            "delivery_rate": network.map(|network| network.delivery_rate),
            "retransmitted": network.map(|network| network.retransmitted),
        }))
    } else {
        let verified = if *verified { ", verified" } else { "" };
        let error = error.as_ref().map_or_else(String::new, |error| format!(": {error}"));
        print_line(&escape_controls(&format!(
            "{peer} {method} {path} {status}, {bytes} B in {seconds:.3} s{verified}{error}"
        )))
    };
}
