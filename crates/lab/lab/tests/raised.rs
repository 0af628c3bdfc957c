//! Real labs from topologies: hosts reach each other through boxes, and everything is removed
//! afterwards.

use sprat_lab::filter::Compiler;
use sprat_lab::hosts::{Event, Job, StateDir, missing_privileges, within};
use sprat_lab::topology::{RunningLab, Topology, ready};
use sprat_testing::{PATIENCE, skip};
use std::io::{Read as _, Write as _};
use std::net::{IpAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd as _, BorrowedFd};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

#[test]
fn two_sites_are_as_far_apart_as_they_say() {
    let Some((running, _folder)) = up("two-sites", |text| text.replace("100ms", "25ms")) else {
        return;
    };
    for address in addresses(&running, "right") {
        let took = reach(&running, "left", "right", address);
        assert!(took >= Duration::from_millis(50), "never sooner than light: {took:?}");
    }
    let ended = running.down().unwrap();
    assert_eq!(ended.left, []);
    let report = ended.boxes[0].report.as_ref().unwrap();
    let names: Vec<_> = report.inputs.iter().map(|input| &input.port[..]).collect();
    assert_eq!(names.len(), 2);
    assert!(
        names.contains(&"left") && names.contains(&"right"),
        "ports have the names of the topology: {names:?}"
    );
    assert!(
        report.inputs.iter().all(|input| input.packets >= 6),
        "the packets went through the box"
    );
}

/// The bundled topology, except that the rate, the buffer and the delay of the bottleneck are a
/// tenth of the original ones.
#[test]
fn four_streams_merge_into_one_bottleneck() {
    const BYTES: usize = 2_000_000;
    const RATE: f64 = 200e6;
    let scaled = |text: &str| {
        text.replace("2Gb/s", "200Mb/s").replace("64MB", "6400kB").replace("100ms", "10ms")
    };
    let Some((running, _folder)) = up("merge", scaled) else { return };
    let address = addresses(&running, "receiver")[0];
    let listener = within(namespace(&running, "receiver"), || TcpListener::bind((address, 0)))
        .unwrap()
        .unwrap();
    let to = listener.local_addr().unwrap();
    let connect = |sender: &str| {
        within(namespace(&running, sender), || TcpStream::connect_timeout(&to, PATIENCE))
    };
    let senders = ["sender1", "sender2", "sender3", "sender4"]
        .map(|sender| connect(sender).unwrap().unwrap());
    let begun = Instant::now();
    std::thread::scope(|scope| {
        for mut sender in senders {
            scope.spawn(move || sender.write_all(&vec![7; BYTES]).unwrap());
            let (mut receiver, _) = listener.accept().unwrap();
            scope.spawn(move || {
                receiver.set_read_timeout(Some(PATIENCE)).unwrap();
                let mut got = Vec::new();
                receiver.read_to_end(&mut got).unwrap();
                assert_eq!(got.len(), BYTES);
            });
        }
    });
    let least = Duration::from_secs_f64(4.0 * 8.0 * 2e6 / RATE);
    assert!(
        begun.elapsed() >= least,
        "all of it through the bottleneck: {:?}, {least:?} at the least",
        begun.elapsed()
    );
    let ended = running.down().unwrap().boxes.remove(0);
    let line = ended.report.unwrap().lines.into_iter().find(|line| line.to == "receiver").unwrap();
    let flows = line.counters.flows.iter().filter(|(flow, _)| flow.destination_port == to.port());
    let left: Vec<_> = flows.map(|(_, flow)| flow.left.bytes).collect();
    assert!(
        left.len() == 4 && left.iter().all(|bytes| *bytes > 2_000_000),
        "each stream, headers and all: {left:?}"
    );
    assert!(line.counters.queue_max > 60_000, "they met there: {}", line.counters.queue_max);
}

#[test]
fn a_chassis_reaches_out_and_across() {
    let Some((running, _folder)) = up("chassis", str::to_owned) else { return };
    for (from, to) in [("node01", "node15"), ("node07", "outside"), ("outside", "node02")] {
        for address in addresses(&running, to) {
            reach(&running, from, to, address);
        }
    }
    let boxes = running.down().unwrap().boxes;
    assert_eq!(boxes.iter().map(|ended| &ended.name[..]).collect::<Vec<_>>(), ["inside", "uplink"]);
    assert!(boxes.iter().all(|ended| ended.report.is_ok()));
}

#[test]
fn commands_find_each_other_by_name() {
    let Some((running, _folder)) = up("two-sites", |text| {
        text.replace("100ms", "0")
            + "[host.left.at.wan]\n[host.middle]\n[[cable]]\nends = [\"middle\", \"left\"]\n"
    }) else {
        return;
    };
    let job = |host: &str, command: &str| Job {
        host: running.hosts().plan().position(host).unwrap(),
        command: command.to_owned(),
    };
    let mut commands = running
        .run(&[
            job("left", "echo $RIGHT_V4 $RIGHT_V6 $MIDDLE_V4"),
            job("middle", "tail -n +3 /proc/net/dev | wc -l"),
        ])
        .unwrap();
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

#[test]
fn packets_are_filtered_and_captured() {
    if let Err(error) = Compiler::load() {
        return skip(&format!("filters in labs: {error}"));
    }
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("middle.pcapng");
    let words = format!(
        r#"
        capture = {{ file = {file:?} }}
        filters = [
            {{ match = "tcp or udp", action = "count" }},
            {{ match = "tcp", from = "one", action = "rewrite:dscp=46" }},
            {{ match = "udp port 7", from = "one", action = "drop" }},
            {{ match = "udp port 8", action = "mirror:three" }},
        ]"#
    );
    let Some((running, _folder)) =
        up("switch", |text| text.replace("ports = ", &format!("{words}\nports = ")))
    else {
        return;
    };
    let address = addresses(&running, "two")[0];
    reach(&running, "one", "two", address);
    let bind = |host: &str, port: u16| {
        let address = addresses(&running, host)[0];
        let socket = within(namespace(&running, host), || UdpSocket::bind((address, port)))
            .unwrap()
            .unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        socket
    };
    let (one, seven, eight) = (bind("one", 9), bind("two", 7), bind("two", 8));
    one.send_to(b"dropped", (address, 7)).unwrap();
    one.send_to(b"mirrored", (address, 8)).unwrap();
    let mut buffer = [0; 16];
    let (len, _) = eight.recv_from(&mut buffer).unwrap();
    assert_eq!(&buffer[..len], b"mirrored");
    seven.set_nonblocking(true).unwrap();
    assert!(seven.recv_from(&mut buffer).is_err(), "the datagram that was sent first was dropped");

    let ended = running.down().unwrap().boxes.remove(0);
    let report = ended.report.unwrap();
    let seen: Vec<_> = report.filters.iter().map(|filter| filter.packets).collect();
    assert_eq!(seen[2..], [1, 1]);
    assert!(seen[0] > seen[1] && seen[1] > 70, "100 KB are as many segments: {seen:?}");
    assert!(report.filters.iter().all(|filter| filter.lacking == 0));
    // The capture contains the packets as they arrived, before the filter.
    let capture = ended.capture.unwrap();
    assert!(capture.error.is_none());
    let packets: Vec<_> = report.inputs.iter().map(|input| input.packets).collect();
    assert_eq!(capture.interfaces.iter().map(|totals| totals.seen).collect::<Vec<_>>(), packets);
    assert!(capture.interfaces.iter().all(|totals| totals.dropped == 0));
    let bytes = std::fs::read(&file).unwrap();
    assert_eq!(bytes.windows(7).filter(|part| part == b"dropped").count(), 1);
    assert_eq!(bytes.windows(8).filter(|part| part == b"mirrored").count(), 1);
    let sent_to_three = report.lines.iter().find(|line| line.to == "three").unwrap();
    assert!(sent_to_three.counters.left.segments > 0);
}

/// Starts a bundled topology with changes, under a name of the test's own. Returns `None` if this
/// machine does not allow labs to be made.
fn up(which: &str, change: impl FnOnce(&str) -> String) -> Option<(RunningLab, tempfile::TempDir)> {
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
    topology.name =
        format!("t{}-{}-{which}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
    let running =
        RunningLab::up(topology.lay_out().unwrap(), &StateDir::at(folder.path())).unwrap();
    Some((running, folder))
}

fn addresses(running: &RunningLab, host: &str) -> Vec<IpAddr> {
    let plan = running.hosts().plan();
    plan.hosts[plan.position(host).unwrap()].interfaces[0]
        .addresses
        .iter()
        .map(|net| net.addr())
        .collect()
}

fn namespace<'a>(running: &'a RunningLab, host: &str) -> BorrowedFd<'a> {
    running.hosts().namespace(running.hosts().plan().position(host).unwrap()).as_fd()
}

/// Sends bytes from one host to another, and returns how long it took to connect.
fn reach(running: &RunningLab, from: &str, to: &str, address: IpAddr) -> Duration {
    let listener =
        within(namespace(running, to), || TcpListener::bind((address, 0))).unwrap().unwrap();
    let to = listener.local_addr().unwrap();
    let connect = || {
        let begun = Instant::now();
        TcpStream::connect_timeout(&to, PATIENCE).map(|stream| (stream, begun.elapsed()))
    };
    let (mut sender, took) = within(namespace(running, from), connect)
        .unwrap()
        .unwrap_or_else(|e| panic!("{from} to {to}: {e}"));
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
