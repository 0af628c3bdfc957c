//! Identities of a cluster, for servers and clients that encrypt (seal) their messages.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use sprat_client::Identity;

/// The identities of a server and of its clients.
#[derive(Clone, Debug)]
pub(crate) struct Members {
    /// File of the server's identity.
    pub(crate) server: PathBuf,
    /// The clients' identity, with the role admin, since they make tables.
    pub(crate) client: Arc<Identity>,
}

impl Members {
    /// Runs `program` to make a root in `folder`, and to issue both identities from it.
    ///
    /// # Errors
    /// When the program fails; the error contains its output.
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
