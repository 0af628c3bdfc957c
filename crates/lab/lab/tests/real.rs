//! The box between real kernels: hosts in namespaces of the test, joined by TAPs.

use crate::support;
use crate::support::{hosts, talk};
use hosts::{Host, ip, wait_up};
use sprat_lab::Time;
use sprat_lab::chance::Probability;
use sprat_lab::engine::{Engine, EnginePlan, Forwarding, Report};
use sprat_lab::frame::{Received, VNET_BYTES};
use sprat_lab::line::{Discipline, LineSettings, Loss, Rate, Reorder};
use sprat_lab::memory::{Memory, ReceiveBuffer};
use sprat_lab::port::{PacketSpec, Port, PortError, Sent, open_packet, open_tap};
use sprat_lab::switch::AGEING;
use sprat_testing::skip;
use std::net::UdpSocket;
use std::time::{Duration, Instant};
use support::{Sample, packet};
use talk::{PATIENCE, delayed, echo, pings};

/// Hosts joined by a box.
struct Net {
    engine: Engine,
    hosts: Vec<Host>,
    /// The namespace that contains the box's ends of virtual cables, if there are any. It must be
    /// dropped after the box, which uses it.
    _middle: Option<Host>,
}

/// Makes a box with these lines, and a host at each port. Returns `None`, with a message, if the
/// machine does not allow this.
fn net(lines: &[LineSettings], forwarding: Forwarding) -> Option<Net> {
    let made = (1..).zip(lines).map(|(number, _)| Host::new(number)).collect::<Result<Vec<_>, _>>();
    let hosts = match made {
        Ok(hosts) => hosts,
        Err(why) => {
            skip(&format!("the network box between hosts: {why}"));
            return None;
        }
    };
    let mut ports = Vec::new();
    for (host, settings) in hosts.iter().zip(lines) {
        match open_tap(&host.tap()) {
            Ok(port) => ports.push((port, settings.clone())),
            Err(why) => {
                skip(&format!("the network box between hosts: {why}"));
                return None;
            }
        }
    }
    let engine = Engine::start(EnginePlan::new(ports, forwarding)).expect("it starts");
    hosts.iter().for_each(Host::address);
    Some(Net { engine, hosts, _middle: None })
}

#[test]
fn no_round_trip_is_shorter_than_the_delay() {
    for each_way in [Duration::ZERO, Duration::from_micros(500), Duration::from_millis(25)] {
        let Some(net) = net(&[delayed(each_way), delayed(each_way)], Forwarding::Cross) else {
            return;
        };
        for to in ["[::ffff:10.9.0.2]", "[fd09::2]"] {
            let (echo, port) = echo(&net.hosts[1]);
            let trips = pings(&net.hosts[0], to, port);
            let least = trips.iter().min().expect("some");
            assert!(*least >= each_way * 2, "{least:?} with {each_way:?} each way");
            echo.get();
        }
        let report = net.engine.stop().expect("it ran");
        assert!(report.lines.iter().all(|line| line.counters.drops.total() == 0), "{report:?}");
    }
}

/// Sends bytes from the first host to the second, and returns the box's report.
fn stream(net: Net, to: &str, bytes: usize) -> Report {
    talk::stream(&net.hosts, to, bytes);
    net.engine.stop().expect("it ran")
}

#[test]
fn a_stream_survives_every_impairment() {
    let share = |share| Probability::new(share).expect("a share");
    let bad = LineSettings {
        delay: Duration::from_millis(1),
        rate: Rate::new(1_000_000_000),
        loss: Loss::Random(share(0.005)),
        reorder: Some(Reorder { share: share(0.005), by: Duration::from_micros(500) }),
        duplicate: share(0.005),
        corrupt: share(0.005),
        jitter: Duration::from_micros(100),
        ..LineSettings::default()
    };
    for (to, queue) in
        [("[::ffff:10.9.0.2]", Discipline::DropTail), ("[fd09::2]", Discipline::Harmonize)]
    {
        let bad = LineSettings { queue, ..bad.clone() };
        let Some(net) = net(&[bad.clone(), bad], Forwarding::Cross) else { return };
        let report = stream(net, to, 4 << 20);
        let line = &report.lines.iter().find(|line| line.to == "h2").expect("there").counters;
        assert!(
            line.drops.loss > 0 && line.duplicated > 0 && line.corrupted > 0 && line.reordered > 0,
            "{line:?}"
        );
        assert!(line.left.segments > 2_500, "the bytes are there in segments: {line:?}");
    }
}

#[test]
fn super_packets_pass_whole() {
    let Some(net) = net(
        &[delayed(Duration::from_millis(5)), delayed(Duration::from_millis(5))],
        Forwarding::Cross,
    ) else {
        return;
    };
    let report = stream(net, "[fd09::2]", 8 << 20);
    let input = report.inputs.iter().find(|input| input.port == "h1").expect("there");
    // The kernel's pacing determines how many packets are super-packets. The test needs only some.
    let together = input.arrived.segments - input.packets;
    assert!(together > 1_000, "the kernel hands over many segments at once: {input:?}");
    let line = report.lines.iter().find(|line| line.to == "h2").expect("there");
    let on_their_way = line.counters.on_line; // the last acknowledgements, when it was stopped
    assert_eq!(line.counters.left.segments + on_their_way, line.counters.arrived.segments);
    assert!(line.counters.flows.iter().any(|(flow, _)| flow.destination_port == 7001), "{line:?}");
}

#[test]
fn a_full_buffer_costs_segments_and_no_bytes() {
    let narrow =
        LineSettings { rate: Rate::new(50_000_000), buffer: 30_000, ..LineSettings::default() };
    let Some(net) = net(&[LineSettings::default(), narrow], Forwarding::Cross) else { return };
    let report = stream(net, "[::ffff:10.9.0.2]", 1 << 20);
    let line = &report.lines.iter().find(|line| line.to == "h2").expect("there").counters;
    assert!(line.drops.buffer > 0 && line.queue_max <= 30_000, "{line:?}");
}

/// If the network behind the box has a smaller MTU, the box replies as a router would, and the
/// sender then sends shorter packets.
#[test]
fn a_too_big_packet_is_dropped_and_its_sender_notified() {
    const MTU: usize = 1_300;
    let Some(net) = net(&[LineSettings::default(), LineSettings::default()], Forwarding::Cross)
    else {
        return;
    };
    net.hosts[1].run(|| ip(&format!("link set h2 mtu {MTU}"))).expect("an MTU");
    // The box reads the MTU ten times a second.
    let changed = Instant::now();
    while changed.elapsed() < Duration::from_millis(200) {
        std::thread::yield_now();
    }
    for to in ["[::ffff:10.9.0.2]", "[fd09::2]"] {
        let (echo, port) = echo(&net.hosts[1]);
        let to = format!("{to}:{port}");
        net.hosts[0].run(move || {
            let socket = UdpSocket::bind("[::]:0").expect("a port");
            socket.set_read_timeout(Some(Duration::from_millis(200))).expect("a time");
            socket.connect(to).expect("an address");
            let until = Instant::now() + PATIENCE;
            let mut buffer = [0; 2_000];
            // The kernel fragments packets as soon as it knows the MTU. Before that, it reports
            // once that a packet was too long.
            loop {
                let _ = socket.send(&[7; 1_400]);
                if let Ok(1_400) = socket.recv(&mut buffer) {
                    break;
                }
                assert!(Instant::now() < until, "the sender never learns the MTU");
            }
            socket.send(&[]).expect("it can send");
        });
        echo.get();
    }
    let report = net.engine.stop().expect("it ran");
    let line = report.lines.iter().find(|line| line.to == "h2").expect("there");
    assert!(line.counters.drops.too_big >= 2, "one of each family: {line:?}");
    assert_eq!(line.counters.drops.refused, 0, "{line:?}");
}

#[test]
fn three_hosts_on_a_switch() {
    let Some(net) = net(&vec![LineSettings::default(); 3], Forwarding::Switch(AGEING)) else {
        return;
    };
    let pairs = [(0, 1, "[::ffff:10.9.0.2]"), (1, 2, "[fd09::3]"), (2, 0, "[::ffff:10.9.0.1]")];
    for (from, to, address) in pairs {
        let (echo, port) = echo(&net.hosts[to]);
        assert_eq!(pings(&net.hosts[from], address, port).len(), 40);
        echo.get();
    }
    let report = net.engine.stop().expect("it ran");
    let switch = report.switch.expect("it is one");
    assert_eq!(switch.stations, 3, "{switch:?}");
    assert!(switch.forwarded >= 240, "{switch:?}");
    // The 80 datagrams of each pair went to their station, and to no other host.
    for line in &report.lines {
        assert!(line.counters.left.segments < 240, "{line:?}");
    }
}

/// Makes two hosts on virtual cables, whose other ends the box takes over. Returns `None`, with a
/// message, if the machine does not allow this.
fn cabled(lines: [LineSettings; 2]) -> Option<Net> {
    let skip_with = |why: String| skip(&format!("the network box between cables: {why}"));
    let hosts = [1, 2, 3]
        .map(Host::new)
        .into_iter()
        .collect::<Result<Vec<_>, _>>()
        .map_err(skip_with)
        .ok()?;
    let mut hosts = hosts;
    let middle = hosts.pop().expect("three");
    let mut ports = Vec::new();
    for (host, settings) in hosts.iter().zip(lines) {
        let (number, far) = (host.number(), host.id().to_owned());
        let laid = middle.run(move || {
            ip(&format!("link add b{number} type veth peer name h{number} netns {far}"))
        });
        laid.map_err(skip_with).ok()?;
        host.run(move || ip(&format!("link set h{number} up"))).expect("it is there");
        let spec = PacketSpec { name: format!("b{number}"), ..middle.packet() };
        ports.push((
            open_packet(&spec).map_err(|error| skip_with(error.to_string())).ok()?,
            settings,
        ));
        host.address();
    }
    let plan = EnginePlan::new(ports, Forwarding::Cross);
    Some(Net { engine: Engine::start(plan).expect("it starts"), hosts, _middle: Some(middle) })
}

#[test]
fn cables_carry_streams() {
    let delay = Duration::from_millis(2);
    let Some(net) = cabled([delayed(delay), delayed(delay)]) else { return };
    for to in ["[::ffff:10.9.0.2]", "[fd09::2]"] {
        let (echo, port) = echo(&net.hosts[1]);
        let trips = pings(&net.hosts[0], to, port);
        assert!(trips.iter().all(|trip| *trip >= delay * 2), "{to}: {trips:?}");
        echo.get();
    }
    let report = stream(net, "[::ffff:10.9.0.2]", 4 << 20);
    let input = report.inputs.iter().find(|input| input.port == "b1").expect("there");
    assert_eq!(input.malformed, 0);
    assert!(input.arrived.segments > 2 * input.packets, "super-packets pass whole: {input:?}");
}

#[test]
fn an_interface_in_use_is_refused() {
    let host = match Host::new(1) {
        Ok(host) => host,
        Err(why) => return skip(&format!("interfaces that are used: {why}")),
    };
    host.run(|| {
        ip("link add h1 type veth peer name other").expect("a cable");
        ip("link set other up").expect("it is there");
        ip("link set h1 up").expect("it is there");
    });
    host.address();
    let spec = PacketSpec { name: "h1".into(), ..host.packet() };
    let error = open_packet(&spec).expect_err("it has an address");
    assert!(matches!(&error, PortError::InUse { .. }), "{error}");
    assert!(error.to_string().contains("10.9.0.1"), "{error}");
    open_packet(&PacketSpec { force: true, ..spec.clone() }).expect("it is meant");
    open_packet(&PacketSpec { name: "other".into(), ..spec.clone() })
        .expect("the interface is not in use");
    let error =
        open_packet(&PacketSpec { name: "none".into(), ..spec }).expect_err("no such interface");
    assert!(error.to_string().starts_with("port none: finding the interface"), "{error}");
}

/// Returns both ends of a cable, as ports, or `None`, with a message, if the machine does not allow
/// this. On such a port, the kernel takes a VLAN tag out of a frame and delivers it separately. The
/// port must put the tag back and move the checksum's offset.
fn cable() -> Option<(Host, [Port; 2])> {
    let host = match Host::new(1) {
        Ok(host) => host,
        Err(why) => {
            skip(&format!("the ends of a cable: {why}"));
            return None;
        }
    };
    host.run(|| {
        for interface in ["all", "default"] {
            // Fails if the kernel has no IPv6.
            let _ =
                std::fs::write(format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"), "1");
        }
        ip("link add x0 type veth peer name x1").expect("a cable");
    });
    let ends = ["x0", "x1"].map(|name| {
        open_packet(&PacketSpec { name: name.into(), ..host.packet() })
            .expect("the interface is not in use")
    });
    host.run(|| wait_up(["x0", "x1"]));
    Some((host, ends))
}

/// A packet socket's time stamp is the time at which the kernel received a frame, however late the
/// frame is read.
#[test]
fn the_kernels_time_stamp_is_the_arrival() {
    const WAITED: Duration = Duration::from_millis(50);
    let Some((_host, [one, other])) = cable() else { return };
    let (mut buffer, mut memory) = (ReceiveBuffer::new(), Memory::of_cells(200));
    let sent = packet(&Sample::default().bytes(), &mut memory);
    assert_eq!(one.send(&sent), Sent::Accepted);
    sent.free(&mut memory);
    let begun = Instant::now();
    while begun.elapsed() < WAITED {
        std::thread::yield_now();
    }
    let read = Time(10_000_000_000);
    let until = Instant::now() + PATIENCE;
    let packet = loop {
        match other.receive(&mut buffer, &mut memory, || read).expect("the port is there") {
            Some(Received::Packet(packet)) => break packet,
            Some(strange) => panic!("{strange:?}"),
            None => assert!(Instant::now() < until, "nothing came"),
        }
    };
    let ago = read.since(packet.arrived);
    assert!((WAITED..PATIENCE).contains(&ago), "it came {ago:?} ago");
    packet.free(&mut memory);
}

#[test]
fn vlan_tags_are_restored() {
    let Some((_host, [one, other])) = cable() else { return };
    let (mut buffer, mut memory) = (ReceiveBuffer::new(), Memory::of_cells(200));
    for tags in 0..=2 {
        for (v6, mss, payload) in [(false, 0, 100), (true, 0, 1_000), (false, 1_400, 20_000)] {
            let sent = packet(
                &Sample { tags, v6, mss, payload, ..Sample::default() }.bytes(),
                &mut memory,
            );
            assert_eq!(one.send(&sent), Sent::Accepted);
            let until = Instant::now() + PATIENCE;
            let packet = loop {
                match other
                    .receive(&mut buffer, &mut memory, || Time::ZERO)
                    .expect("the port is there")
                {
                    Some(Received::Packet(packet)) => break packet,
                    Some(strange) => panic!("{strange:?}"),
                    None => assert!(Instant::now() < until, "nothing came"),
                }
            };
            assert_eq!(packet.to_vec()[VNET_BYTES..], sent.to_vec()[VNET_BYTES..], "{tags} tags");
            assert_eq!(
                (packet.frame(), packet.vnet().csum_start),
                (sent.frame(), sent.vnet().csum_start)
            );
            packet.free(&mut memory);
            sent.free(&mut memory);
        }
    }
}
