//! Arguments of what is done to tables, and to servers for what they have of them.

use super::Connect;
use clap::{Args, Subcommand};
use sprat_wire::tablet::Range;

#[derive(Args, Debug)]
pub(crate) struct TableArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    #[command(subcommand)]
    pub(crate) command: TableCommand,
    /// Print JSON.
    #[arg(long, global = true)]
    pub(crate) json: bool,
}

#[derive(Debug, Subcommand)]
pub(crate) enum TableCommand {
    /// Make a table, unless it exists.
    Create {
        /// Its name.
        name: String,
        /// In how many tablets it begins, each with a server of its own as far as there are so many [default: as many as servers, up to
        /// 16; one where servers keep their log themselves]
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1024))]
        tablets: Option<u32>,
    },
    /// Move a tablet to another server while it is served.
    Move(MoveArgs),
    /// Drop a table and every object in it.
    Drop {
        /// Its name.
        name: String,
    },
    /// List the tables.
    List,
    /// Count a table's objects and bytes.
    Stats {
        /// Its name.
        name: String,
    },
}

#[derive(Debug, Subcommand)]
pub(crate) enum ServerCommand {
    /// Move all tablets of a server to others, while they are served, so that it can be stopped.
    Drain(DrainArgs),
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat server drain 3
  sprat server drain 3 --undo          it may have tablets again

Ctrl-C ends the waiting, not the moving.")]
pub(crate) struct DrainArgs {
    #[command(flatten)]
    pub(crate) connect: Connect,
    /// Its id, as `sprat status` tells it.
    pub(crate) server: u32,
    /// Let it have tablets again; what is moving from it goes on.
    #[arg(long)]
    pub(crate) undo: bool,
    /// Do not wait until it has none left.
    #[arg(long)]
    pub(crate) detach: bool,
    /// Print JSON.
    #[arg(long)]
    pub(crate) json: bool,
}

#[derive(Args, Debug)]
#[command(after_help = "Examples:
  sprat table move users --to 3
  sprat table move users --tablet 4000..7fff --to 3     one of several
  sprat table move users --tablet 6000..7fff --to 3     a part of one: it is divided

Ctrl-C ends the waiting, not the moving.")]
pub(crate) struct MoveArgs {
    /// The table.
    pub(crate) name: String,
    /// Which of its tablets, or which part of one, as `sprat table list` tells them; not needed when there is but one.
    #[arg(long, value_name = "FIRST..LAST", value_parser = parse_range)]
    pub(crate) tablet: Option<Range>,
    /// Id of the server that is to have it.
    #[arg(long, value_name = "ID")]
    pub(crate) to: u32,
    /// Do not wait until it is there.
    #[arg(long)]
    pub(crate) detach: bool,
}

/// A range as tables are listed: the first digits of both ends, in hexadecimal.
fn parse_range(text: &str) -> Result<Range, String> {
    let bad = || {
        format!("`{text}` is no range of a table: write FIRST..LAST, as `sprat table list` does, such as 4000..7fff")
    };
    let (first, last) = text.split_once("..").ok_or_else(bad)?;
    let end = |digits: &str, rest: u64| {
        let bits = 4 * u32::try_from(digits.len()).ok().filter(|len| (1..=16).contains(len))?;
        let number = u64::from_str_radix(digits, 16).ok().filter(|_| !digits.starts_with('+'))?;
        Some(number.checked_shl(64 - bits).unwrap_or(0) | rest.checked_shr(bits).unwrap_or(0))
    };
    let (first, last) = (end(first, 0).ok_or_else(bad)?, end(last, u64::MAX).ok_or_else(bad)?);
    if first <= last { Ok(Range { first, last }) } else { Err(bad()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_range_is_read_as_it_is_told() {
        for parts in [1, 3, 4, 16] {
            for range in Range::ALL.parts(parts) {
                assert_eq!(parse_range(&range.to_string()), Ok(range));
            }
        }
        for text in ["", "..", "4000", "5..4", "4000..g", "00000000000000000..1", "+1..2"] {
            assert!(parse_range(text).is_err(), "{text}");
        }
    }
}
