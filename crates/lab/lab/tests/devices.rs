//! Ports that bypass the kernel: memory interfaces in every build, and AF_XDP and DPDK's packet
//! sockets with the feature `dpdk`.

use crate::support::{hosts, talk};
use hosts::{Host, ip};
use sprat_lab::config::PortSpec;
use sprat_lab::engine::{Engine, EnginePlan, Forwarding};
use sprat_lab::line::LineSettings;
use sprat_lab::port::{DpdkSpec, Port, PortError, open_dpdk, open_tap};
use sprat_testing::skip;
use std::net::UdpSocket;
use std::path::Path;
use std::time::{Duration, Instant};
use talk::{PATIENCE, delayed, echo, pings, stream};

const FAR: [&str; 2] = ["[::ffff:10.9.0.2]", "[fd09::2]"];

fn hosts_for(what: &str, count: u8) -> Option<Vec<Host>> {
    let hosts = (1..=count).map(Host::new).collect::<Result<Vec<_>, _>>();
    hosts.map_err(|why| skip(&format!("{what}: {why}"))).ok()
}

fn join(ports: [Port; 2], line: &LineSettings) -> Engine {
    let ports = ports.into_iter().map(|port| (port, line.clone())).collect();
    Engine::start(EnginePlan::new(ports, Forwarding::Cross)).expect("it starts")
}

/// Opens one end of a memory interface.
fn memory_interface(folder: &Path, number: u8, role: &str, options: &str) -> Port {
    let socket = folder.join("memif.sock");
    let text = format!(
        "dpdk:net_memif{number},role={role},socket={},socket-abstract=no{options}",
        socket.display()
    );
    text.parse::<PortSpec>().expect("a port").open().unwrap_or_else(|error| panic!("{error}"))
}

fn until(what: &str, mut step: impl FnMut() -> bool) {
    let start = Instant::now();
    while !step() {
        assert!(start.elapsed() < PATIENCE, "waited in vain until {what}");
        std::thread::yield_now();
    }
}

#[test]
fn two_boxes_are_joined_by_a_memory_interface() {
    let Some(hosts) = hosts_for("boxes joined by a memory interface", 2) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let delay = Duration::from_millis(2);
    let engines = [("server", &hosts[0]), ("client", &hosts[1])].map(|(role, host)| {
        let tap = match open_tap(&host.tap()) {
            Ok(tap) => tap,
            Err(why) => {
                skip(&format!("boxes joined by a memory interface: {why}"));
                return None;
            }
        };
        Some(join([tap, memory_interface(folder.path(), host.number(), role, "")], &delayed(delay)))
    });
    let [Some(one), Some(other)] = engines else { return };
    hosts.iter().for_each(Host::address);
    for to in FAR {
        let (echo, port) = echo(&hosts[1]);
        let trips = pings(&hosts[0], to, port);
        assert!(trips.iter().all(|trip| *trip >= delay * 4), "two boxes each way: {trips:?}");
        echo.get();
        stream(&hosts, to, 4 << 20);
    }
    for (engine, near) in [(one, "net_memif1"), (other, "net_memif2")] {
        let report = engine.stop().expect("it ran");
        let input = report.inputs.iter().find(|input| input.port == near).expect("there");
        assert_eq!((input.malformed, input.dropped_by_kernel), (0, 0), "{input:?}");
        assert_eq!(input.arrived.segments, input.packets, "single frames: {input:?}");
        let line = report.lines.iter().find(|line| line.to == near).expect("there");
        // Frames that were sent before the two ends had met were refused, and are counted. The
        // stream, split into frames, arrived.
        assert_eq!(line.counters.drops.memory, 0, "{line:?}");
        assert!(line.counters.left.segments > 100, "{line:?}");
    }
}

#[test]
fn absent_peers_and_long_frames_are_counted() {
    let Some(hosts) = hosts_for("refusals of a memory interface", 1) else { return };
    let folder = tempfile::tempdir().expect("a folder");
    let tap = match open_tap(&sprat_lab::port::TapSpec { mtu: Some(9000), ..hosts[0].tap() }) {
        Ok(tap) => tap,
        Err(why) => return skip(&format!("refusals of a memory interface: {why}")),
    };
    let engine = join(
        [tap, memory_interface(folder.path(), 1, "server", ",mtu=1500")],
        &LineSettings::default(),
    );
    hosts[0].address();
    hosts[0].run(|| ip("neigh add 10.9.0.2 lladdr 02:00:00:00:00:02 dev h1").expect("a neighbour"));
    let send = |len: usize| {
        hosts[0].run(move || {
            let socket = UdpSocket::bind("10.9.0.1:0").expect("a port");
            socket.send_to(&vec![7; len], "10.9.0.2:9").expect("it can send");
        });
    };
    let line = || {
        engine
            .report()
            .expect("it runs")
            .lines
            .into_iter()
            .find(|line| line.to == "net_memif1")
            .expect("there")
    };
    until("nobody is there to take a frame", || {
        send(100);
        line().counters.drops.refused > 0
    });
    let far = memory_interface(folder.path(), 2, "client", ",mtu=1500");
    until("a frame leaves", || {
        far.poll().expect("it is there");
        send(100);
        line()
            .counters
            .flows
            .iter()
            .any(|(flow, traffic)| flow.destination_port == 9 && traffic.left.segments > 0)
    });
    let refused = |line: &sprat_lab::engine::LineReport| {
        line.counters
            .flows
            .iter()
            .filter(|(flow, _)| flow.destination_port == 9)
            .map(|(_, flow)| flow.drops.refused)
            .sum()
    };
    let before: u64 = refused(&line());
    until("a frame that is too long is refused", || {
        far.poll().expect("it is there");
        send(4000);
        refused(&line()) > before
    });
    let report = engine.stop().expect("it ran");
    assert!(
        report.behind.iter().any(|why| why.contains("net_memif1: the port refused")),
        "{:?}",
        report.behind
    );
}

#[test]
fn devices_are_named_as_dpdk_names_them() {
    for text in [
        "dpdk:0000:01:00.1",
        "dpdk:net_memif0,role=server,socket=/tmp/a b.sock",
        "xdp:eth1@left,mtu=3000",
    ] {
        let spec: PortSpec = text.parse().unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(spec.to_string(), text);
    }
    let spec: PortSpec = "dpdk:net_memif0,mtu=1500,role=client".parse().expect("a port");
    assert_eq!(
        (spec.name(), &spec.to_string()[..]),
        ("net_memif0", "dpdk:net_memif0,role=client,mtu=1500")
    );
    for text in [
        "dpdk:",
        "dpdk:,role=server",
        "dpdk:a b",
        "dpdk:net_memif0,mtu=x",
        "xdp:",
        "xdp:eth1@",
        "xdp:eth1,mtu=70000",
    ] {
        let error = text.parse::<PortSpec>().expect_err(text);
        assert!(error.to_string().contains("dpdk:DEVICE"), "{error}");
    }
}

#[cfg(not(feature = "dpdk"))]
#[test]
fn without_dpdk_the_error_says_what_to_build() {
    let error = open_dpdk(&DpdkSpec { device: "net_null0".into(), ..DpdkSpec::default() })
        .expect_err("no such device");
    assert!(matches!(&error, PortError::Device { .. }), "{error}");
    assert!(error.to_string().contains("--features sprat-cli/dpdk"), "{error}");
}

#[cfg(feature = "dpdk")]
mod driven {
    use super::*;
    use sprat_lab::engine::EngineError;
    use sprat_lab::port::{XdpSpec, open_xdp};

    /// Makes hosts with virtual cables to a namespace. There a box takes over the other ends of the
    /// cables, `b1` and so on.
    fn cabled(count: u8) -> Option<(Vec<Host>, Host)> {
        let mut hosts = hosts_for("devices on cables", count + 1)?;
        let middle = hosts.pop().expect("one more");
        middle.run(|| {
            for interface in ["all", "default"] {
                let _ = std::fs::write(
                    format!("/proc/sys/net/ipv6/conf/{interface}/disable_ipv6"),
                    "1",
                ); // if it has IPv6
            }
        });
        for host in &hosts {
            let (number, far) = (host.number(), host.id().to_owned());
            let laid = middle.run(move || {
                ip(&format!("link add b{number} type veth peer name h{number} netns {far}"))
            });
            laid.map_err(|why| skip(&format!("devices on cables: {why}"))).ok()?;
            host.run(move || ip(&format!("link set h{number} up"))).expect("it is there");
        }
        Some((hosts, middle))
    }

    fn xdp(middle: &Host, name: &str) -> XdpSpec {
        XdpSpec { name: name.into(), netns: middle.packet().netns, ..XdpSpec::default() }
    }

    fn opened(port: Result<Port, PortError>) -> Port {
        port.unwrap_or_else(|error| panic!("{error}"))
    }

    #[test]
    fn streams_pass_between_two_interfaces_by_xdp() {
        let Some((hosts, middle)) = cabled(2) else { return };
        let delay = Duration::from_millis(2);
        let ports = ["b1", "b2"].map(|name| opened(open_xdp(&xdp(&middle, name))));
        let engine = join(ports, &delayed(delay));
        hosts.iter().for_each(Host::address);
        for to in FAR {
            let (echo, port) = echo(&hosts[1]);
            let trips = pings(&hosts[0], to, port);
            assert!(trips.iter().all(|trip| *trip >= delay * 2), "{to}: {trips:?}");
            echo.get();
            stream(&hosts, to, 4 << 20);
        }
        let report = engine.stop().expect("it ran");
        for input in &report.inputs {
            assert_eq!(
                (input.malformed, input.arrived.segments),
                (0, input.packets),
                "single frames: {input:?}"
            );
        }
        for line in &report.lines {
            assert_eq!(line.counters.drops.memory + line.counters.drops.refused, 0, "{line:?}");
        }
    }

    /// A TAP delivers super-packets with partial checksums, but the other port sends complete
    /// frames.
    #[test]
    fn a_tap_and_an_interface_make_a_box() {
        let Some((hosts, middle)) = cabled(2) else { return };
        hosts[0].run(|| ip("link del h1").expect("it was laid"));
        let tap = opened(open_tap(&hosts[0].tap()));
        let engine =
            join([tap, opened(open_xdp(&xdp(&middle, "b2")))], &delayed(Duration::from_millis(1)));
        hosts.iter().for_each(Host::address);
        for to in FAR {
            let (echo, port) = echo(&hosts[1]);
            assert_eq!(pings(&hosts[0], to, port).len(), 40);
            echo.get();
            stream(&hosts, to, 4 << 20);
        }
        let report = engine.stop().expect("it ran");
        let input = report.inputs.iter().find(|input| input.port == "h1").expect("there");
        assert!(input.arrived.segments > input.packets, "super-packets came: {input:?}");
        assert_eq!(report.lines.iter().map(|line| line.counters.drops.memory).sum::<u64>(), 0);
    }

    #[test]
    fn an_interface_by_packet_socket_of_dpdks() {
        let Some((hosts, middle)) = cabled(1) else { return };
        let Ok(far) = Host::new(2) else { return };
        let tap = opened(open_tap(&far.tap()));
        let device = middle.run(|| {
            let device = "net_af_packet7,iface=b1".to_owned();
            open_dpdk(&DpdkSpec { device, ..DpdkSpec::default() })
        });
        let delay = Duration::from_millis(1);
        let engine = join([opened(device), tap], &delayed(delay));
        let hosts = [hosts.into_iter().next().expect("one"), far];
        hosts.iter().for_each(Host::address);
        let (echo, port) = echo(&hosts[0]);
        let trips = pings(&hosts[1], "[::ffff:10.9.0.1]", port);
        assert!(trips.iter().all(|trip| *trip >= delay * 2), "{trips:?}");
        echo.get();
        let report = engine.stop().expect("it ran");
        assert!(report.inputs.iter().all(|input| input.malformed == 0), "{report:?}");
    }

    #[test]
    fn interfaces_in_use_are_refused() {
        let Some((hosts, middle)) = cabled(1) else { return };
        middle.run(|| ip("addr add 10.8.0.1/24 dev b1").expect("an address"));
        let error = open_xdp(&xdp(&middle, "b1")).expect_err("it has an address");
        assert!(matches!(&error, PortError::InUse { .. }), "{error}");
        let error = middle.run(|| {
            open_dpdk(&DpdkSpec { device: "net_af_packet8,iface=b1".into(), ..DpdkSpec::default() })
        });
        assert!(matches!(error, Err(PortError::InUse { .. })), "{error:?}");
        drop(opened(open_xdp(&XdpSpec { force: true, ..xdp(&middle, "b1") })));
        let left = middle.run(|| {
            std::process::Command::new("ip").args(["link", "show", "b1"]).output().expect("ip runs")
        });
        let left = String::from_utf8_lossy(&left.stdout).into_owned();
        assert!(!left.contains("xdp") && !left.contains("PROMISC"), "left as it was: {left}");
        let error = open_xdp(&xdp(&middle, "none")).expect_err("no such interface");
        assert!(error.to_string().starts_with("port none: "), "{error}");
        drop(hosts);
    }

    #[test]
    fn a_removed_interface_ends_the_box() {
        let Some((hosts, middle)) = cabled(2) else { return };
        let ports = ["b1", "b2"].map(|name| opened(open_xdp(&xdp(&middle, name))));
        let engine = join(ports, &LineSettings::default());
        hosts[1].run(|| ip("link del h2").expect("it was there"));
        until("the box ends", || engine.ended());
        match engine.stop() {
            Err(EngineError::Port(error)) => {
                assert_eq!(error.to_string(), "port b2: the interface was removed")
            }
            other => panic!("{other:?}"),
        }
    }
}
