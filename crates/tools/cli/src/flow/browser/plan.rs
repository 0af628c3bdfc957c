//! The files that installing writes, uninstalling removes, and `status` checks.

use crate::flow::browser::extension::{FILES, packed};
use crate::flow::browser::place::{Browser, InstallPlace};
use crate::flow::browser::quoted;
use anyhow::{Context as _, Result};
use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Permissions of an ordinary file, and of a program.
const READ: u32 = 0o644;

const RUN: u32 = 0o755;

/// A file to be written.
pub(super) struct PlannedFile {
    pub(super) path: PathBuf,
    content: Vec<u8>,
    mode: u32,
}

/// State of an installed part.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    Missing,
    /// The file has other content: another version of sprat wrote it, or somebody changed it.
    Other,
    Installed,
}

impl State {
    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Missing => "not installed",
            Self::Other => "of another version: run sprat browser install again",
            Self::Installed => "installed",
        }
    }
}

/// Returns the files that installing writes, in the order in which to write them.
pub(super) fn plan(
    place: &InstallPlace,
    browsers: &[Browser],
    program: &Path,
    downloads: Option<&Path>,
) -> Result<Vec<PlannedFile>> {
    let downloads = match downloads {
        Some(folder) => format!(" --downloads {}", quoted(folder)?),
        None => String::new(),
    };
    let script = format!(
        "#!/bin/sh\n# Browsers start this; `sprat browser install` wrote it.\nexec {} browser \
         host{downloads} -- \"$@\"\n",
        quoted(program)?
    );
    let read = |path, content| PlannedFile { path, content, mode: READ };
    let mut planned =
        vec![PlannedFile { path: place.host(), content: script.into_bytes(), mode: RUN }];
    let for_chromium = place.chromium_autoload().filter(|_| browsers.contains(&Browser::Chromium));
    for folder in for_chromium.into_iter().chain([place.extension()]) {
        planned
            .extend(FILES.iter().map(|(name, content)| read(folder.join(name), content.to_vec())));
    }
    if browsers.contains(&Browser::Firefox) {
        let packed = packed()?;
        planned.extend(place.firefox_autoload().map(|path| read(path, packed.clone())));
        planned.push(read(place.packed(), packed));
    }
    // The manifests are written last, so that a browser that finds a manifest also finds the files
    // that it names.
    planned.extend(
        browsers.iter().map(|browser| read(place.manifest(*browser), manifest(place, *browser))),
    );
    Ok(planned)
}

impl PlannedFile {
    /// Writes the file atomically, and makes the folders above it that are missing.
    pub(super) fn write(&self) -> Result<()> {
        let context = || format!("cannot write {}", self.path.display());
        let folder = self.path.parent().expect("a file is in a folder");
        fs::create_dir_all(folder).with_context(context)?;
        let mut file = tempfile::NamedTempFile::new_in(folder).with_context(context)?;
        file.write_all(&self.content).with_context(context)?;
        file.as_file().set_permissions(Permissions::from_mode(self.mode)).with_context(context)?;
        file.persist(&self.path).map(drop).map_err(|error| error.error).with_context(context)
    }
}

/// Returns every file that an installation may have written, for any browser.
pub(super) fn paths(place: &InstallPlace) -> Vec<PathBuf> {
    let manifests = Browser::ALL.iter().map(|browser| place.manifest(*browser));
    let folders = place.chromium_autoload().into_iter().chain([place.extension()]);
    let extension = folders.flat_map(|folder| FILES.iter().map(move |(name, _)| folder.join(name)));
    manifests
        .chain(extension)
        .chain(place.firefox_autoload())
        .chain([place.packed(), place.host()])
        .collect()
}

/// Removes a file; returns whether it existed.
pub(super) fn remove(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot remove {}", path.display())),
    }
}

/// Removes the folders that installing made, if they are empty.
pub(super) fn remove_folders(place: &InstallPlace) {
    let folder = place.folder();
    let paths = place.chromium_autoload().into_iter().chain([place.extension(), folder.clone()]);
    for path in paths.chain(folder.parent().map(PathBuf::from)) {
        let _ = fs::remove_dir(path); // fails if it contains other files
    }
}

pub(super) fn manifest_state(place: &InstallPlace, browser: Browser) -> State {
    state(&place.manifest(browser), &manifest(place, browser))
}

/// Compares the extension's files with those that this version would write.
pub(super) fn extension_state(place: &InstallPlace) -> Result<State> {
    let states: Vec<State> =
        FILES.iter().map(|(name, content)| state(&place.extension().join(name), content)).collect();
    Ok(match states.iter().all(|one| *one == states[0]) {
        true => states[0],
        false => State::Other,
    })
}

/// Returns the state of the native messaging host. It is installed if it is an executable file; the
/// user may change which program the file starts, and with which flags.
pub(super) fn host_state(place: &InstallPlace) -> State {
    let runs = |meta: fs::Metadata| meta.is_file() && meta.permissions().mode() & 0o111 != 0;
    if place.host().metadata().is_ok_and(runs) { State::Installed } else { State::Missing }
}

fn state(path: &Path, content: &[u8]) -> State {
    match fs::read(path) {
        Ok(there) if there == content => State::Installed,
        Ok(_) => State::Other,
        Err(_) => State::Missing,
    }
}

fn manifest(place: &InstallPlace, browser: Browser) -> Vec<u8> {
    let mut text =
        serde_json::to_vec_pretty(&browser.manifest(&place.host())).expect("strings are JSON");
    text.push(b'\n');
    text
}
