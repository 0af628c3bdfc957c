//! A small filesystem that a test can fill up.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

/// A filesystem in a file. Dropping this value unmounts it.
pub(crate) struct SmallFilesystem {
    directory: tempfile::TempDir,
}

impl SmallFilesystem {
    /// Mounts an ext4 of this number of bytes, or returns why this is not possible.
    pub(crate) fn mount(bytes: u64) -> Result<Self, String> {
        let directory = tempfile::tempdir().map_err(|error| error.to_string())?;
        let small = Self { directory };
        let image = small.directory.path().join("image");
        fs::create_dir(small.root()).map_err(|error| error.to_string())?;
        let file = fs::File::create(&image).map_err(|error| error.to_string())?;
        file.set_len(bytes).map_err(|error| error.to_string())?;
        tool(Command::new("mkfs.ext4").args(["-q", "-m", "0"]).arg(&image))?;
        tool(Command::new("mount").args(["-o", "loop"]).arg(&image).arg(small.root()))?;
        Ok(small)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.directory.path().join("root")
    }

    /// Fills the remaining space with one file, and returns its path.
    pub(crate) fn fill(&self) -> PathBuf {
        let path = self.root().join("crumbs");
        let mut file = fs::File::create(&path).expect("a file needs no space");
        for len in [1 << 20, 4096, 1] {
            while file.write_all(&vec![1; len]).is_ok() {}
        }
        path
    }
}

impl Drop for SmallFilesystem {
    fn drop(&mut self) {
        let _ = tool(Command::new("umount").arg(self.root()));
    }
}

fn tool(command: &mut Command) -> Result<(), String> {
    let output = command.output().map_err(|error| format!("{command:?}: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    Err(format!("{command:?}: {}", String::from_utf8_lossy(&output.stderr).trim()))
}
