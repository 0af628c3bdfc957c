//! Reads small files of a server's sysfs, on this machine or over ssh. Either way gives a map of
//! paths and contents.

use crate::Cause;
use crate::program::run;
use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Limit on the files that are read. Further files are ignored.
const MAX_FILES: usize = 4_096;

/// Limit on the bytes of a file that are read on this machine. The rest of the file is ignored.
const MAX_BYTES: u64 = 256;

/// The kernel's boot id, which differs after each start of a server. Over ssh it is read together
/// with the files; on this machine it cannot change while the program runs.
pub(crate) const BOOT_ID: &str = "/proc/sys/kernel/random/boot_id";

/// Contents by path below the class's folder, such as `intel-rapl:0/energy_uj`.
pub type Files = BTreeMap<String, String>;

/// The sysfs of a server.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct SysfsRoot {
    /// The folder at which sysfs is mounted.
    pub root: PathBuf,
    /// The server, `USER@ADDRESS` for ssh. `None` means this machine.
    pub server: Option<String>,
}

impl SysfsRoot {
    /// Returns this machine's sysfs.
    #[must_use]
    pub fn this_machine() -> Self {
        Self { root: PathBuf::from("/sys"), server: None }
    }

    /// Reads the files of a class whose names begin with one of `names`.
    pub(crate) fn files(
        &self,
        class: &str,
        names: &[&str],
        time: Duration,
    ) -> Result<Files, Cause> {
        let folder = self.root.join("class").join(class);
        match &self.server {
            None => Ok(local(&folder, names)),
            Some(server) => {
                let patterns: Vec<String> = names.iter().map(|name| format!("*/{name}*")).collect();
                // Missing files and folders are silently left out.
                let folder = folder.display();
                let patterns = patterns.join(" ");
                let script = format!(
                    "cd {folder} 2>/dev/null && grep -H -m 1 '' {patterns} {BOOT_ID} 2>/dev/null; \
                     true"
                );
                let mut ssh = Command::new("ssh");
                ssh.args(["-o", "BatchMode=yes", "-o", "ConnectTimeout=5", "--", server, &script]);
                Ok(parse(&run("ssh", &mut ssh, time)?))
            }
        }
    }

    /// Describes the location of a class, for people.
    pub(crate) fn location(&self, class: &str) -> String {
        let folder = self.root.join("class").join(class);
        match &self.server {
            None => folder.display().to_string(),
            Some(server) => format!("{server}:{}", folder.display()),
        }
    }
}

/// Parses grep's output: lines of `PATH:TEXT`. The name of a folder may contain colons; the name of
/// a file does not.
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
