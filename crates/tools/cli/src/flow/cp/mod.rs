//! `cp`: fetches, sends and gathers files.

mod objects;
mod send;
mod show;

use crate::exit::INCOMPLETE;
use crate::flow::cp::show::Show;
use crate::quantity;
use anyhow::{Context as _, Result};
use clap::Args;
use sprat_flow::copy::{Error, Fetch, FetchTree, Gather, Options, Sums};
use sprat_flow::share::Pace;
use sprat_http::Cancel;
use sprat_objects::Location;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(
    override_usage = "sprat cp [OPTIONS] <SRC>... <DST>",
    after_help = "Examples:
  sprat cp sprat://left.example/big.iso .            from `sprat share`, verified on the way
  sprat cp https://example.org/big.iso big.iso --sha256 \\
    9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08
  sprat cp -r sprat://left.example/photos/ photos    a folder
  sprat cp 'sprat://left.example/photos/*.jpg' .     files that match
  sprat cp big.iso sprat://left.example/inbox/       to `sprat share --writable`
  sprat cp -r photos sprat://left.example/           a folder to it
  sprat cp big.iso /mnt/other/                       from disk to disk, past the page cache
  sprat cp --streams 4 --limit 2Gb/s http://left.example:8040/big.iso .
  sprat cp --also b.example --also http://mirror.example/iso/big.iso sprat://a.example/big.iso .
  sprat cp -r run7 --spread b.example --spread c.example sprat://a.example/data/
                                                     pieces of it to three servers
  sprat cp --gather sprat://a.example/data/run7 .    from all three, as one folder
  sprat cp --streams 8 s3://bucket/big.iso .         an object; set AWS_ACCESS_KEY_ID and so on
  sprat cp big.iso s3://bucket/iso/                  to an object
  sprat cp sprat://left.example/big.iso /dev/null    measure the path, keep nothing

SRC is a local file or an address: http://, https://, s3://BUCKET/KEY, or sprat://HOST/PATH,
which is http on port 8040 in verified form only (sprats:// is the same with TLS).

To continue after an interruption, even kill -9 or a power cut, run the same command again (only
uploads to s3:// start over). Data stays in NAME.sprat-part and NAME.sprat-journal until the
file is complete, verified and on disk; then it gets its name. An existing file with the
source's size and modification time (and the given hash) counts as done; --force replaces any
other.

Exit codes:
  0    done
  1    any other error
  2    wrong usage
  3    no such file
  4    the destination exists or is not a file, or its directory on the server is missing
  5    no server answered, or it stopped answering
  6    part of a folder was left out; the messages name each file
  8    access denied, uploads not accepted, or the server's certificate is not trusted
  9    the source kept changing during the copy
  10   the data or an existing file has the wrong hash, or the server broke the protocol
  11   the destination cannot be written: disk full, or permission denied
  130  interrupted: run the same command to continue"
)]
pub(crate) struct CpArgs {
    /// What to copy, and last where to. SRC: addresses or local files; `*` and `?` match names in
    /// the last part of an address. DST: a file or directory; for local files also an address or
    /// s3://BUCKET/KEY. In a directory, files keep their names.
    // One argument: of two, clap takes the one before an option for DST, and then refuses DST.
    #[arg(value_name = "PATH", required = true, num_args = 1..)]
    paths: Vec<OsString>,

    /// Copy folders with everything in them.
    #[arg(short, long)]
    recursive: bool,

    /// Replace existing files.
    #[arg(short, long)]
    force: bool,

    /// Keep permissions, if the source provides them.
    #[arg(short, long)]
    preserve: bool,

    /// Keep extended attributes of files (`user.*`), if the source provides them (`sprat share
    /// --xattrs`).
    #[arg(long)]
    xattrs: bool,

    /// Discard what an interrupted copy left, and start over.
    #[arg(long)]
    restart: bool,

    /// Accepted for scripts that were written when it had a meaning: what an interrupted copy left
    /// is always read and verified.
    #[arg(long, hide = true)]
    check: bool,

    /// Print results as JSON, one value a line.
    #[arg(long)]
    json: bool,

    /// Print no progress bar and no summary.
    #[arg(short, long)]
    quiet: bool,

    /// TCP streams that transfer parts of a file, and small files of a folder at once.
    #[arg(
        long,
        value_name = "N",
        default_value_t = 1,
        value_parser = clap::value_parser!(u8).range(1..=16),
        help_heading = "Speed"
    )]
    streams: u8,

    /// Limit the rate of all streams together, such as 2Gb/s (bits) or 200MB/s (bytes); a bare
    /// number is bits per second. At least 8kb/s.
    #[arg(long, value_name = "RATE", value_parser = quantity::limit, help_heading = "Speed")]
    limit: Option<u64>,

    /// Pace each connection that sends: `auto` (by Sprat's controller, on paths of 2 ms and more),
    /// `off` (by the kernel), or at a fixed rate such as 2Gb/s.
    #[arg(
        long,
        value_name = "PACE",
        default_value = "auto",
        value_parser = crate::flow::share::pace,
        help_heading = "Speed"
    )]
    pace: Pace,

    /// Total size of the receive buffers, such as 64MB; 0 leaves it to the kernel [default: enough
    /// for the longest and fastest paths].
    #[arg(
        long,
        value_name = "SIZE",
        value_parser = sprat_units::size,
        help_heading = "Speed"
    )]
    receive_buffer: Option<u64>,

    /// Also fetch from this host: HOST[:PORT] for the same path there, or a full address. Repeat
    /// for several. SRC decides what the file is; hosts with different data are dropped.
    #[arg(long, value_name = "HOST", conflicts_with = "recursive", help_heading = "Several hosts")]
    also: Vec<String>,

    /// Also send pieces of the file or folder to this server: HOST[:PORT] for the same path there.
    /// Repeat for several.
    #[arg(
        long,
        value_name = "HOST",
        conflicts_with_all = ["also", "gather"],
        help_heading = "Several hosts"
    )]
    spread: Vec<String>,

    /// Fetch what --spread sent, as one: SRC is its address on one of the servers. --also names
    /// another server to ask for the list of pieces.
    #[arg(long, conflicts_with = "recursive", help_heading = "Several hosts")]
    gather: bool,

    /// Check the file on disk, also an existing one, against this BLAKE3 hash (64 hexadecimal
    /// digits, as `b3sum` prints).
    #[arg(long, value_name = "HEX", value_parser = sum, help_heading = "Verification")]
    blake3: Option<[u8; 32]>,

    /// Check a fetched file against this SHA-256 hash (as `sha256sum` prints).
    #[arg(long, value_name = "HEX", value_parser = sum, help_heading = "Verification")]
    sha256: Option<[u8; 32]>,

    /// Do not ask the server for the verified form.
    #[arg(long, help_heading = "Verification")]
    no_verify: bool,

    /// Send the token on the first line of this file.
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    token_file: Option<PathBuf>,

    /// Trust only the certificates in this file (PEM), instead of the system's authorities.
    #[arg(long, value_name = "FILE", help_heading = "Connection")]
    cacert: Option<PathBuf>,

    /// Trust any certificate. Unsafe: any machine on the path can pretend to be the server.
    #[arg(long, conflicts_with = "cacert", help_heading = "Connection")]
    insecure: bool,

    /// Retry this many times in a row before giving up.
    #[arg(long, value_name = "N", default_value_t = 10, help_heading = "Connection")]
    retries: u32,

    /// Reconnect when nothing arrives for this long, such as 10s or 5m; a bare number is seconds.
    /// 1s to 1d.
    #[arg(
        long,
        value_name = "TIME",
        default_value = "60s",
        value_parser = quantity::patience,
        help_heading = "Connection"
    )]
    timeout: Duration,
}

/// Parses a hash of sixty-four hexadecimal digits.
fn sum(text: &str) -> Result<[u8; 32], String> {
    let wrong = || "want 64 hexadecimal digits".to_owned();
    if text.len() != 64 || !text.is_ascii() {
        return Err(wrong());
    }
    let mut bytes = [0; 32];
    for (byte, digits) in bytes.iter_mut().zip(text.as_bytes().chunks(2)) {
        let digits = str::from_utf8(digits).map_err(|_| wrong())?;
        *byte = u8::from_str_radix(digits, 16).map_err(|_| wrong())?;
    }
    Ok(bytes)
}

/// Limit on the bytes of a token file. A longer one is refused.
const MAX_TOKEN: u64 = 4096;

impl CpArgs {
    /// Returns what to copy: every path except the last.
    fn sources(&self) -> Result<Vec<&str>, Error> {
        let (_, sources) = self.paths.split_last().expect("clap requires one");
        if sources.is_empty() {
            let why = "only one path is given; want SRC... DST: what to copy, and where to";
            return Err(Error::Usage(why.to_owned()));
        }
        let mut texts = Vec::with_capacity(sources.len());
        for path in sources {
            let why = || Error::Usage(format!("{}: is not UTF-8", path.display()));
            texts.push(path.to_str().ok_or_else(why)?);
        }
        Ok(texts)
    }

    /// Returns where to copy: the last path.
    fn target(&self) -> &Path {
        Path::new(self.paths.last().expect("clap requires one"))
    }
}

pub(crate) fn cp(args: &CpArgs) -> Result<ExitCode> {
    let options = options(args)?;
    let sources = args.sources()?;
    let bucket = objects::target(args)?;
    let server = send::target(args)?;
    if sources.len() > 1 {
        if bucket.is_none() && server.is_none() && !args.target().is_dir() {
            let why = format!(
                "{}: not a directory; to copy several files, DST must be one",
                args.target().display()
            );
            return Err(Error::Usage(why).into());
        }
        if options.sums != Sums::default() {
            return Err(Error::Usage(
                "--blake3 and --sha256 apply to one file; copy the files one by one".to_owned(),
            )
            .into());
        }
    }
    let several = sources.len() > 1 || sources.iter().any(|source| FetchTree::has_pattern(source));
    if several && !args.also.is_empty() {
        return Err(Error::Usage(
            "--also applies to one file; copy the files one by one".to_owned(),
        )
        .into());
    }
    if !args.spread.is_empty() && server.is_none() {
        return Err(Error::Usage(
            "--spread sends to servers; DST must be an address such as sprat://HOST/".to_owned(),
        )
        .into());
    }
    let cancel = Cancel::default();
    stop_on_signals(&cancel)?;
    let mut show = Show::new(args.json, args.quiet);
    let mut incomplete = false;
    for source in sources {
        let copied = match (&bucket, server) {
            (Some(to), _) => {
                objects::send(source, to, &options, &cancel, &mut show).map(|()| false)
            }
            (None, Some(to)) => send::send(args, source, to, &options, &cancel, &mut show),
            (None, None) => one(args, source, &options, &cancel, &mut show),
        };
        incomplete |= copied.inspect_err(|_| show.clear())?;
    }
    Ok(if incomplete { INCOMPLETE.into() } else { ExitCode::SUCCESS })
}

/// Fetches one source. Returns whether some of its files had to be left out.
fn one(
    args: &CpArgs,
    source: &str,
    options: &Options,
    cancel: &Cancel,
    show: &mut Show,
) -> Result<bool> {
    if args.gather {
        let mut gather = Gather::new(source, args.target(), options.clone())?;
        args.also.iter().try_for_each(|host| gather.add_host(host))?;
        gather.stop_with(cancel);
        let outcome = gather.run(&mut |event| show.event(event))?;
        show.set_done(&outcome, "from")?;
        return Ok(!outcome.tree.is_whole());
    }
    let is_object = Location::is_location(source);
    if is_object || (!args.recursive && !FetchTree::has_pattern(source)) {
        let mut copy = match is_object {
            true => objects::fetch(args, source, options, cancel)?,
            false => Fetch::new(source, args.target(), options.clone())?,
        };
        args.also.iter().try_for_each(|host| copy.add_host(host))?;
        copy.stop_with(cancel);
        let outcome = copy.run(&mut |event| show.event(event))?;
        show.done(&outcome)?;
        return Ok(false);
    }
    let mut tree = FetchTree::new(source, args.target(), args.recursive, options.clone())?;
    tree.stop_with(cancel);
    let outcome = tree.run(&mut |event| show.event(event))?;
    show.tree_done(&outcome)?;
    Ok(!outcome.is_whole())
}

fn options(args: &CpArgs) -> Result<Options> {
    let defaults = Options::default();
    Ok(Options {
        streams: args.streams.into(),
        retries: args.retries,
        patience: args.timeout,
        receive_buffer: match args.receive_buffer {
            None => defaults.receive_buffer,
            Some(bytes) => {
                usize::try_from(bytes).context("--receive-buffer: too large for this machine")?
            }
        },
        force: args.force,
        restart: args.restart,
        verify: !args.no_verify,
        preserve: args.preserve,
        xattrs: args.xattrs,
        pace: args.pace,
        limit: args.limit.map(|bits| bits / 8),
        sums: Sums { blake3: args.blake3, sha256: args.sha256 },
        token: args.token_file.as_deref().map(token).transpose()?,
        authorities: args.cacert.clone(),
        insecure: args.insecure,
        ..defaults
    })
}

/// Reads a token: the first line of a file.
fn token(path: &Path) -> Result<String> {
    let context = || format!("--token-file {}", path.display());
    let file = std::fs::File::open(path).with_context(context)?;
    let text = sprat_host::read_text(file, MAX_TOKEN).with_context(context)?;
    let line = text.lines().next().unwrap_or("").trim();
    anyhow::ensure!(
        !line.is_empty(),
        "{}: the first line is empty; put the token there",
        context()
    );
    Ok(line.to_owned())
}

/// Lets Ctrl-C and SIGTERM stop the copy. The copy then records its progress, so that it can be
/// resumed. The second signal ends the process at once.
fn stop_on_signals(cancel: &Cancel) -> Result<()> {
    let (signals, cancel) = (crate::signals::signals()?, cancel.clone());
    let watch = move || {
        if signals.recv().is_ok() {
            cancel.cancel();
        }
    };
    std::thread::Builder::new()
        .name("sprat-stop".into())
        .spawn(watch)
        .context("cannot start a thread")?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_are_read_or_refused() {
        assert_eq!(sum(&"0f".repeat(32)), Ok([15; 32]));
        for text in ["", &"0".repeat(63), &"g".repeat(64), &"é".repeat(32)] {
            assert!(sum(text).is_err(), "{text:?}");
        }
    }
}
