//! The protocol with the process of the peers. Each line is a question or an answer.

use std::fmt;
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context as _, Result, bail};

/// A line to the peers. Spaces separate its words, so paths must not contain spaces.
#[derive(Clone, Copy, Debug)]
pub enum Question<'a> {
    /// Compile a peer in a precision, run it once, and write its results to a file.
    Make(&'a str, &'a str, &'a Path),
    /// Run a compiled peer again.
    Run(&'a str, &'a str),
}

impl fmt::Display for Question<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Make(peer, precision, path) => {
                write!(f, "make {peer} {precision} {}", path.display())
            }
            Self::Run(peer, precision) => write!(f, "run {peer} {precision}"),
        }
    }
}

/// A line from the peers.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// The peer was compiled and run; its version.
    Made(String),
    /// The peer was run; the seconds of processor time.
    Took(f64),
    /// The peer failed; the reason.
    Cannot(String),
}

impl FromStr for Answer {
    type Err = anyhow::Error;

    fn from_str(line: &str) -> Result<Self> {
        let (verb, rest) = line
            .trim_end()
            .split_once(' ')
            .with_context(|| format!("no answer of a peer: {line:?}"))?;
        match verb {
            "made" => Ok(Self::Made(rest.to_owned())),
            "took" => match rest.parse() {
                Ok(seconds) if seconds > 0.0 && f64::is_finite(seconds) => Ok(Self::Took(seconds)),
                _ => bail!("a peer took {rest:?} seconds"),
            },
            "cannot" => Ok(Self::Cannot(rest.to_owned())),
            _ => bail!("no answer of a peer: {line:?}"),
        }
    }
}
