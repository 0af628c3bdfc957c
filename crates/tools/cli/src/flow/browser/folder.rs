//! The user's download folder.

use anyhow::{Context as _, Result};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

/// File in the settings folder in which desktops record the user's folders.
const USER_DIRS: &str = "user-dirs.dirs";

/// Returns the user's download folder: the one in the desktop's settings, or else `Downloads` in
/// the home folder.
pub(super) fn downloads() -> Result<PathBuf> {
    let home = home()?;
    let text = std::fs::read_to_string(settings(&home).join(USER_DIRS)).unwrap_or_default();
    Ok(parse_user_dirs(&text, &home).unwrap_or_else(|| home.join("Downloads")))
}

/// Returns this user's home folder.
pub(super) fn home() -> Result<PathBuf> {
    absolute("HOME").context("HOME is not set; set it to your home folder")
}

/// Returns the folder in which programs keep their settings.
pub(super) fn settings(home: &Path) -> PathBuf {
    absolute("XDG_CONFIG_HOME").unwrap_or_else(|| home.join(".config"))
}

/// Returns the folder in which programs keep their data.
pub(super) fn data(home: &Path) -> PathBuf {
    absolute("XDG_DATA_HOME").unwrap_or_else(|| home.join(".local/share"))
}

/// Returns an environment variable's value if it is an absolute path.
fn absolute(name: &str) -> Option<PathBuf> {
    std::env::var_os(name)
        .map(|path: OsString| PathBuf::from(path))
        .filter(|path| path.is_absolute())
}

/// Parses the folder in a line `XDG_DOWNLOAD_DIR="$HOME/..."`. The format allows, in double quotes,
/// a path below `$HOME` or an absolute path.
fn parse_user_dirs(text: &str, home: &Path) -> Option<PathBuf> {
    let line = text.lines().rev().find_map(|line| line.trim().strip_prefix("XDG_DOWNLOAD_DIR="))?;
    let quoted = line.trim().strip_prefix('"')?.strip_suffix('"')?;
    let (below, rest) = match quoted.strip_prefix("$HOME") {
        Some(rest) => (true, rest.trim_start_matches('/')),
        None => (false, quoted),
    };
    let mut path = String::new();
    let mut chars = rest.chars();
    while let Some(char) = chars.next() {
        path.push(if char == '\\' { chars.next()? } else { char });
    }
    let path = if below { home.join(path) } else { PathBuf::from(path) };
    path.is_absolute().then_some(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_desktop_says_where_downloads_go() {
        let home = Path::new("/home/me");
        for (text, expected) in [
            ("# comment\nXDG_DOWNLOAD_DIR=\"$HOME/Télé \\\"x\\\"\"\n", Some("/home/me/Télé \"x\"")),
            ("XDG_DOWNLOAD_DIR=\"/data/in\"", Some("/data/in")),
            ("XDG_DOWNLOAD_DIR=\"$HOME/\"", Some("/home/me/")),
            ("XDG_DOWNLOAD_DIR=\"data\"", None),
            ("XDG_DOWNLOAD_DIR=data", None),
            ("XDG_MUSIC_DIR=\"$HOME/Music\"", None),
            ("", None),
        ] {
            assert_eq!(parse_user_dirs(text, home).as_deref(), expected.map(Path::new), "{text}");
        }
    }
}
