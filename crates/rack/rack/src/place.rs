//! Writes the files of an instance or service to a local folder.

use crate::{File, Instance, Service};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Writes an instance's files into `folder`, which is the instance's home or will be copied there.
/// Other files in the folder are not changed.
///
/// # Errors
/// A folder or file cannot be made or written, or a file's mode cannot be set. The error names the
/// path.
pub fn write_instance(instance: &Instance, folder: &Path) -> io::Result<()> {
    write_files(instance.files(), folder)
}

/// Writes the files of etcd, a coordinator or a storage server into `folder`.
///
/// # Errors
/// A folder or file cannot be made or written, or a file's mode cannot be set. The error names the
/// path.
pub fn write_service(service: &Service, folder: &Path) -> io::Result<()> {
    write_files(service.files(), folder)
}

fn write_files(files: Vec<File>, folder: &Path) -> io::Result<()> {
    let with_path = |path: &Path, error: io::Error| {
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    };
    for file in files {
        let path = folder.join(file.path);
        fs::create_dir_all(path.parent().unwrap_or(folder))
            .map_err(|error| with_path(&path, error))?;
        let mode = fs::Permissions::from_mode(if file.program { 0o755 } else { 0o644 });
        let written = fs::write(&path, file.text).and_then(|()| fs::set_permissions(&path, mode));
        written.map_err(|error| with_path(&path, error))?;
    }
    Ok(())
}
