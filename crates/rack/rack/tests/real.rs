//! Runs a real Cassandra from the files of an instance.

use sprat_plan::Plan;
use sprat_rack::{Instance, hosts, write_instance};
use sprat_testing::skip;
use std::fs;
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// An instance in a folder. Dropping it kills its process.
struct Running {
    instance: Instance,
}

impl Running {
    fn run(&self, program: &str, args: &[&str]) -> Output {
        Command::new(self.instance.home.join(program))
            .args(args)
            .output()
            .unwrap_or_else(|error| panic!("{program}: {error}"))
    }

    fn log(&self) -> String {
        let read = |name: &str| {
            fs::read_to_string(self.instance.home.join("logs").join(name)).unwrap_or_default()
        };
        let tail: Vec<String> =
            read("system.log").lines().rev().take(20).map(str::to_owned).collect();
        format!("{}\n{}", read("stdout.log"), tail.into_iter().rev().collect::<Vec<_>>().join("\n"))
    }

    fn wait(&self) {
        let waited = self.run("instance", &["wait"]);
        assert!(waited.status.success(), "{}\n{}", text(&waited.stderr), self.log());
        TcpStream::connect((self.instance.address, 9042)).expect("it accepts connections");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        if let Ok(pid) = fs::read_to_string(self.instance.home.join("run/pid")) {
            let pid = pid.trim().parse().ok().and_then(rustix::process::Pid::from_raw);
            let _ =
                pid.map(|pid| rustix::process::kill_process(pid, rustix::process::Signal::KILL));
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
#[ignore = "starts Cassandra: make test-rack"]
fn an_instance_starts_answers_and_stops() {
    let library =
        PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../target/tools/cassandra/lib");
    let Ok(library) = library.canonicalize() else {
        return skip("a real Cassandra: its jars are not here (scripts/setup fetches them)");
    };
    if Command::new("java").arg("-version").output().is_err() {
        return skip("a real Cassandra: there is no java here");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let number = std::process::id() % 250;
    let toml = format!(
        "name = \"one\"\n[server]\ncores = 2\nmemory = \"1GiB\"\ndisks = [\"10GB\"]\nport-rate = \
         \"1Gb/s\"\n[chassis]\nservers = 1\n\
         [addresses]\nv4 = \"127.77.{number}.0/26\"\n[cassandra]\nreplication = 1\ntokens = 4\n\
         java = [\"-Dcassandra.skip_wait_for_gossip_to_settle=0\", \
         \"-Dcassandra.ring_delay_ms=1000\"]\n\
         [provision]\nbase = \"{}\"\nlibrary = \"{}\"\n",
        folder.path().display(),
        library.display()
    );
    let plan = Plan::from_toml(&toml).unwrap_or_else(|error| panic!("{error}\n{toml}"));
    let running = Running { instance: hosts(&plan).remove(0).instances.remove(0) };
    let home: &Path = &running.instance.home;
    write_instance(&running.instance, home).expect("its files");

    assert_eq!(running.run("instance", &["status"]).status.code(), Some(3), "it does not run yet");
    // An instance that cannot start reports why at once.
    fs::write(home.join("conf/java.args"), "-nonsense\n").expect("writable");
    let started = running.run("instance", &["start"]);
    // The process may have ended before `start` checks it.
    let ended = if started.status.success() { running.run("instance", &["wait"]) } else { started };
    assert!(
        !ended.status.success() && text(&ended.stderr).contains("Unrecognized option: -nonsense"),
        "{ended:?}"
    );
    write_instance(&running.instance, home).expect("its files");

    let started = running.run("instance", &["start"]);
    assert!(started.status.success(), "{started:?}\n{}", running.log());
    let again = running.run("instance", &["start"]);
    assert!(text(&again.stdout).starts_with("running already"), "{again:?}");
    running.wait();
    let status = running.run("nodetool", &["status"]);
    let output = text(&status.stdout);
    let up = format!("UN  {}", running.instance.address);
    assert!(
        output.contains(&up) && output.contains("c0-n1") && output.contains("100.0%"),
        "{output}{}",
        text(&status.stderr)
    );
    let tokens = text(&running.run("nodetool", &["info", "-T"]).stdout);
    for token in &running.instance.tokens {
        assert!(tokens.contains(&token.to_string()), "{token} in {tokens}");
    }
    assert!(running.run("instance", &["stop"]).status.success());
    assert_eq!(running.run("instance", &["status"]).status.code(), Some(3));
    assert!(!home.join("run/pid").exists());
}
