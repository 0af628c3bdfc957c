//! `cp`.

mod objects;
mod send;
mod show;

use super::{CHANGED, CONFLICT, CORRUPT, DENIED, INCOMPLETE, INTERRUPTED, NOT_FOUND, UNREACHABLE, UNWRITABLE};
use crate::args::CpArgs;
use anyhow::{Context as _, Result};
use show::Show;
use sprat_flow::copy::{Cancel, Copy, Error, Gather, Options, Sums, Tree};
use sprat_flow::file::PlaceError;
use sprat_objects::Location;
use std::io::Read as _;
use std::path::Path;
use std::process::ExitCode;

/// Most bytes of a file with a token that are read.
const MAX_TOKEN: u64 = 4096;

pub(crate) fn cp(args: &CpArgs) -> Result<ExitCode> {
    let options = options(args)?;
    let bucket = objects::target(args)?;
    let server = send::target(args)?;
    if args.sources.len() > 1 {
        if bucket.is_none() && server.is_none() && !args.target.is_dir() {
            let why = format!("{}: is no directory, and several files are to go there", args.target.display());
            return Err(Error::Usage(why).into());
        }
        if options.sums != Sums::default() {
            return Err(Error::Usage("a sum is for one file; copy them one by one".to_owned()).into());
        }
    }
    let several = args.sources.len() > 1 || args.sources.iter().any(|source| Tree::has_pattern(source));
    if several && !args.also.is_empty() {
        return Err(Error::Usage("--also is for one file; copy them one by one".to_owned()).into());
    }
    if !args.spread.is_empty() && server.is_none() {
        return Err(Error::Usage("--spread is for what is sent to servers: DST is an address".to_owned()).into());
    }
    let cancel = Cancel::default();
    stop_on_signals(&cancel)?;
    let mut show = Show::new(args.json, args.quiet);
    let mut incomplete = false;
    for source in &args.sources {
        let copied = match (&bucket, server) {
            (Some(to), _) => objects::send(source, to, &options, &cancel, &mut show).map(|()| false),
            (None, Some(to)) => send::send(args, source, to, &options, &cancel, &mut show),
            (None, None) => one(args, source, &options, &cancel, &mut show),
        };
        incomplete |= copied.inspect_err(|_| show.clear())?;
    }
    Ok(if incomplete { INCOMPLETE.into() } else { ExitCode::SUCCESS })
}

/// Copies what one source names; gives whether something of it had to be left out.
fn one(args: &CpArgs, source: &str, options: &Options, cancel: &Cancel, show: &mut Show) -> Result<bool> {
    if args.gather {
        let mut gather = Gather::new(source, &args.target, options.clone())?;
        args.also.iter().try_for_each(|host| gather.also(host))?;
        gather.stop_with(cancel);
        let outcome = gather.run(&mut |event| show.event(event))?;
        show.set_done(&outcome, "from")?;
        return Ok(!outcome.tree.is_whole());
    }
    let is_object = Location::is_one(source);
    if is_object || (!args.recursive && !Tree::has_pattern(source)) {
        let mut copy = match is_object {
            true => objects::fetch(args, source, options, cancel)?,
            false => Copy::new(source, &args.target, options.clone())?,
        };
        args.also.iter().try_for_each(|host| copy.also(host))?;
        copy.stop_with(cancel);
        let outcome = copy.run(&mut |event| show.event(event))?;
        show.done(&outcome)?;
        return Ok(false);
    }
    let mut tree = Tree::new(source, &args.target, args.recursive, options.clone())?;
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
            Some(bytes) => usize::try_from(bytes).context("--receive-buffer: more than there can be")?,
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
    std::fs::File::open(path).with_context(told)?.take(MAX_TOKEN).read_to_string(&mut text).with_context(told)?;
    let line = text.lines().next().unwrap_or("").trim();
    anyhow::ensure!(!line.is_empty(), "{}: its first line is empty; want a token there", told());
    Ok(line.to_owned())
}

/// Ctrl-C and SIGTERM stop the copy, which writes down what it has; the second ends the process at once.
fn stop_on_signals(cancel: &Cancel) -> Result<()> {
    let (signals, cancel) = (super::lab::signals()?, cancel.clone());
    let watch = move || {
        if signals.recv().is_ok() {
            cancel.ask();
        }
    };
    std::thread::Builder::new().name("sprat-stop".into()).spawn(watch).context("cannot start a thread")?;
    Ok(())
}

/// What the process ends with.
pub(crate) fn exit_code(error: &Error) -> u8 {
    match error {
        Error::Usage(_) | Error::Place(PlaceError::NoName(_)) => 2,
        // What a server does not take, and why: no such folder there, one of that name, not for us, no room.
        Error::Refused { status, .. } => match status {
            404 => NOT_FOUND,
            409 | 412 => CONFLICT,
            403 | 405 => DENIED,
            413 | 507 => UNWRITABLE,
            _ => CORRUPT,
        },
        Error::NotFound { .. } => NOT_FOUND,
        Error::Place(PlaceError::Exists(_) | PlaceError::Other { .. }) => CONFLICT,
        Error::Unreachable { .. } => UNREACHABLE,
        Error::Denied { .. } | Error::Untrusted { .. } => DENIED,
        Error::Changed { .. } => CHANGED,
        Error::Protocol { .. } | Error::Corrupt { .. } => CORRUPT,
        Error::Sink(_) | Error::Place(PlaceError::Io { .. }) | Error::File { .. } => UNWRITABLE,
        Error::Cancelled => INTERRUPTED,
    }
}
