//! The commands, a file for each group.

pub(crate) mod bench;
pub(crate) mod browser;
pub(crate) mod check;
pub(crate) mod cp;
pub(crate) mod demo;
pub(crate) mod distribution;
pub(crate) mod doctor;
pub(crate) mod export;
pub(crate) mod grape;
pub(crate) mod grape_explain;
pub(crate) mod grape_matrix;
pub(crate) mod grape_nbody;
pub(crate) mod grape_sim;
pub(crate) mod import;
pub(crate) mod key;
pub(crate) mod lab;
pub(crate) mod lab_ctl;
pub(crate) mod lab_series;
pub(crate) mod lab_up;
pub(crate) mod lab_watch;
pub(crate) mod moves;
pub(crate) mod objects;
pub(crate) mod rack;
pub(crate) mod rack_add;
pub(crate) mod rack_bridge;
pub(crate) mod rack_cost;
pub(crate) mod rack_load;
pub(crate) mod rack_power;
pub(crate) mod rack_remove;
pub(crate) mod rack_rolling;
pub(crate) mod rack_tune;
pub(crate) mod rack_up;
pub(crate) mod scan;
pub(crate) mod serve;
pub(crate) mod share;
pub(crate) mod shell;
pub(crate) mod sim;
pub(crate) mod store;
pub(crate) mod tables;

mod progress;

use crate::args::Connect;
use anyhow::{Context as _, Result};
use sprat_client::{Client, Error, Number};
use std::io::Write;

/// Exit code: the object or table is not there.
pub(crate) const NOT_FOUND: u8 = 3;

/// Exit code: a condition did not hold.
pub(crate) const CONFLICT: u8 = 4;

/// Exit code: no answer in time, or nobody there.
pub(crate) const UNREACHABLE: u8 = 5;

/// Exit code: done, but some items had to be left out.
pub(crate) const INCOMPLETE: u8 = 6;

/// Exit code: done, but the network box did not keep up.
pub(crate) const BEHIND: u8 = 7;

/// Exit code: the other end does not give it to us, or we cannot know who it is.
pub(crate) const DENIED: u8 = 8;

/// Exit code: the source changes while it is fetched.
pub(crate) const CHANGED: u8 = 9;

/// Exit code: what comes is not what was sent, or makes no sense.
pub(crate) const CORRUPT: u8 = 10;

/// Exit code: the destination cannot be written: the disk is full, or nobody may.
pub(crate) const UNWRITABLE: u8 = 11;

/// Exit code: interrupted, as of a process that Ctrl-C ends.
pub(crate) const INTERRUPTED: u8 = 130;

/// What the process ends with after an error: 1, unless a program may want to tell it apart.
pub(crate) fn exit_code(error: &anyhow::Error) -> u8 {
    if let Some(error) = error.downcast_ref::<sprat_flow::copy::Error>() {
        return cp::exit_code(error);
    }
    if let Some(stopped) = error.downcast_ref::<sprat_grape::Stopped>() {
        return stopped.code;
    }
    if let Some(sprat_provision::Error::Interrupted { .. }) = error.downcast_ref() {
        return INTERRUPTED;
    }
    match error.downcast_ref::<Error>() {
        Some(Error::NoSuchTable(_) | Error::TableDropped(_)) => NOT_FOUND,
        Some(Error::Conflict { .. }) => CONFLICT,
        Some(Error::Denied { .. }) => DENIED,
        Some(
            Error::Timeout { .. }
            | Error::Recovering { .. }
            | Error::Indeterminate { .. }
            | Error::Lost { .. }
            | Error::TooFewServers { .. }
            | Error::ConnectionRefused(_),
        ) => UNREACHABLE,
        _ => 1,
    }
}

/// Connects as the flags say. A command waits by sleeping: it is one of many on the machine.
pub(crate) fn connect(args: &Connect) -> Result<Client> {
    Ok(Client::connect(&args.options()?)?)
}

/// Prints one JSON value on a line.
pub(crate) fn print_json(value: &serde_json::Value) -> Result<()> {
    print_line(&value.to_string())
}

/// Prints a description that comes with the program, or the names of all of them with what each is about.
pub(crate) fn print_ready<'a>(
    one: Option<(&str, &str)>,
    all: impl IntoIterator<Item = (&'a str, String)>,
    json: bool,
) -> Result<()> {
    match one {
        Some((name, toml)) if json => print_json(&serde_json::json!({ "name": name, "toml": toml })),
        Some((_, toml)) => print_line(toml.trim_end()),
        None => {
            let all: Vec<_> = all.into_iter().collect();
            let width = all.iter().map(|(name, _)| name.len()).fold(12, usize::max);
            all.into_iter().try_for_each(|(name, about)| match json {
                true => print_json(&serde_json::json!({ "name": name, "about": about })),
                false => print_line(&format!("{name:<width$} {about}")),
            })
        }
    }
}

/// Prints a line; a closed pipe is an error, not a panic.
pub(crate) fn print_line(line: &str) -> Result<()> {
    print_bytes(&[line, "\n"].concat().into_bytes())
}

/// Prints bytes as they are. They have left when this returns: what is still buffered when a
/// process ends is lost in silence if it cannot be written.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<()> {
    let mut out = std::io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush()).context("cannot write to standard output")
}

/// Adds a counter's number to a JSON object, as `number`.
pub(crate) fn json_number(object: &mut serde_json::Map<String, serde_json::Value>, number: Option<Number>) {
    let number = match number {
        Some(Number::Integer(number)) => number.into(),
        Some(Number::Double(number)) => number.into(),
        None => return,
    };
    object.insert("number".to_owned(), number);
}

/// Adds bytes to a JSON object: as `NAME` where they are UTF-8, as `NAME_base64` where not.
pub(crate) fn json_bytes(object: &mut serde_json::Map<String, serde_json::Value>, name: &str, bytes: &[u8]) {
    use base64::Engine as _;
    match str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => {
            object.insert(format!("{name}_base64"), base64::engine::general_purpose::STANDARD.encode(bytes).into())
        }
    };
}
