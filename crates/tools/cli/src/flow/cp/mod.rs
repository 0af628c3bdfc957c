//! `cp`.

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
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat cp sprat://left.example/big.iso .            from `sprat share`: each megabyte is verified
  sprat cp https://example.org/big.iso big.iso --sha256 9f86d081884c7d65...
  sprat cp -r sprat://left.example/photos/ photos    a folder
  sprat cp 'sprat://left.example/photos/*.jpg' .     what matches
  sprat cp big.iso /mnt/other/                       from disk to disk, past the page cache
  sprat cp --streams 4 --limit 2Gb/s http://left.example:8040/big.iso .
  sprat cp --also b.example --also http://mirror.example/iso/big.iso sprat://a.example/big.iso .
  sprat cp big.iso sprat://left.example/inbox/       to `sprat share --writable`
  sprat cp -r photos sprat://left.example/           and a folder
  sprat cp -r run7 --spread b.example --spread c.example sprat://a.example/data/
                                                     pieces of it to each of three servers
  sprat cp --gather sprat://a.example/data/run7 .    and from all of them, as one
  sprat cp --streams 8 s3://bucket/big.iso .         an object, by AWS_ACCESS_KEY_ID and its like
  sprat cp big.iso s3://bucket/iso/                  and to an object
  sprat cp sprat://left.example/big.iso /dev/null    only measures the way here

SRC is http://, https://; sprat:// (http on port 8040, where nothing but the verified form will
do), sprats:// (the same with TLS); s3://BUCKET/KEY; or a local file. A file is written as
NAME.sprat-part and gets its name when all of it is right and on disk, with the time that the
source tells. After any interruption, kill -9 and power cuts too, the same command reads back what
NAME.sprat-journal says is here, and goes on from there. What is sent to a server lies there under a
hidden name until all of it is there and right, and the same command goes on with it too. A file
that is as long and as old as the source, and has the hash if one is asked for, stays as it is; any
other of that name is replaced with --force only.

Exit codes: 0 done; 1 other errors; 2 wrong usage; 3 no such file; 4 the destination exists;
5 nobody there, or not for long enough; 6 some of a folder was not copied; 8 not for us, or the
other end is not who it should be; 9 the source keeps changing; 10 what comes, or is there, is not
right; 11 the destination cannot be written; 130 interrupted: run the same command to go on.")]
pub(crate) struct CpArgs {
    /// Where from: addresses or local files; * and ? stand for what matches in the last part.
    #[arg(value_name = "SRC", required = true, num_args = 1..)]
    sources: Vec<String>,

    /// Where to: a file, or a directory, in which names stay what they are. For local files also
    /// an address, or s3://BUCKET/KEY.
    #[arg(value_name = "DST", required = true)]
    target: PathBuf,

    /// Copy folders, with all that is in them.
    #[arg(short, long)]
    recursive: bool,

    /// TCP streams for a file: its parts by turns. Of small files: so many at a time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    streams: u8,

    /// Another host of the same file: HOST[:PORT] for the same path there, or an address. Several
    /// may be named. What comes from them is held against what the first says.
    #[arg(long, value_name = "HOST", conflicts_with = "recursive")]
    also: Vec<String>,

    /// Send pieces of the file, or folder, to this server too: HOST[:PORT] for the same path
    /// there. Several may be named.
    #[arg(long, value_name = "HOST", conflicts_with_all = ["also", "gather"])]
    spread: Vec<String>,

    /// Fetch what was sent with --spread, as one: SRC is what it would be called at one of its
    /// servers, and --also names others that may have the list.
    #[arg(long, conflicts_with = "recursive")]
    gather: bool,

    /// Replace files that are there.
    #[arg(short, long)]
    force: bool,

    /// Keep permissions too, as far as the source tells them.
    #[arg(short, long)]
    preserve: bool,

    /// Keep extended attributes of the user's too (`user.*`), of files, where the source tells
    /// them (`sprat share --xattrs`).
    #[arg(long)]
    xattrs: bool,

    /// Throw away what an interrupted copy left, and begin anew.
    #[arg(long)]
    restart: bool,

    /// Accepted for scripts that were written when it had a meaning: what an interrupted copy left
    /// is always read and verified.
    #[arg(long, hide = true)]
    check: bool,

    /// Do without verification on the way.
    #[arg(long)]
    no_verify: bool,

    /// At most this rate, such as 2Gb/s (bits) or 200MB/s (bytes); a number alone is bits a
    /// second.
    #[arg(long, value_name = "RATE", value_parser = quantity::limit)]
    limit: Option<u64>,

    /// How fast what is sent to a server leaves on each connection: `auto` (a controller of ours,
    /// on paths of 2 ms and more), `off` (as the kernel sees fit), or a rate such as 2Gb/s.
    #[arg(long, value_name = "PACE", default_value = "auto", value_parser = crate::flow::share::pace)]
    pace: Pace,

    /// The BLAKE3 hash that the file must have on disk, as `b3sum` prints it; also one that is
    /// there already.
    #[arg(long, value_name = "HEX", value_parser = sum)]
    blake3: Option<[u8; 32]>,

    /// The SHA-256 hash that it must have, as `sha256sum` prints it.
    #[arg(long, value_name = "HEX", value_parser = sum)]
    sha256: Option<[u8; 32]>,

    /// A file whose first line is the token that says who we are.
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,

    /// Trust the certificates in this file (PEM), in place of this machine's authorities.
    #[arg(long, value_name = "FILE")]
    cacert: Option<PathBuf>,

    /// Trust any certificate: anybody may pretend to be the source.
    #[arg(long, conflicts_with = "cacert")]
    insecure: bool,

    /// Give up after this many failures one after the other.
    #[arg(long, value_name = "N", default_value_t = 10)]
    retries: u32,

    /// Give a connection up when nothing comes for this long, such as 10s or 5m; a number alone is
    /// seconds.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = quantity::patience)]
    timeout: Duration,

    /// Bytes of the receive buffers; 0: as the kernel would; default: what the fattest pipe needs.
    #[arg(long, value_name = "SIZE", value_parser = sprat_units::size)]
    receive_buffer: Option<u64>,

    /// Print what happens as JSON, a value on each line.
    #[arg(long)]
    json: bool,

    /// No progress bar, and no word if all is well.
    #[arg(short, long)]
    quiet: bool,
}

/// Sixty-four hexadecimal digits.
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

/// Most bytes of a file with a token that are read.
const MAX_TOKEN: u64 = 4096;

pub(crate) fn cp(args: &CpArgs) -> Result<ExitCode> {
    let options = options(args)?;
    let bucket = objects::target(args)?;
    let server = send::target(args)?;
    if args.sources.len() > 1 {
        if bucket.is_none() && server.is_none() && !args.target.is_dir() {
            let why = format!(
                "{}: is no directory, and several files are to go there",
                args.target.display()
            );
            return Err(Error::Usage(why).into());
        }
        if options.sums != Sums::default() {
            return Err(
                Error::Usage("a sum is for one file; copy them one by one".to_owned()).into()
            );
        }
    }
    let several =
        args.sources.len() > 1 || args.sources.iter().any(|source| FetchTree::has_pattern(source));
    if several && !args.also.is_empty() {
        return Err(Error::Usage("--also is for one file; copy them one by one".to_owned()).into());
    }
    if !args.spread.is_empty() && server.is_none() {
        return Err(Error::Usage(
            "--spread is for what is sent to servers: DST is an address".to_owned(),
        )
        .into());
    }
    let cancel = Cancel::default();
    stop_on_signals(&cancel)?;
    let mut show = Show::new(args.json, args.quiet);
    let mut incomplete = false;
    for source in &args.sources {
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

/// Copies what one source names; gives whether something of it had to be left out.
fn one(
    args: &CpArgs,
    source: &str,
    options: &Options,
    cancel: &Cancel,
    show: &mut Show,
) -> Result<bool> {
    if args.gather {
        let mut gather = Gather::new(source, &args.target, options.clone())?;
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
            false => Fetch::new(source, &args.target, options.clone())?,
        };
        args.also.iter().try_for_each(|host| copy.add_host(host))?;
        copy.stop_with(cancel);
        let outcome = copy.run(&mut |event| show.event(event))?;
        show.done(&outcome)?;
        return Ok(false);
    }
    let mut tree = FetchTree::new(source, &args.target, args.recursive, options.clone())?;
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
                usize::try_from(bytes).context("--receive-buffer: more than there can be")?
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

/// The first line of a file.
fn token(path: &Path) -> Result<String> {
    let told = || format!("--token-file {}", path.display());
    let mut text = String::new();
    std::fs::File::open(path)
        .with_context(told)?
        .take(MAX_TOKEN)
        .read_to_string(&mut text)
        .with_context(told)?;
    let line = text.lines().next().unwrap_or("").trim();
    anyhow::ensure!(!line.is_empty(), "{}: its first line is empty; want a token there", told());
    Ok(line.to_owned())
}

/// Ctrl-C and SIGTERM stop the copy, which writes down what it has; the second ends the process at
/// once.
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
