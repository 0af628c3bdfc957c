//! Real Ansible sets up two hosts of this machine, which have real ssh servers, as a plan says.
//! Each host gets a real Cassandra.

use sprat_lab::hosts::missing_privileges;
use sprat_plan::{Plan, Spec};
use sprat_provision::ansible::{Recap, SshAccess, playbook};
use sprat_provision::{Folder, Local, Node, nodes};
use sprat_rack::Host;
use sprat_testing::skip;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// How long all instances may take to notice a change.
const PATIENCE: Duration = Duration::from_secs(90);

struct Rack {
    folder: Folder,
    local: Local,
    plan: Plan,
    tools: PathBuf,
    hosts: Vec<Host>,
}

impl Rack {
    fn name(&self) -> &str {
        &self.plan.spec.name
    }

    fn run(&self, what: &str) -> Vec<Recap> {
        let access = SshAccess {
            ansible: Some(self.tools.join("ansible")),
            ..self.local.ssh_access(self.name())
        };
        let mut all = String::new();
        let mut line = |line: &str| all += &format!("{line}\n");
        playbook(&self.folder, &access, what, &[], &mut line)
            .unwrap_or_else(|error| panic!("{error}\n{all}"))
    }

    fn ask(&self, host: usize, command: &str) -> String {
        let host = &self.hosts[host];
        let answer = self.local.ssh_access(self.name()).run_command(
            "root",
            &host.address.0.to_string(),
            command,
        );
        answer.unwrap_or_else(|error| panic!("{}: {error}", host.name))
    }

    fn nodes(&self) -> Vec<Node> {
        nodes(
            &self.ask(0, &format!("{}/nodetool status", self.hosts[0].instances[0].home.display())),
        )
    }

    fn wait(&self, states: [&str; 2]) {
        let begun = Instant::now();
        loop {
            let mut found: Vec<String> = self.nodes().into_iter().map(|node| node.state).collect();
            found.sort_unstable();
            if found == states {
                return;
            }
            assert!(begun.elapsed() < PATIENCE, "{found:?} instead of {states:?}");
            sleep(Duration::from_millis(500));
        }
    }
}

impl Drop for Rack {
    fn drop(&mut self) {
        if self.local.is_up(self.name()) {
            let _ = self.local.down(self.name());
        }
    }
}

/// Returns the folder of the tools, which not every machine has.
fn tools() -> Option<PathBuf> {
    let tools =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../target/tools").canonicalize().ok()?;
    let missing = missing_privileges();
    let found = [
        tools.join("ansible/bin/ansible-playbook"),
        tools.join("cassandra/lib"),
        PathBuf::from("/usr/sbin/sshd"),
    ];
    let lacking = found.into_iter().find(|path| !path.exists());
    match (missing.is_empty(), lacking) {
        (true, None) => Some(tools),
        (false, _) => {
            skip(&format!("a rack on one machine: it needs {}", missing.join(" and ")));
            None
        }
        (_, Some(path)) => {
            skip(&format!(
                "a rack on one machine: there is no {} (scripts/setup fetches it)",
                path.display()
            ));
            None
        }
    }
}

fn rack(folder: &Path, tools: PathBuf) -> Rack {
    let name = format!("r{}", std::process::id());
    let toml = format!(
        "name = \"{name}\"\n[server]\ncores = 2\nmemory = \"1GiB\"\ndisks = [\"10GB\"]\nport-rate \
         = \"1Gb/s\"\n[chassis]\nservers = 2\n\
         [cassandra]\nreplication = 2\ntokens = 2\n\
         java = [\"-Dcassandra.skip_wait_for_gossip_to_settle=0\", \
         \"-Dcassandra.ring_delay_ms=2000\"]\n"
    );
    let folder = Folder::at(folder);
    let local = Local::new(&folder);
    let spec = local.adapt(Spec::from_toml(&toml).expect("a rack"));
    let plan = Plan::new(spec).unwrap_or_else(|error| panic!("{error}"));
    let hosts =
        folder.write(&plan, &tools.join("cassandra/lib")).unwrap_or_else(|error| panic!("{error}"));
    Rack { folder, local, plan, tools, hosts }
}

#[test]
#[ignore = "starts Cassandra: make test-rack"]
fn hosts_become_what_the_plan_says_and_stay_so() {
    let Some(tools) = tools() else { return };
    let state = tempfile::tempdir().expect("a folder");
    let rack = rack(&state.path().join("rack"), tools);
    rack.local.up(&rack.plan, &rack.hosts).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(rack.ask(1, "hostname"), "c0-n2", "each host has its own name");

    let first = rack.run("site.yml");
    assert!(
        first.len() == 2 && first.iter().all(|recap| recap.changed >= 4 && recap.failed == 0),
        "{first:?}"
    );
    rack.wait(["UN", "UN"]);
    let again = rack.run("site.yml");
    assert!(again.iter().all(|recap| recap.changed == 0), "nothing is left to change: {again:?}");

    // A killed instance is started again, and the other host is not changed.
    let home = rack.hosts[1].instances[0].home.display().to_string();
    rack.ask(1, &format!("kill -9 $(cat {home}/run/pid)"));
    assert_eq!(rack.ask(1, &format!("{home}/instance status || true")), "not running");
    let mended = rack.run("site.yml");
    let changed: Vec<u32> = mended.iter().map(|recap| recap.changed).collect();
    assert_eq!(changed, [0, 1], "{mended:?}");
    rack.wait(["UN", "UN"]);

    rack.run("stop.yml");
    assert_eq!(
        rack.ask(
            0,
            &format!("{}/instance status || true", rack.hosts[0].instances[0].home.display())
        ),
        "not running"
    );
    rack.local.down(rack.name()).unwrap_or_else(|error| panic!("{error}"));
    assert!(!rack.local.is_up(rack.name()));
}
