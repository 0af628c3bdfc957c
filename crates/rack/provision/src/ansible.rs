//! Running the roles: `ansible-playbook`, line by line, and what it changed.

use crate::faults::Reader;
use crate::interrupt::Interrupt;
use crate::program::{missing, run};
use crate::{Error, Folder};
use serde::Serialize;
use std::ffi::OsString;
use std::fs::{File, Permissions};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// What a program's last words are, lines.
const LAST_WORDS: usize = 30;

/// Hosts at once.
const FORKS: usize = 16;

/// Where connections to hosts have their sockets: a short name, as a socket's path has a limit.
const SOCKETS: &str = "/tmp";

/// How hosts are reached.
#[derive(Clone, Debug, Default)]
pub struct Reach {
    /// The namespace in which they are neighbours; none: this machine's own network.
    pub namespace: Option<String>,
    /// The private key; none: those of whoever runs it.
    pub key: Option<PathBuf>,
    /// Which keys hosts have; none: those known to whoever runs it.
    pub known_hosts: Option<PathBuf>,
    /// The folder into which pip put Ansible (`--target`); none: the one on the path.
    pub ansible: Option<PathBuf>,
    /// Ends a play before its time. Ctrl-C alone does not: plays are groups of processes of their
    /// own.
    pub interrupt: Interrupt,
}

/// What became of a host.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Recap {
    /// Its name.
    pub host: String,
    /// What was right, or is now.
    pub ok: u32,
    /// What was changed.
    pub changed: u32,
    /// Whether it could not be reached.
    pub unreachable: u32,
    /// What failed.
    pub failed: u32,
}

impl Reach {
    /// A program where the hosts are neighbours.
    fn command(&self, program: &str) -> Command {
        match &self.namespace {
            None => Command::new(program),
            Some(namespace) => {
                let mut command = Command::new("ip");
                command.args(["netns", "exec", namespace, program]);
                command
            }
        }
    }

    fn ssh_arguments(&self) -> Vec<String> {
        let mut all = [
            "ConnectTimeout=10",
            "BatchMode=yes",
            "ServerAliveInterval=10",
            "ServerAliveCountMax=3",
        ]
        .iter()
        .flat_map(|option| ["-o".to_owned(), (*option).to_owned()])
        .collect::<Vec<_>>();
        if let Some(known) = &self.known_hosts {
            all.extend(["-o".to_owned(), format!("UserKnownHostsFile={}", known.display())]);
            all.extend(["-o".to_owned(), "StrictHostKeyChecking=yes".to_owned()]);
        }
        if let Some(key) = &self.key {
            all.extend(["-o".to_owned(), format!("IdentityFile={}", key.display())]);
            all.extend(["-o".to_owned(), "IdentitiesOnly=yes".to_owned()]);
        }
        all
    }

    /// What a host says to a command.
    ///
    /// # Errors
    /// ssh is missing, or says no.
    pub fn ask(&self, user: &str, address: &str, command: &str) -> Result<String, Error> {
        let mut ssh = self.command("ssh");
        ssh.args(self.ssh_arguments())
            .arg(format!("{user}@{address}"))
            .arg(command)
            .stdin(Stdio::null());
        run("ssh", &mut ssh)
    }
}

/// Runs a playbook of the folder's against its inventory; each line that is told is handed on.
///
/// # Errors
/// Ansible is missing, or failed: its last words are told, all of them are in `ansible.log`.
pub fn playbook(
    folder: &Folder,
    reach: &Reach,
    name: &str,
    more: &[&str],
    line: &mut dyn FnMut(&str),
) -> Result<Vec<Recap>, Error> {
    let mut command = match &reach.ansible {
        None => reach.command("ansible-playbook"),
        Some(folder) => {
            let mut command = reach.command("python3");
            command.env("PYTHONPATH", folder).arg(folder.join("bin/ansible-playbook"));
            command
        }
    };
    let set = |value: &str| OsString::from(value);
    // Of this play alone, as other racks have hosts at the same addresses; gone with it, while
    // connections end by themselves.
    let mut sockets = tempfile::Builder::new();
    sockets.prefix("sprat-").permissions(Permissions::from_mode(0o700));
    let sockets = sockets.tempdir_in(SOCKETS).map_err(Error::file(SOCKETS))?;
    let settings = [
        ("ANSIBLE_HOME", folder.file("ansible-home").into_os_string()),
        ("ANSIBLE_PIPELINING", set("1")),
        ("ANSIBLE_FORKS", FORKS.to_string().into()),
        ("ANSIBLE_NOCOLOR", set("1")),
        ("ANSIBLE_RETRY_FILES_ENABLED", set("0")),
        ("ANSIBLE_DISPLAY_SKIPPED_HOSTS", set("0")),
        (
            "ANSIBLE_SSH_ARGS",
            format!(
                "-o ControlMaster=auto -o ControlPersist=60s {}",
                reach.ssh_arguments().join(" ")
            )
            .into(),
        ),
        ("ANSIBLE_SSH_CONTROL_PATH_DIR", sockets.path().into()),
        ("ANSIBLE_PYTHON_INTERPRETER", set("/usr/bin/python3")),
    ];
    command.envs(settings).arg("--inventory").arg(folder.file("inventory.json")).args(more);
    command
        .arg(folder.file("ansible").join(name))
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::null());
    let log = folder.file("ansible.log");
    let mut log_file = File::create(&log).map_err(Error::file(&log))?;
    command.process_group(0);
    let mut child = command.spawn().map_err(|error| missing("ansible-playbook", error))?;
    reach.interrupt.begins(child.id());
    let (mut words, mut recaps, mut faults) = (Vec::new(), Vec::new(), Reader::default());
    if let Some(out) = child.stdout.take() {
        for told in BufReader::new(out).split(b'\n').map_while(Result::ok) {
            let told = String::from_utf8_lossy(&told).into_owned();
            writeln!(log_file, "{told}").map_err(Error::file(&log))?;
            recaps.extend(recap(&told));
            faults.line(&told);
            line(&told);
            words.push(told);
            if words.len() > LAST_WORDS {
                words.remove(0);
            }
        }
    }
    let status = child.wait().map_err(Error::file(&log));
    if reach.interrupt.ended() {
        return Err(Error::Interrupted { play: name.to_owned(), log });
    }
    let status = status?;
    if status.success() {
        return Ok(recaps);
    }
    let faults = faults.found();
    if !faults.is_empty() {
        return Err(Error::Hosts { faults, log });
    }
    let told =
        words.into_iter().filter(|word| !word.trim().is_empty()).collect::<Vec<_>>().join("\n");
    Err(Error::Failed {
        program: format!("ansible-playbook {name}"),
        status: status.to_string(),
        told,
    })
}

/// A line of a play's end: `c0-n1 : ok=5 changed=2 unreachable=0 failed=0 ...`.
fn recap(line: &str) -> Option<Recap> {
    let (host, counts) = line.split_once(" : ")?;
    let mut recap = Recap { host: host.trim().to_owned(), ..Recap::default() };
    let mut known = 0;
    for (key, value) in counts.split_whitespace().filter_map(|count| count.split_once('=')) {
        let count = match key {
            "ok" => &mut recap.ok,
            "changed" => &mut recap.changed,
            "unreachable" => &mut recap.unreachable,
            "failed" => &mut recap.failed,
            _ => continue,
        };
        *count = value.parse().ok()?;
        known += 1;
    }
    (known == 4).then_some(recap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_changed_is_read() {
        let line = "c0-n1                      : ok=7    changed=2    unreachable=0    failed=1    skipped=1    rescued=0    ignored=0";
        let expected =
            Recap { host: "c0-n1".to_owned(), ok: 7, changed: 2, unreachable: 0, failed: 1 };
        assert_eq!(recap(line), Some(expected));
        for line in [
            "",
            "PLAY RECAP ****",
            "ok: [c0-n1] => (item=c0-n1-i1)",
            "a : b=c",
            "c0-n1 : ok=x changed=0 unreachable=0 failed=0",
        ] {
            assert_eq!(recap(line), None, "{line:?}");
        }
    }
}
