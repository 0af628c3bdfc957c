//! What is written, removed, and looked at.

use crate::flow::browser::extension::{FILES, packed};
use crate::flow::browser::place::{Browser, Place};
use crate::flow::browser::quoted;
use anyhow::{Context as _, Result};
use std::fs::{self, Permissions};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Permissions of a file that is read, and of one that is run.
const READ: u32 = 0o644;

const RUN: u32 = 0o755;

/// A file to be written.
pub(super) struct Planned {
    pub(super) path: PathBuf,
    content: Vec<u8>,
    mode: u32,
}

/// What is there of something that is installed.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(super) enum State {
    Missing,
    /// Of another version of sprat, or somebody changed it.
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

/// All that installing writes.
pub(super) fn plan(
    place: &Place,
    browsers: &[Browser],
    program: &Path,
    downloads: Option<&Path>,
) -> Result<Vec<Planned>> {
    let downloads = match downloads {
        Some(folder) => format!(" --downloads {}", quoted(folder)?),
        None => String::new(),
    };
    let script = format!(
        "#!/bin/sh\n# Browsers start this; `sprat browser install` wrote it.\nexec {} browser host{downloads} -- \"$@\"\n",
        quoted(program)?
    );
    let read = |path, content| Planned { path, content, mode: READ };
    let mut planned = vec![Planned { path: place.host(), content: script.into_bytes(), mode: RUN }];
    let for_chromium = place.found_by_chromium().filter(|_| browsers.contains(&Browser::Chromium));
    for folder in for_chromium.into_iter().chain([place.extension()]) {
        planned
            .extend(FILES.iter().map(|(name, content)| read(folder.join(name), content.to_vec())));
    }
    if browsers.contains(&Browser::Firefox) {
        let packed = packed()?;
        planned.extend(place.found_by_firefox().map(|path| read(path, packed.clone())));
        planned.push(read(place.packed(), packed));
    }
    // Last, so that a browser that finds a manifest finds all else.
    planned.extend(
        browsers.iter().map(|browser| read(place.manifest(*browser), manifest(place, *browser))),
    );
    Ok(planned)
}

impl Planned {
    /// Writes the file, whole or not at all, and the folders above it that are missing.
    pub(super) fn write(&self) -> Result<()> {
        let told = || format!("cannot write {}", self.path.display());
        let folder = self.path.parent().expect("a file is in a folder");
        fs::create_dir_all(folder).with_context(told)?;
        let mut file = tempfile::NamedTempFile::new_in(folder).with_context(told)?;
        file.write_all(&self.content).with_context(told)?;
        file.as_file().set_permissions(Permissions::from_mode(self.mode)).with_context(told)?;
        file.persist(&self.path).map(drop).map_err(|error| error.error).with_context(told)
    }
}

/// All that any installing may have written.
pub(super) fn paths(place: &Place) -> Vec<PathBuf> {
    let manifests = Browser::ALL.iter().map(|browser| place.manifest(*browser));
    let folders = place.found_by_chromium().into_iter().chain([place.extension()]);
    let extension = folders.flat_map(|folder| FILES.iter().map(move |(name, _)| folder.join(name)));
    manifests
        .chain(extension)
        .chain(place.found_by_firefox())
        .chain([place.packed(), place.host()])
        .collect()
}

/// Removes a file; gives whether it was there.
pub(super) fn remove(path: &Path) -> Result<bool> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error).with_context(|| format!("cannot remove {}", path.display())),
    }
}

/// Removes the folders that are ours, as far as nothing else is in them.
pub(super) fn remove_folders(place: &Place) {
    let folder = place.folder();
    let paths = place.found_by_chromium().into_iter().chain([place.extension(), folder.clone()]);
    for path in paths.chain(folder.parent().map(PathBuf::from)) {
        let _ = fs::remove_dir(path); // of one that is not empty something is somebody else's
    }
}

pub(super) fn manifest_state(place: &Place, browser: Browser) -> State {
    state(&place.manifest(browser), &manifest(place, browser))
}

/// Whether all files of the extension are those that we would write.
pub(super) fn extension_state(place: &Place) -> Result<State> {
    let states: Vec<State> =
        FILES.iter().map(|(name, content)| state(&place.extension().join(name), content)).collect();
    Ok(match states.iter().all(|one| *one == states[0]) {
        true => states[0],
        false => State::Other,
    })
}

/// Whether there is a program to be started; which one, and with which flags, is the user's affair.
pub(super) fn host_state(place: &Place) -> State {
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

fn manifest(place: &Place, browser: Browser) -> Vec<u8> {
    let mut text =
        serde_json::to_vec_pretty(&browser.manifest(&place.host())).expect("strings are JSON");
    text.push(b'\n');
    text
}
