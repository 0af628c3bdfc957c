//! Runs real Slurm and real libvirt on three hosts of this machine, installed by real Ansible.

use sprat_lab::hosts::missing_privileges;
use sprat_plan::{Plan, Spec};
use sprat_provision::ansible::{Recap, SshAccess, playbook};
use sprat_provision::{Folder, Local};
use sprat_rack::{Host, JAMM_JAR};
use sprat_testing::skip;
use std::fs;
use std::path::{Path, PathBuf};

struct Rack {
    folder: Folder,
    local: Local,
    plan: Plan,
    tools: PathBuf,
    hosts: Vec<Host>,
}

impl Rack {
    fn run(&self, more: &[&str]) -> Vec<Recap> {
        let access = SshAccess {
            ansible: Some(self.tools.join("ansible")),
            ..self.local.ssh_access(&self.plan.spec.name)
        };
        let mut all = String::new();
        let mut line = |line: &str| all += &format!("{line}\n");
        playbook(&self.folder, &access, "jobs.yml", more, &mut line)
            .unwrap_or_else(|error| panic!("{error}\n{all}"))
    }

    fn ask(&self, host: usize, command: &str) -> String {
        let host = &self.hosts[host];
        let answer = self.local.ssh_access(&self.plan.spec.name).run_command(
            "root",
            &host.address.0.to_string(),
            command,
        );
        answer.unwrap_or_else(|error| panic!("{}: {error}", host.name))
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        if self.local.is_up(&self.plan.spec.name) {
            let _ = self.local.down(&self.plan.spec.name);
        }
    }
}

/// Returns the folder of the tools, or `None` if a privilege or a program is missing.
fn tools() -> Option<PathBuf> {
    let missing = missing_privileges();
    if !missing.is_empty() {
        skip(&format!("jobs on a rack on one machine: it needs {}", missing.join(" and ")));
        return None;
    }
    let tools = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/tools");
    let programs = ["sshd", "munged", "slurmd", "slurmctld", "libvirtd"]
        .map(|name| Path::new("/usr/sbin").join(name));
    let all = programs
        .into_iter()
        .chain([tools.join("ansible/bin/ansible-playbook"), PathBuf::from("/usr/bin/virsh")]);
    if let Some(path) = all.into_iter().find(|path| !path.exists()) {
        skip(&format!(
            "jobs on a rack on one machine: there is no {} (scripts/setup fetches it)",
            path.display()
        ));
        return None;
    }
    tools.canonicalize().ok()
}

fn rack(state: &Path, tools: PathBuf) -> Rack {
    let toml = format!(
        "name = \"j{}\"\n[server]\ncores = 2\nmemory = \"1GiB\"\nport-rate = \"1Gb/s\"\n[chassis]\n\
         servers = 3\n\
         [jobs]\nslurm = true\nlibvirt = true\n",
        std::process::id()
    );
    let folder = Folder::at(state.join("rack"));
    let local = Local::new(&folder);
    let plan = Plan::new(local.adapt(Spec::from_toml(&toml).expect("a rack")))
        .unwrap_or_else(|error| panic!("{error}"));
    // This rack has no Cassandra: the jar is an empty file.
    let jars = state.join("jars");
    fs::create_dir(&jars).and_then(|()| fs::write(jars.join(JAMM_JAR), "")).expect("a folder");
    let hosts = folder.write(&plan, &jars).unwrap_or_else(|error| panic!("{error}"));
    Rack { folder, local, plan, tools, hosts }
}

#[test]
#[ignore = "starts Slurm and libvirt on three hosts: make test-rack"]
fn jobs_and_guests_are_on_all_hosts() {
    let Some(tools) = tools() else { return };
    let state = tempfile::tempdir().expect("a folder");
    let rack = rack(state.path(), tools);
    rack.local.up(&rack.plan, &rack.hosts).unwrap_or_else(|error| panic!("{error}"));
    let would = rack.run(&["--check"]);
    assert!(would.iter().all(|recap| recap.changed > 0 && recap.failed == 0), "{would:?}");
    assert_eq!(rack.ask(0, "ls /run/munge 2>&1 || true").lines().count(), 1, "and nothing is");

    let first = rack.run(&[]);
    assert!(
        first.len() == 3 && first.iter().all(|recap| recap.changed >= 4 && recap.failed == 0),
        "{first:?}"
    );

    let conf = format!("SLURM_CONF={}/slurm/slurm.conf", rack.plan.spec.provision.base);
    let job = |what: &str| {
        let mut lines: Vec<String> =
            rack.ask(1, &format!("{conf} srun {what}")).lines().map(str::to_owned).collect();
        lines.sort_unstable();
        lines
    };
    assert_eq!(
        job("--nodes=3 --mem=1M hostname"),
        ["c0-n1", "c0-n2", "c0-n3"],
        "submitted on any host"
    );
    assert_eq!(
        job("--nodes=2 --ntasks=4 --mem=1M --exclude=c0-n2 hostname"),
        ["c0-n1", "c0-n1", "c0-n3", "c0-n3"]
    );
    let output = rack.ask(0, &format!("{conf} sinfo --noheader --Node --format='%N %c %m'"));
    assert_eq!(output, "c0-n1 2 960\nc0-n2 2 960\nc0-n3 2 960", "cores and memory of the plan");

    // Each host has virtual machines of its own.
    let guest = "<domain type='qemu'><name>mine</name><memory \
                 unit='MiB'>64</memory><os><type>hvm</type></os></domain>";
    rack.ask(1, &format!("echo \"{guest}\" > /run/guest && virsh --quiet define /run/guest"));
    let guests = |host| rack.ask(host, "virsh list --all --name");
    assert_eq!([guests(0), guests(1), guests(2)], ["", "mine", ""]);

    let again = rack.run(&[]);
    assert!(again.iter().all(|recap| recap.changed == 0), "nothing is left to change: {again:?}");
    rack.ask(2, "kill -9 $(cat /run/slurmd.pid)");
    let mended = rack.run(&[]);
    let changed: Vec<u32> = mended.iter().map(|recap| recap.changed).collect();
    assert_eq!(changed, [0, 0, 1], "a stopped service is started: {mended:?}");
    assert_eq!(job("--nodes=3 --mem=1M hostname").len(), 3);

    rack.local.down(&rack.plan.spec.name).unwrap_or_else(|error| panic!("{error}"));
    assert!(!rack.local.is_up(&rack.plan.spec.name));
}
