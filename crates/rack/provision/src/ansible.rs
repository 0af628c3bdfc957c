//! Runs Ansible's playbooks and reports what they changed.

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

/// Limit on the lines that an error quotes from the end of Ansible's output.
const LAST_LINES: usize = 30;

/// Number of hosts that Ansible works on at the same time.
const FORKS: usize = 16;

/// The folder for the sockets of ssh connections. Its name must be short, since the length of a
/// socket's path is limited.
const SOCKETS: &str = "/tmp";

/// How to reach hosts over ssh: the network namespace to connect from, the keys, and the Ansible to
/// run. [`SshAccess::run_command`] and [`playbook`] use it.
#[derive(Clone, Debug, Default)]
pub struct SshAccess {
    /// The network namespace from which to connect; `None` for this machine's own network.
    pub namespace: Option<String>,
    /// The private key; `None` for the caller's own keys.
    pub key: Option<PathBuf>,
    /// The file of the hosts' public keys; `None` for the caller's own file.
    pub known_hosts: Option<PathBuf>,
    /// The folder into which pip installed Ansible (`--target`); `None` if Ansible is on the path.
    pub ansible: Option<PathBuf>,
    /// Ends a running play early. Ctrl-C alone does not reach plays, since each is a process group
    /// of its own.
    pub interrupt: Interrupt,
}

/// Ansible's summary of one host at the end of a play.
#[derive(Clone, Debug, Default, Eq, PartialEq, Serialize)]
pub struct Recap {
    /// Name of the host.
    pub host: String,
    /// Tasks that found everything as it should be, or made it so.
    pub ok: u32,
    /// Tasks that changed something.
    pub changed: u32,
    /// Number of times that the host was unreachable: 0 or 1.
    pub unreachable: u32,
    /// Tasks that failed.
    pub failed: u32,
}

impl SshAccess {
    /// Prepares a program that runs in the namespace.
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

    /// Runs a command on a host, and returns its output.
    ///
    /// # Errors
    /// ssh is missing or fails, or the command does.
    pub fn run_command(&self, user: &str, address: &str, command: &str) -> Result<String, Error> {
        let mut ssh = self.command("ssh");
        ssh.args(self.ssh_arguments())
            .arg(format!("{user}@{address}"))
            .arg(command)
            .stdin(Stdio::null());
        run("ssh", &mut ssh)
    }
}

/// Runs a playbook of the folder against the folder's inventory. Calls `line` with each line of
/// output, and returns the recap of each host.
///
/// # Errors Ansible is missing, fails or is interrupted, or the log or the folder for sockets
/// cannot be written. If Ansible fails, the error describes each host's failure, or quotes the end
/// of the output; `ansible.log` has the complete output.
pub fn playbook(
    folder: &Folder,
    access: &SshAccess,
    name: &str,
    more: &[&str],
    line: &mut dyn FnMut(&str),
) -> Result<Vec<Recap>, Error> {
    let mut command = match &access.ansible {
        None => access.command("ansible-playbook"),
        Some(folder) => {
            let mut command = access.command("python3");
            command.env("PYTHONPATH", folder).arg(folder.join("bin/ansible-playbook"));
            command
        }
    };
    let set = |value: &str| OsString::from(value);
    // The sockets are private to this play, since other racks have hosts with the same addresses.
    // Their folder is removed after the play; the connections end by themselves.
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
                access.ssh_arguments().join(" ")
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
    access.interrupt.begins(child.id());
    let (mut last_lines, mut recaps, mut faults) = (Vec::new(), Vec::new(), Reader::default());
    if let Some(out) = child.stdout.take() {
        for bytes in BufReader::new(out).split(b'\n').map_while(Result::ok) {
            let text = String::from_utf8_lossy(&bytes).into_owned();
            writeln!(log_file, "{text}").map_err(Error::file(&log))?;
            recaps.extend(recap(&text));
            faults.line(&text);
            line(&text);
            last_lines.push(text);
            if last_lines.len() > LAST_LINES {
                last_lines.remove(0);
            }
        }
    }
    let status = child.wait().map_err(Error::file(&log));
    if access.interrupt.ended() {
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
    let output = last_lines
        .into_iter()
        .filter(|line| !line.trim().is_empty())
        .collect::<Vec<_>>()
        .join("\n");
    Err(Error::Failed {
        program: format!("ansible-playbook {name}"),
        status: status.to_string(),
        output,
    })
}

/// Parses a line of the recap: `c0-n1 : ok=5 changed=2 unreachable=0 failed=0 ...`.
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
    fn recaps_are_parsed() {
        let line = "c0-n1                      : ok=7    changed=2    unreachable=0    failed=1    \
                    skipped=1    rescued=0    ignored=0";
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
