//! An instance's folder, on this machine.

use crate::{File, Instance, Service};
use std::fs;
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

/// Makes an instance's files in a folder, which is its home or will be brought there; what else is
/// in it stays.
///
/// # Errors
/// Whatever the filesystem says, with the path.
pub fn place(instance: &Instance, folder: &Path) -> io::Result<()> {
    put(instance.files(), folder)
}

/// The same for etcd, a coordinator or a server.
///
/// # Errors
/// Whatever the filesystem says, with the path.
pub fn place_service(service: &Service, folder: &Path) -> io::Result<()> {
    put(service.files(), folder)
}

fn put(files: Vec<File>, folder: &Path) -> io::Result<()> {
    let told = |path: &Path, error: io::Error| {
        io::Error::new(error.kind(), format!("{}: {error}", path.display()))
    };
    for file in files {
        let path = folder.join(file.path);
        fs::create_dir_all(path.parent().unwrap_or(folder)).map_err(|error| told(&path, error))?;
        let mode = fs::Permissions::from_mode(if file.program { 0o755 } else { 0o644 });
        let written = fs::write(&path, file.text).and_then(|()| fs::set_permissions(&path, mode));
        written.map_err(|error| told(&path, error))?;
    }
    Ok(())
}
