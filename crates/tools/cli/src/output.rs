//! Printing to standard output: lines, bytes and JSON, with write errors reported.

use anyhow::{Context as _, Result};
use sprat_client::{Number, Ttl};
use std::io::{self, Write as _};

/// Prints one JSON value on a line.
pub(crate) fn print_json(value: &serde_json::Value) -> Result<()> {
    print_line(&value.to_string())
}

/// Prints the text of `one`, a description that is built into the program, given as `(name, toml)`.
/// If `one` is `None`, lists the names of `all`, each with a line about it.
pub(crate) fn print_ready<'a>(
    one: Option<(&str, &str)>,
    all: impl IntoIterator<Item = (&'a str, String)>,
    json: bool,
) -> Result<()> {
    match one {
        Some((name, toml)) if json => {
            print_json(&serde_json::json!({ "name": name, "toml": toml }))
        }
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

/// Prints a line. Returns an error for a closed pipe, where `println!` would panic.
pub(crate) fn print_line(line: &str) -> Result<()> {
    write_line(line).context("cannot write to standard output")
}

/// Prints a line as [`print_line`] does, but returns the system error without context, for callers
/// that add their own.
pub(crate) fn write_line(line: &str) -> io::Result<()> {
    write_bytes(&[line, "\n"].concat().into_bytes())
}

/// Prints bytes unchanged, and flushes them: if they stayed buffered until the process ends, an
/// error in writing them would go unnoticed.
pub(crate) fn print_bytes(bytes: &[u8]) -> Result<()> {
    write_bytes(bytes).context("cannot write to standard output")
}

fn write_bytes(bytes: &[u8]) -> io::Result<()> {
    let mut out = io::stdout().lock();
    out.write_all(bytes).and_then(|()| out.flush())
}

/// Adds a counter's value to a JSON object as `number`. Adds nothing for `None`.
pub(crate) fn json_number(
    object: &mut serde_json::Map<String, serde_json::Value>,
    number: Option<Number>,
) {
    let number = match number {
        Some(Number::Integer(number)) => number.into(),
        Some(Number::Double(number)) => number.into(),
        None => return,
    };
    object.insert("number".to_owned(), number);
}

/// Adds the milliseconds that an object has left to a JSON object as `ttl_ms`. Adds nothing for
/// `None`.
pub(crate) fn json_ttl(object: &mut serde_json::Map<String, serde_json::Value>, ttl: Option<Ttl>) {
    if let Some(ttl) = ttl {
        object.insert("ttl_ms".to_owned(), ttl.millis().into());
    }
}

/// Adds bytes to a JSON object: as `NAME` if they are UTF-8, as `NAME_base64` otherwise.
pub(crate) fn json_bytes(
    object: &mut serde_json::Map<String, serde_json::Value>,
    name: &str,
    bytes: &[u8],
) {
    use base64::Engine as _;
    match str::from_utf8(bytes) {
        Ok(text) => object.insert(name.to_owned(), text.into()),
        Err(_) => object.insert(
            format!("{name}_base64"),
            base64::engine::general_purpose::STANDARD.encode(bytes).into(),
        ),
    };
}

/// Returns the error's message followed by its causes. Leaves out a cause that the text already
/// ends with.
pub(crate) fn describe_error(error: &anyhow::Error) -> String {
    let mut text = error.to_string();
    for cause in error.chain().skip(1).map(ToString::to_string) {
        if !text.ends_with(&cause) {
            text = format!("{text}: {cause}");
        }
    }
    text
}
