//! A rack of guests (virtual machines) for a test, and the programs that it needs.

use sprat_lab::hosts::missing_privileges;
use sprat_plan::{Plan, Spec};
use sprat_provision::ansible::{Recap, SshAccess, playbook};
use sprat_provision::{Error, Folder, Local, has_amx};
use sprat_rack::Host;
use sprat_testing::skip;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long a guest may take to start on a machine that does other work too.
const PATIENCE: Duration = Duration::from_secs(180);

/// How long a guest may take to restart. About one in a hundred never restarts: User-Mode Linux
/// hangs in the kernel's last step, after systemd has unmounted everything and written `Stopping
/// MD` on the console.
const REBOOT_PATIENCE: Duration = Duration::from_secs(90);

/// Numbers the racks of tests that run at the same time.
static NUMBER: std::sync::atomic::AtomicU32 = std::sync::atomic::AtomicU32::new(0);

/// A rack of guests. Dropping it ends the guests.
pub(crate) struct Rack {
    pub(crate) folder: Folder,
    pub(crate) local: Local,
    pub(crate) plan: Plan,
    pub(crate) hosts: Vec<Host>,
    tools: PathBuf,
    toml: String,
    _state: tempfile::TempDir,
}

impl Rack {
    /// Starts two guests, with `more` in their description. Returns `None` if this machine cannot
    /// run them.
    pub(crate) fn up(more: &str) -> Option<Self> {
        Self::of(2, "256MiB", more)
    }

    /// Starts this number of guests with this memory.
    pub(crate) fn of(servers: usize, memory: &str, more: &str) -> Option<Self> {
        let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target");
        let tools = target.join("tools");
        let lacks = |program: &str| {
            let mut asked = Command::new(program);
            asked.arg("--version").stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            asked.status().is_err()
        };
        let why = match missing_privileges() {
            missing if !missing.is_empty() => Some(format!("it needs {}", missing.join(" and "))),
            _ if has_amx() => Some(Error::Amx.to_string()),
            _ => ["linux.uml", "mmdebstrap"]
                .into_iter()
                .find(|name| lacks(name))
                .map(|name| format!("there is no {name} (scripts/setup)")),
        };
        let why = why.or_else(|| {
            let ansible = tools.join("ansible/bin/ansible-playbook");
            (!ansible.exists())
                .then(|| format!("there is no {} (scripts/setup fetches it)", ansible.display()))
        });
        if let Some(why) = why {
            skip(&format!("a rack of guests: {why}"));
            return None;
        }
        let number = NUMBER.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        let toml = format!(
            "name = \"g{}-{number}\"\n[server]\ncores = 1\nmemory = \"{memory}\"\ndisks = \
             [\"256MiB\", \"256MiB\", \"64MiB\", \"64MiB\"]\n\
             port-rate = \"1Gb/s\"\n[chassis]\nservers = {servers}\n",
            std::process::id()
        );
        let state = tempfile::tempdir().expect("a folder");
        let folder = Folder::at(state.path().join("rack"));
        let local = Local::with_guests(&folder, target.join("guests/images"));
        let plan = plan(&local, &format!("{toml}{more}"));
        let mut rack = Self { folder, local, plan, hosts: Vec::new(), tools, toml, _state: state };
        rack.describe(more);
        rack.local
            .up(&rack.plan, &rack.hosts)
            .unwrap_or_else(|error| panic!("{error}\n{}", rack.consoles()));
        Some(rack)
    }

    /// Changes the description.
    pub(crate) fn describe(&mut self, more: &str) {
        self.plan = plan(&self.local, &format!("{}{more}", self.toml));
        let jars = self.tools.join("cassandra/lib");
        self.hosts = self.folder.write(&self.plan, &jars).unwrap_or_else(|error| panic!("{error}"));
    }

    pub(crate) fn name(&self) -> &str {
        &self.plan.spec.name
    }

    /// Runs all roles. Returns all output and the recaps.
    pub(crate) fn run(&self, more: &[&str]) -> (String, Result<Vec<Recap>, Error>) {
        self.only("site.yml", more)
    }

    /// Runs a playbook.
    pub(crate) fn only(&self, name: &str, more: &[&str]) -> (String, Result<Vec<Recap>, Error>) {
        let access = SshAccess {
            ansible: Some(self.tools.join("ansible")),
            ..self.local.ssh_access(self.name())
        };
        let mut all = String::new();
        let recaps =
            playbook(&self.folder, &access, name, more, &mut |line| all += &format!("{line}\n"));
        (all, recaps)
    }

    /// Runs all roles, and returns the number of changes on each host.
    pub(crate) fn changed(&self, more: &[&str]) -> Vec<u32> {
        let (all, recaps) = self.run(more);
        let recaps = recaps.unwrap_or_else(|error| panic!("{error}\n{all}"));
        recaps.iter().map(|recap| recap.changed).collect()
    }

    /// Runs all roles, which must fail. Returns all output.
    pub(crate) fn refused(&self, more: &[&str]) -> String {
        match self.run(more) {
            (all, Err(_)) => all,
            (all, Ok(_)) => panic!("it should have been refused:\n{all}"),
        }
    }

    pub(crate) fn try_ask(&self, host: usize, command: &str) -> Result<String, Error> {
        self.local.ssh_access(self.name()).run_command(
            "root",
            &self.hosts[host].address.0.to_string(),
            command,
        )
    }

    pub(crate) fn ask(&self, host: usize, command: &str) -> String {
        self.try_ask(host, command)
            .unwrap_or_else(|error| panic!("{}: {error}", self.hosts[host].name))
    }

    /// Restarts a guest, and waits until it answers. If the restart hangs, all guests are killed by
    /// their process ids and started again; their data are on disk by then.
    pub(crate) fn restart(&self, host: usize) {
        let boot = "cat /proc/sys/kernel/random/boot_id";
        let before = self.ask(host, &format!("sync; {boot}"));
        let comes = |patience: Duration| {
            let begun = Instant::now();
            while begun.elapsed() < patience {
                if self.try_ask(host, boot).is_ok_and(|now| now != before) {
                    return true;
                }
                sleep(Duration::from_millis(200));
            }
            false
        };
        let _ = self.try_ask(host, "reboot"); // the connection ends with it
        if !comes(REBOOT_PATIENCE) {
            eprintln!("{}: its reboot did not end; it is killed", self.hosts[host].name);
            self.local
                .down(self.name())
                .unwrap_or_else(|error| panic!("{error}\n{}", self.consoles()));
            self.local
                .up(&self.plan, &self.hosts)
                .unwrap_or_else(|error| panic!("{error}\n{}", self.consoles()));
            assert!(comes(PATIENCE), "it does not come back: {}", self.consoles());
        }
        self.ask(host, "systemctl is-system-running --wait || true"); // all units have started
    }

    /// Returns the end of each guest's console log.
    fn consoles(&self) -> String {
        let console = |host: &Host| {
            let text = std::fs::read(self.folder.file(&format!("hosts/{}/console.log", host.name)))
                .unwrap_or_default();
            String::from_utf8_lossy(&text[text.len().saturating_sub(2_000)..]).into_owned()
        };
        self.hosts.iter().map(console).collect()
    }
}

fn plan(local: &Local, toml: &str) -> Plan {
    let spec = local.adapt(Spec::from_toml(toml).unwrap_or_else(|error| panic!("{error}\n{toml}")));
    Plan::new(spec).unwrap_or_else(|error| panic!("{error}"))
}

impl Drop for Rack {
    fn drop(&mut self) {
        if self.local.is_up(self.name()) {
            let _ = self.local.down(self.name());
        }
    }
}
