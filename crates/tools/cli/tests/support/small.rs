//! A filesystem that is small enough to be filled.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::process::Command;

/// A filesystem of its own in a file, unmounted when dropped.
pub(crate) struct SmallFilesystem {
    directory: tempfile::TempDir,
}

impl SmallFilesystem {
    /// An ext4 of so many bytes, or why there is none.
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

    /// Takes all space that is left, by a file that is returned.
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
