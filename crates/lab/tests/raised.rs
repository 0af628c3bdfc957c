//! Labs for real, made of topologies: hosts that reach each other through boxes, and are gone again.

use sprat_lab::hosts::{Event, Job, StateDir, missing_privileges, within};
use sprat_lab::topology::{Raised, Topology, ready};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

/// Long enough for anything that ends at all.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn two_sites_are_as_far_apart_as_they_say() {
    let Some((raised, _folder)) = up("two-sites", |text| text.replace("100ms", "25ms")) else { return };
    for address in addresses(&raised, "right") {
        let took = reach(&raised, "left", "right", address);
        assert!(took >= Duration::from_millis(50), "never sooner than light: {took:?}");
    }
    let (reports, left) = raised.down().unwrap();
    assert_eq!(left, []);
    let report = reports[0].1.as_ref().unwrap();
    let names: Vec<_> = report.inputs.iter().map(|input| &input.port[..]).collect();
    assert_eq!(names.len(), 2);
    assert!(names.contains(&"left") && names.contains(&"right"), "ports have the names of the topology: {names:?}");
    assert!(report.inputs.iter().all(|input| input.packets >= 6), "it went through the box");
}

#[test]
fn a_chassis_reaches_out_and_across() {
    let Some((raised, _folder)) = up("chassis", str::to_owned) else { return };
    for (from, to) in [("node01", "node15"), ("node07", "outside"), ("outside", "node02")] {
        for address in addresses(&raised, to) {
            reach(&raised, from, to, address);
        }
    }
    let (reports, _) = raised.down().unwrap();
    assert_eq!(reports.iter().map(|(name, _)| &name[..]).collect::<Vec<_>>(), ["inside", "uplink"]);
    assert!(reports.iter().all(|(_, report)| report.is_ok()));
}

#[test]
fn commands_find_each_other_by_name() {
    let Some((raised, _folder)) = up("two-sites", |text| {
        text.replace("100ms", "0") + "[host.left.at.wan]\n[host.middle]\n[[cable]]\nends = [\"middle\", \"left\"]\n"
    }) else {
        return;
    };
    let job = |host: &str, command: &str| Job {
        host: raised.hosts().plan().position(host).unwrap(),
        command: command.to_owned(),
    };
    let mut commands =
        raised.run(&[job("left", "echo $RIGHT_V4 $RIGHT_V6 $MIDDLE_V4"), job("middle", "ip -o link | wc -l")]).unwrap();
    let begun = Instant::now();
    let mut said = Vec::new();
    while !commands.is_over() {
        assert!(begun.elapsed() < PATIENCE, "it does not end: {said:?}");
        if let Some(Event::Line { text, .. }) = commands.next(Duration::from_secs(1)) {
            said.push(String::from_utf8(text).unwrap());
        }
    }
    said.sort();
    assert_eq!(said, ["10.64.0.2 fd53:7072:6174::2 10.64.1.2", "2"]);
}

/// A ready topology, changed a little and under a name of the test's; `None` where it cannot be made.
fn up(which: &str, change: impl FnOnce(&str) -> String) -> Option<(Raised, tempfile::TempDir)> {
    let missing = missing_privileges();
    let lacks = match (missing.is_empty(), Path::new("/dev/net/tun").exists()) {
        (true, true) => None,
        (false, _) => Some(missing.join(" and ")),
        (_, false) => Some("/dev/net/tun".to_owned()),
    };
    if let Some(lacks) = lacks {
        skip(&format!("labs of topologies: needs {lacks}"));
        return None;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut topology = Topology::from_toml(&change(ready(which).unwrap().text)).unwrap();
    static NUMBER: AtomicU32 = AtomicU32::new(0);
    topology.name = format!("t{}-{}-{which}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let raised = Raised::up(topology.lay_out().unwrap(), &StateDir::at(folder.path())).unwrap();
    Some((raised, folder))
}

fn addresses(raised: &Raised, host: &str) -> Vec<IpAddr> {
    let plan = raised.hosts().plan();
    plan.hosts[plan.position(host).unwrap()].interfaces[0].addresses.iter().map(|net| net.addr()).collect()
}

/// Sends something from one host to another, and says how long it took to connect.
fn reach(raised: &Raised, from: &str, to: &str, address: IpAddr) -> Duration {
    let inside = |host: &str| raised.hosts().namespace(raised.hosts().plan().position(host).unwrap()).as_fd();
    let listener = within(inside(to), || TcpListener::bind((address, 0))).unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    let connect = || {
        let begun = Instant::now();
        TcpStream::connect_timeout(&to, PATIENCE).map(|stream| (stream, begun.elapsed()))
    };
    let (mut sender, took) = within(inside(from), connect).unwrap().unwrap_or_else(|e| panic!("{from} to {to}: {e}"));
    let what = vec![7; 100_000];
    sender.write_all(&what).unwrap();
    drop(sender);
    let (mut receiver, _) = listener.accept().unwrap();
    receiver.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut got = Vec::new();
    receiver.read_to_end(&mut got).unwrap();
    assert_eq!(got, what);
    took
}

fn skip(why: &str) {
    eprintln!("skipped: {why}");
    if let Some(list) = std::env::var_os("SPRAT_SKIPS") {
        let list = std::fs::File::options().create(true).append(true).open(list);
        let _ = list.and_then(|mut list| writeln!(list, "{why}"));
    }
}
