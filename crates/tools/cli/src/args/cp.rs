//! `cp`.

use clap::Args;
use sprat_flow::share::Pace;
use std::path::PathBuf;
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
    pub(crate) sources: Vec<String>,

    /// Where to: a file, or a directory, in which names stay what they are. For local files also an address, or s3://BUCKET/KEY.
    #[arg(value_name = "DST", required = true)]
    pub(crate) target: PathBuf,

    /// Copy folders, with all that is in them.
    #[arg(short, long)]
    pub(crate) recursive: bool,

    /// TCP streams for a file: its parts by turns. Of small files: so many at a time.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u8).range(1..=16))]
    pub(crate) streams: u8,

    /// Another host of the same file: HOST[:PORT] for the same path there, or an address. Several may be named. What comes from them is
    /// held against what the first says.
    #[arg(long, value_name = "HOST", conflicts_with = "recursive")]
    pub(crate) also: Vec<String>,

    /// Send pieces of the file, or folder, to this server too: HOST[:PORT] for the same path there. Several may be named.
    #[arg(long, value_name = "HOST", conflicts_with_all = ["also", "gather"])]
    pub(crate) spread: Vec<String>,

    /// Fetch what was sent with --spread, as one: SRC is what it would be called at one of its servers, and --also names others that may have the list.
    #[arg(long, conflicts_with = "recursive")]
    pub(crate) gather: bool,

    /// Replace files that are there.
    #[arg(short, long)]
    pub(crate) force: bool,

    /// Keep permissions too, as far as the source tells them.
    #[arg(short, long)]
    pub(crate) preserve: bool,

    /// Keep extended attributes of the user's too (`user.*`), of files, where the source tells them (`sprat share --xattrs`).
    #[arg(long)]
    pub(crate) xattrs: bool,

    /// Throw away what an interrupted copy left, and begin anew.
    #[arg(long)]
    pub(crate) restart: bool,

    /// Accepted for scripts that were written when it had a meaning: what an interrupted copy left
    /// is always read and verified.
    #[arg(long, hide = true)]
    pub(crate) check: bool,

    /// Do without verification on the way.
    #[arg(long)]
    pub(crate) no_verify: bool,

    /// At most this rate, such as 2Gb/s (bits) or 200MB/s (bytes); a number alone is bits a second.
    #[arg(long, value_name = "RATE", value_parser = super::units::limit)]
    pub(crate) limit: Option<u64>,

    /// How fast what is sent to a server leaves on each connection: `auto` (a controller of ours, on paths of 2 ms and more), `off` (as the
    /// kernel sees fit), or a rate such as 2Gb/s.
    #[arg(long, value_name = "PACE", default_value = "auto", value_parser = super::share::pace)]
    pub(crate) pace: Pace,

    /// The BLAKE3 hash that the file must have on disk, as `b3sum` prints it; also one that is
    /// there already.
    #[arg(long, value_name = "HEX", value_parser = sum)]
    pub(crate) blake3: Option<[u8; 32]>,

    /// The SHA-256 hash that it must have, as `sha256sum` prints it.
    #[arg(long, value_name = "HEX", value_parser = sum)]
    pub(crate) sha256: Option<[u8; 32]>,

    /// A file whose first line is the token that says who we are.
    #[arg(long, value_name = "FILE")]
    pub(crate) token_file: Option<PathBuf>,

    /// Trust the certificates in this file (PEM), in place of this machine's authorities.
    #[arg(long, value_name = "FILE")]
    pub(crate) cacert: Option<PathBuf>,

    /// Trust any certificate: anybody may pretend to be the source.
    #[arg(long, conflicts_with = "cacert")]
    pub(crate) insecure: bool,

    /// Give up after this many failures one after the other.
    #[arg(long, value_name = "N", default_value_t = 10)]
    pub(crate) retries: u32,

    /// Give a connection up when nothing comes for this long, such as 10s or 5m; a number alone is seconds.
    #[arg(long, value_name = "TIME", default_value = "60s", value_parser = super::units::patience)]
    pub(crate) timeout: Duration,

    /// Bytes of the receive buffers; 0: as the kernel would; default: what the fattest pipe needs.
    #[arg(long, value_name = "SIZE", value_parser = sprat_units::size)]
    pub(crate) receive_buffer: Option<u64>,

    /// Print what happens as JSON, a value on each line.
    #[arg(long)]
    pub(crate) json: bool,

    /// No progress bar, and no word if all is well.
    #[arg(short, long)]
    pub(crate) quiet: bool,
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
