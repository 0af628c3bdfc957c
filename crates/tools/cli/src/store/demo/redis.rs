//! Reads an imported file with the Redis client of this machine.

use crate::store::demo::files::Tree;
use anyhow::{Context as _, Result, ensure};
use sprat_transfer::display_key;
use std::ffi::OsStr;
use std::io::ErrorKind;
use std::net::SocketAddr;
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Stdio};

/// The file that the client reads is not longer than this, in bytes.
const LONGEST: usize = 64 << 10;

/// Reads a file of the tree by `redis-cli`, and compares it; returns what was done, or `None` if
/// this machine has no `redis-cli`.
pub(super) fn read_back(tree: &Tree, server: SocketAddr) -> Result<Option<String>> {
    let file =
        tree.file_up_to(LONGEST)?.context("the first files are all empty, or over 64 KiB")?;
    let shown = display_key(&file.key);
    let port = server.port().to_string();
    let read = Command::new("redis-cli")
        .args(["-h", &server.ip().to_string(), "-p", &port, "GET"])
        .arg(OsStr::from_bytes(&file.key))
        .stdin(Stdio::null())
        .output();
    let output = match read {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
        output => output.context("cannot run redis-cli")?,
    };
    // If the output is no terminal, it is the value, and the end of a line.
    let value = output.stdout.strip_suffix(b"\n").unwrap_or(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    ensure!(
        output.status.success() && value == file.value,
        "redis-cli read another {shown}: {} bytes, {} {}",
        value.len(),
        output.status,
        said.trim_end()
    );
    Ok(Some(format!("redis-cli -p {port} GET {shown}: its {} bytes, all equal", value.len())))
}
