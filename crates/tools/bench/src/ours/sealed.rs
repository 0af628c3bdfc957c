//! Members of a cluster of the benchmark's own, for servers and clients that seal what they say.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sprat_client::Identity;

/// Who a server and its clients are to each other.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    /// File of the server's identity.
    pub(crate) server: PathBuf,
    /// Its clients': they make tables, so it administers.
    pub(crate) client: Arc<Identity>,
}

impl Members {
    /// Has `program` make a root in `folder`, and issue both by it.
    ///
    /// # Errors
    /// When that fails, with what it said.
    pub(crate) fn issue(program: &Path, folder: &Path) -> Result<Self> {
        let root = folder.join("root");
        key(program, &["init"], &[("--root", &root)])?;
        let issue = |role: &str| -> Result<PathBuf> {
            let file = folder.join(format!("{role}.id"));
            key(program, &["issue", "--role", role], &[("--root", &root), ("-o", &file)])?;
            Ok(file)
        };
        let (server, admin) = (issue("server")?, issue("admin")?);
        Ok(Self { server, client: Arc::new(Identity::load(&admin)?) })
    }
}

/// Runs `sprat key`.
fn key(program: &Path, words: &[&str], files: &[(&str, &Path)]) -> Result<()> {
    let mut command = Command::new(program);
    command.arg("key").args(words);
    for (flag, file) in files {
        command.arg(flag).arg(file);
    }
    let output = command.output().with_context(|| format!("cannot run {}", program.display()))?;
    if !output.status.success() {
        bail!("sprat key {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(())
}
