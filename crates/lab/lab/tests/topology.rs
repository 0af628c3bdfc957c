//! Topologies: they are laid out as written, and errors name their place in the text.

use proptest::prelude::*;
use sprat_lab::config::PortSpec;
use sprat_lab::engine::Forwarding;
use sprat_lab::filter::{Action, RulePlan};
use sprat_lab::line::Discipline;
use sprat_lab::topology::{LabPlan, READY, Topology, ready};
use std::time::Duration;

const PAIR: &str = r#"
name = "pair"
[host.left]
[host.right]
[box.wan]
ports = ["left", "right"]
"#;

#[test]
fn bundled_topologies_are_laid_out_as_described() {
    let lab = |name: &str| lay_out(ready(name).unwrap().text).unwrap();
    for ready in READY {
        let topology = Topology::from_toml(ready.text).unwrap();
        assert_eq!(topology.name, ready.name);
        assert!(!topology.about.is_empty());
    }
    let sites = lab("two-sites");
    let delays: Vec<_> = sites.boxes[0].ports.iter().map(|port| port.line.delay).collect();
    assert_eq!(delays.iter().sum::<Duration>(), Duration::from_millis(200), "both ways");

    let merge = lab("merge");
    assert_eq!(merge.plan.hosts.len(), 5);
    let limited: Vec<_> =
        merge.boxes[0].ports.iter().filter(|port| port.line.rate.is_some()).collect();
    assert_eq!((limited.len(), &limited[0].name[..]), (1, "receiver"));
    assert_eq!(limited[0].line.rate.unwrap().bits_per_second(), 2_000_000_000);
    assert_eq!(
        limited[0].line.delay,
        Duration::from_millis(100),
        "what every line does holds for it too"
    );
    assert_eq!(limited[0].line.queue, Discipline::DropTail);

    let switch = lab("switch");
    assert_eq!(switch.boxes[0].ports.len(), 5);
    assert!(matches!(switch.boxes[0].forwarding, Forwarding::Switch(_)));

    let chassis = lab("chassis");
    assert_eq!(
        chassis.boxes.iter().map(|b| (&b.name[..], b.ports.len())).collect::<Vec<_>>(),
        [("inside", 16), ("uplink", 2)]
    );
    // All hosts are in one network, whichever box they are at. The cable between the boxes has no
    // addresses.
    let addresses = chassis
        .plan
        .hosts
        .iter()
        .flat_map(|host| &host.interfaces)
        .map(|interface| &interface.addresses);
    let addresses: Vec<_> = addresses.filter(|addresses| !addresses.is_empty()).collect();
    assert_eq!(addresses.len(), 16);
    assert!(
        addresses
            .iter()
            .all(|both| both.len() == 2 && both[0].network() == addresses[0][0].network())
    );
    let trunk = &chassis.boxes[0].ports[15];
    assert_eq!(
        (&trunk.name[..], trunk.spec.to_string()),
        ("uplink", "packet:trunk0a@chassis-boxes".to_owned())
    );
    assert_eq!(chassis.boxes[1].ports[0].spec.to_string(), "packet:trunk0b@chassis-boxes");
}

#[test]
fn addresses_are_chosen_as_documented() {
    let lab = lay_out(
        r#"
        name = "addresses"
        v4 = "192.168.0.0/16"
        [host.a]
        [host.b]
        at.one = { addresses = ["192.168.0.1/24", "2001:db8::1/64"], interface = "wan0", mtu = 9000 }
        [host.c]
        mtu = 4000
        [box.one]
        ports = ["c", "b", "a"]
        [box.two]
        ports = ["a", "c"]
        [[cable]]
        ends = ["c", "b"]
        "#,
    )
    .unwrap();
    let interfaces_of = |host: usize| {
        let interfaces = lab.plan.hosts[host].interfaces.iter();
        let words = |net: &ipnet::IpNet| net.to_string();
        interfaces
            .map(|i| {
                format!(
                    "{} {} {}",
                    i.name,
                    i.mtu,
                    i.addresses.iter().map(words).collect::<Vec<_>>().join(" ")
                )
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(
        interfaces_of(0),
        [
            "eth0 1500 192.168.0.2/24 fd53:7072:6174::2/64", // skips the one that b has
            "eth1 1500 192.168.1.1/24 fd53:7072:6174:1::1/64",
        ]
    );
    assert_eq!(
        interfaces_of(1),
        [
            "wan0 9000 192.168.0.1/24 2001:db8::1/64",
            "eth1 1500 192.168.2.1/24 fd53:7072:6174:2::1/64",
        ]
    );
    assert_eq!(
        interfaces_of(2),
        [
            "eth0 4000 192.168.0.3/24 fd53:7072:6174::3/64",
            "eth1 4000 192.168.1.2/24 fd53:7072:6174:1::2/64",
            "eth2 4000 192.168.2.2/24 fd53:7072:6174:2::2/64",
        ]
    );
    let ends = &lab.plan.cables[0].ends;
    assert_eq!(
        (ends[0].host, &ends[0].interface[..], ends[1].host, &ends[1].interface[..]),
        (2, "eth2", 1, "eth1")
    );
    let ports: Vec<_> = lab.boxes[0].ports.iter().map(|port| port.spec.to_string()).collect();
    assert_eq!(ports, ["tap:eth0@addresses-c", "tap:wan0@addresses-b", "tap:eth0@addresses-a"]);
    assert!(matches!(lab.boxes[1].ports[0].spec, PortSpec::Tap(_)));
}

#[test]
fn hosts_and_boxes_get_their_settings() {
    let lab = lay_out(
        r#"
        name = "told"
        [host.left]
        run = "ip address"
        forward = true
        sysctls = { "ipv4.tcp_sack" = 0 }
        routes = [{ to = "0.0.0.0/0", via = "10.64.0.2" }]
        [host.right]
        [box.wan]
        ports = ["left", "right", "packet:eth7", "xdp:eth8", "dpdk:net_memif0,role=client"]
        memory = "100MB"
        to.left = { queue = "harmonize", rate = "1Gb/s" }
        [[box.wan.filters]]
        match = "tcp port 80"
        from = "left"
        action = "mirror:packet:eth7"
        [box.wan.capture]
        file = "wan.pcapng"
        snap = 128
        file-size = "10MB"
        files = 3
        "#,
    )
    .unwrap();
    let left = &lab.plan.hosts[0];
    let sysctls: Vec<_> = left.sysctls.iter().map(|(key, value)| (&key[..], &value[..])).collect();
    assert_eq!(
        sysctls,
        [("ipv4.ip_forward", "1"), ("ipv4.tcp_sack", "0"), ("ipv6.conf.all.forwarding", "1")]
    );
    assert_eq!((left.run.as_deref(), left.routes.len()), (Some("ip address"), 1));
    let wan = &lab.boxes[0];
    assert_eq!(wan.ports[3].spec.to_string(), "xdp:eth8");
    assert_eq!(wan.ports[4].spec.to_string(), "dpdk:net_memif0,role=client");
    assert_eq!(
        (wan.memory, wan.ports[2].spec.to_string()),
        (Some(100_000_000), "packet:eth7".to_owned())
    );
    assert!(matches!(
        &wan.filters[..],
        [RulePlan { expression, from: Some(0), action: Action::Mirror(2) }]
            if expression == "tcp port 80"
    ));
    let capture = wan.capture.as_ref().unwrap();
    assert_eq!((capture.snap, capture.ring), (128, Some((10_000_000, 3))));
}

#[test]
fn pairs_of_a_box_are_neighbours_and_rules_and_captures_follow() {
    let text = |pairs: &str| {
        let hosts = ["a", "b", "c", "d"].map(|host| format!("[host.{host}]\n")).concat();
        format!(
            "name = \"pairs\"\n{hosts}[box.wan]\nports = [\"a\", \"b\", \"c\", \"d\"]\n{pairs}to.c \
             = {{ delay = \"7ms\" }}\nfilters = [{{ match = \"ip\", from = \"d\", action = \
             \"count\" }}]\ncapture = {{ file = \"wan.pcapng\" }}\n"
        )
    };
    let lab = lay_out(&text("pairs = [[\"c\", \"a\"], [\"b\", \"d\"]]\n")).unwrap();
    let [wan] = &lab.boxes[..] else { panic!("{lab:?}") };
    assert_eq!(wan.forwarding, Forwarding::Cross);
    let ports: Vec<_> =
        wan.ports.iter().map(|port| (&port.name[..], port.line.delay.as_millis())).collect();
    assert_eq!(ports, [("c", 7), ("a", 0), ("b", 0), ("d", 0)]);
    let interfaces = wan.ports.iter().map(|port| port.spec.to_string());
    assert!(
        interfaces
            .zip(["c", "a", "b", "d"])
            .all(|(spec, host)| spec == format!("tap:eth0@pairs-{host}"))
    );
    assert_eq!(wan.filters[0].from, Some(3));
    assert_eq!(wan.capture.as_ref().unwrap().interfaces, ["c", "a", "b", "d"]);
    for (pairs, expected) in [
        ("pairs = [[\"a\", \"b\"]]\n", "box.wan: pairs: c is in no pair"),
        ("pairs = [[\"a\", \"e\"]]\n", "box.wan: pairs: no port \"e\"; the ports are a, b, c, d"),
        ("forward = \"cross\"\n", "box.wan: 4 ports are joined in pairs: say which"),
    ] {
        let error = lay_out(&text(pairs)).unwrap_err();
        assert!(error.starts_with(expected), "{error}");
    }
}

#[test]
fn errors_name_the_place_and_the_fix() {
    let with = |more: &str| lay_out(&format!("{PAIR}\n{more}")).unwrap_err();
    for (more, place, mend) in [
        ("[host.alone]", "host.alone: ", "name it among a box's ports"),
        (
            "[box.other]\nports = [\"left\", \"rihgt\"]",
            "box.other.ports[1]: no host or box \"rihgt\"",
            "add [host.rihgt]",
        ),
        (
            "[box.other]\nports = [\"left\", \"left\"]",
            "box.other.ports[1]: left is a port of it already",
            "used once",
        ),
        (
            "[box.other]\nports = [\"left\", \"wan\"]",
            "box.other.ports[1]: box wan has no port other",
            "add \"other\" to box.wan",
        ),
        ("[box.other]\nports = [\"left\"]", "box.other: ports given: 1", "a box has two"),
        ("[box.left]\nports = [\"right\"]", "box.left: a host has the same name", "rename"),
        (
            "[box.wan.to.middle]\ndelay = \"1ms\"",
            "box.wan.to.middle: no port of that name",
            "they are left, right",
        ),
        ("[box.wan.to.left]\nrate = \"0b/s\"", "box.wan.to.left: rate \"0b/s\"", "such as 2Gb/s"),
        ("[box.wan.to.left]\ndelay = \"1h\"", "box.wan.to.left: delay \"1h\"", "such as 100ms"),
        (
            "[host.right.at.nowhere]",
            "host.right.at.nowhere: it is not connected",
            "name it among its ports",
        ),
        ("[host.boxes]", "host.boxes: the name is taken", "rename"),
        ("[host.UP]\n[[cable]]\nends = [\"UP\", \"left\"]", "host.UP: ", "use 1 to 32 of a-z"),
        (
            "[[cable]]\nends = [\"left\", \"left\"]",
            "cable[0].ends: both are left",
            "name two hosts",
        ),
        (
            "[[cable]]\nends = [\"left\", \"wan\"]",
            "cable[0].ends: no host \"wan\"",
            "add [host.wan]",
        ),
        (
            "[[cable]]\nends = [\"left\", \"right\"]\n[[cable]]\nends = [\"right\", \"left\"]",
            "cable[1].ends: ",
            "a cable already",
        ),
        (
            "[[box.wan.filters]]\nmatch = \"ip\"\naction = \"burn\"",
            "box.wan.filters[0].action: ",
            "want count, drop",
        ),
        (
            "[[box.wan.filters]]\nmatch = \"ip\"\nfrom = \"up\"\naction = \"drop\"",
            "box.wan.filters[0].from: ",
            "ports are left, right",
        ),
        (
            "[[box.wan.filters]]\nmatch = \"ip\"\naction = \"mirror:left\"",
            "box.wan.filters[0].action: ",
            "forward = \"switch\"",
        ),
        ("[box.wan.capture]\nfile = \"a\"\nfiles = 2", "box.wan.capture.files: ", "add file-size"),
        (
            "[box.wan.capture]\nfile = \"a\"\nfile-size = \"1KB\"",
            "box.wan.capture: ",
            "use 1048576",
        ),
        (
            "[box.wan.capture]\nfile = \"a\"\nmemory = \"much\"",
            "box.wan.capture.memory: \"much\"",
            "such as 64MB",
        ),
    ] {
        assert!(
            with(more).starts_with(place) && with(more).contains(mend),
            "{more}: {}",
            with(more)
        );
    }
    let host = |words: &str| {
        lay_out(&PAIR.replace("[host.left]", &format!("[host.left]\n{words}"))).unwrap_err()
    };
    for (words, place, mend) in [
        (
            "routes = [{ to = \"0.0.0.0/0\", via = \"10.9.9.9\" }]",
            "host.left: no route to 10.9.9.9",
            "a neighbour's address",
        ),
        (
            "routes = [{ to = \"::/0\", via = \"10.64.0.2\" }]",
            "host.left: a route to ::/0",
            "use the same for both",
        ),
        ("mtu = 100", "host.left: an MTU of 100", "use 1280 to"),
        ("sysctls = { \"../x\" = 1 }", "host.left: \"../x\" is not a sysctl", "name it as behind"),
        (
            "at.wan = { interface = \"a name\" }",
            "host.left: \"a name\" is not a name",
            "letters, digits",
        ),
        (
            "at.wan = { addresses = [\"10.64.0.7/24\", \"10.64.0.7/16\"] }",
            "host.left.at.wan: 10.64.0.7 is another",
            "used once",
        ),
    ] {
        let error = host(words);
        assert!(error.starts_with(place) && error.contains(mend), "{words}: {error}");
    }
    // Unknown keys and values of a wrong type are reported with their lines.
    let error = with("[host.third]\nmut = 9000");
    assert!(error.contains("line 9") && error.contains("unknown field `mut`"), "{error}");
    let error = lay_out(&PAIR.replace("[\"left\", \"right\"]", "7")).unwrap_err();
    assert!(error.contains("line 6"), "{error}");
    let error = lay_out("v4 = \"10.0.0.0/30\"\nname = \"x\"").unwrap_err();
    assert!(error.starts_with("v4: 10.0.0.0/30 is too small"), "{error}");
    let crowd: String = (0..255).map(|n| format!("[host.h{n}]\n")).collect();
    let ports: Vec<_> = (0..255).map(|n| format!("\"h{n}\"")).collect();
    let error = lay_out(&format!("name = \"x\"\n{crowd}[box.b]\nports = [{}]", ports.join(",")))
        .unwrap_err();
    assert!(error.contains("no address is left for it"), "{error}");
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn parsing_a_topology_never_panics(text in ".{0,400}") {
        let _ = lay_out(&text);
    }

    /// A bundled topology with a random replacement. It is mostly valid TOML, and nearly a valid
    /// topology.
    #[test]
    fn nearly_valid_topologies_lay_out_or_fail_cleanly(
        which in 0..READY.len(),
        cut in any::<prop::sample::Index>(),
        length in 0usize..12,
        with in prop_oneof![
            ".{0,6}",
            prop::sample::select(vec![
                "\"left\"", "switch", "0", "[[cable]]", "[host.left]", "ports", "packet:", "-1",
                "1e9", "99999999999999999999s",
            ])
            .prop_map(str::to_owned),
        ],
    ) {
        let text: Vec<char> = READY[which].text.chars().collect();
        let from = cut.index(text.len());
        let to = (from + length).min(text.len());
        let changed: String = text[..from]
            .iter()
            .copied()
            .chain(with.chars())
            .chain(text[to..].iter().copied())
            .collect();
        if let Ok(lab) = lay_out(&changed) {
            // The plan can be made: every port is an interface of the plan, and no interface is
            // used twice.
            prop_assert_eq!(lab.plan.check(), Ok(()));
            let mut ports: Vec<_> =
                lab.boxes.iter().flat_map(|b| &b.ports).map(|port| port.spec.to_string()).collect();
            let count = ports.len();
            ports.sort();
            ports.dedup();
            prop_assert_eq!(ports.len(), count);
        }
    }
}

fn lay_out(text: &str) -> Result<LabPlan, String> {
    Topology::from_toml(text)
        .and_then(|topology| topology.lay_out())
        .map_err(|error| error.to_string())
}
