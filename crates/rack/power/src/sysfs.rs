//! Small files below a server's sysfs: this machine's own, or another's over ssh. Both are the same
//! list of paths and texts.

use crate::Trouble;
use crate::program::run;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Most files that are looked at.
const MAX_FILES: usize = 4_096;

/// Most bytes of a file.
const MAX_BYTES: u64 = 256;

/// What the kernel of a server calls its present run: another after each start. It is read with a
/// server's files over ssh; this machine's own does not change while this program runs.
pub(crate) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Texts by their paths below a folder: `intel-rapl:0/energy_uj`.
pub type Files = BTreeMap<String, String>;

/// A server's sysfs.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Place {
    /// Where it is.
    pub root: PathBuf,
    /// On which server, over ssh: `USER@ADDRESS`. None: this one.
    pub server: Option<String>,
}

impl Place {
    /// This machine's.
    #[must_use]
    pub fn here() -> Self {
        Self { root: PathBuf::from("/sys"), server: None }
    }

    /// What is called so in the folders of a class: files whose names begin with one of `names`.
    pub(crate) fn files(
        &self,
        class: &str,
        names: &[&str],
        time: Duration,
    ) -> Result<Files, Trouble> {
        let folder = self.root.join("class").join(class);
        match &self.server {
            None => Ok(local(&folder, names)),
            Some(server) => {
                let patterns: Vec<String> = names.iter().map(|name| format!("*/{name}*")).collect();
                // What is not there is not listed; a folder that is not there lists nothing.
                let folder = folder.display();
                let patterns = patterns.join(" ");
                let script = format!(
                    "cd {folder} 2>/dev/null && grep -H -m 1 '' {patterns} {BOOT_ID} 2>/dev/null; true"
                );
                let mut ssh = Command::new("ssh");
                ssh.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "--", server, &script]);
                Ok(parse(&run("ssh", &mut ssh, time)?))
            }
        }
    }

    /// Where a class of it is, for people.
    pub(crate) fn told(&self, class: &str) -> String {
        let folder = self.root.join("class").join(class);
        match &self.server {
            None => folder.display().to_string(),
            Some(server) => format!("{server}:{}", folder.display()),
        }
    }
}

/// Lines of `PATH:TEXT`, as grep tells them. A folder's name may have colons, a file's has none.
#[must_use]
pub fn parse(text: &str) -> Files {
    let one = |line: &str| {
        let slash = line.find('/')?;
        let colon = slash + line[slash..].find(':')?;
        Some((line[..colon].to_owned(), line[colon + 1..].trim().to_owned()))
    };
    text.lines().take(MAX_FILES).filter_map(one).collect()
}

fn local(folder: &Path, names: &[&str]) -> Files {
    let mut files = Files::new();
    let list = |folder: &Path| fs::read_dir(folder).into_iter().flatten().flatten();
    for device in list(folder) {
        for file in list(&device.path()) {
            let name = file.file_name().to_string_lossy().into_owned();
            if files.len() < MAX_FILES && names.iter().any(|begin| name.starts_with(begin)) {
                let mut text = String::new();
                let read = File::open(file.path())
                    .and_then(|open| open.take(MAX_BYTES).read_to_string(&mut text));
                if read.is_ok() {
                    let path = format!("{}/{name}", device.file_name().to_string_lossy());
                    files.insert(path, text.lines().next().unwrap_or_default().trim().to_owned());
                }
            }
        }
    }
    files
}
