//! Tests locators. The printed form parses back, and parse errors say how to correct the text.

use std::net::{Ipv4Addr, Ipv6Addr};

use proptest::prelude::*;
use sprat_net::{
    AnyDriver, Bypass, Driver, DriverRole, Host, Locator, LocatorFault, Locators, Mac, Transport,
};

fn parse(text: &str) -> Locator {
    text.parse().unwrap_or_else(|error| panic!("{error}"))
}

fn error_of(text: &str) -> String {
    text.parse::<Locator>().expect_err(text).to_string()
}

fn hosts() -> impl Strategy<Value = Host> {
    prop_oneof![
        any::<Ipv4Addr>().prop_map(|ip| Host::Ip(ip.into())),
        any::<Ipv6Addr>().prop_map(|ip| Host::Ip(ip.into())),
        "[a-z][a-z0-9-]{0,20}[a-z0-9](\\.[a-z]{2,8}){0,2}".prop_map(Host::Name),
    ]
}

fn transports() -> impl Strategy<Value = Transport> {
    prop_oneof![
        Just(Transport::Tcp),
        Just(Transport::FastUdp),
        bypasses().prop_map(Transport::FastDpdk),
    ]
}

fn bypasses() -> impl Strategy<Value = Bypass> {
    use proptest::option::of;
    let device = "[a-z0-9_.:-]{1,20}(,[a-z-]{3,8}x=[a-z0-9/._-]{1,20}){0,3}";
    let gateway = of(any::<Ipv4Addr>().prop_map(Into::into));
    let devices = proptest::collection::vec(device, 0..3);
    let numbers = (of(0u8..=128), of(1u16..4095), of(1280u16..));
    (of(any::<[u8; 6]>().prop_map(Mac)), numbers, gateway, devices).prop_map(
        |(mac, (prefix, vlan, mtu), gateway, devices)| Bypass {
            mac,
            prefix,
            gateway,
            vlan,
            mtu,
            devices,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 256,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn printed_locators_parse_back(transport in transports(), host in hosts(), port: u16) {
        let locator = Locator { transport, host, port };
        prop_assert_eq!(parse(&locator.to_string()), locator);
    }

    #[test]
    fn no_text_panics(text in "\\PC*") {
        let _ = text.parse::<Locator>();
    }

    #[test]
    fn no_near_locator_panics(
        text in "(tcp|fast\\+udp|fast\\+dpdk):(host|port|mac|dev|=|,|:|\\[|\\]|[0-9a-f]{1,4}){0,12}",
    ) {
        if let Ok(locator) = text.parse::<Locator>() {
            prop_assert_eq!(parse(&locator.to_string()), locator);
        }
    }
}

#[test]
fn published_locators_parse() {
    let coordinator = parse("tcp:host=192.168.100.31,port=12246");
    assert_eq!(coordinator.transport, Transport::Tcp);
    assert_eq!(coordinator.port, 12246);
    let server = parse("fast+dpdk:host=192.168.101.29,mac=94:DE:80:AB:01:79,port=12247");
    let mac = Mac([0x94, 0xDE, 0x80, 0xAB, 0x01, 0x79]);
    assert_eq!(
        server.transport,
        Transport::FastDpdk(Bypass { mac: Some(mac), ..Bypass::default() })
    );
    assert_eq!(
        server.to_string(),
        "fast+dpdk:host=192.168.101.29,mac=94:DE:80:AB:01:79,port=12247"
    );
}

#[test]
fn an_address_with_a_port_is_enough() {
    for (short, long) in [
        ("192.168.100.31:12246", "tcp:host=192.168.100.31,port=12246"),
        ("localhost:11100", "tcp:host=localhost,port=11100"),
        ("node-1.example:1", "tcp:host=node-1.example,port=1"),
        ("[::1]:11100", "tcp:host=::1,port=11100"),
        ("tcp://localhost:11100", "tcp:host=localhost,port=11100"),
        ("tcp://[fd00::1]:11100/", "tcp:host=fd00::1,port=11100"),
        ("fast+udp://10.0.0.2:11101", "fast+udp:host=10.0.0.2,port=11101"),
    ] {
        assert_eq!(parse(short), parse(long), "{short}");
    }
    let several: Locators = "a:1,tcp:host=b,port=2,tcp://c:3,[::1]:4".parse().expect("four");
    let told: Vec<String> = several.iter().map(ToString::to_string).collect();
    assert_eq!(
        told,
        ["tcp:host=a,port=1", "tcp:host=b,port=2", "tcp:host=c,port=3", "tcp:host=::1,port=4"]
    );
    let device: Locators =
        "fast+dpdk:host=a,port=1,dev=net_x,peer:5,b:2".parse().expect("a list with a device");
    assert_eq!(device.len(), 1);
}

#[test]
fn devices_have_arguments_of_their_own() {
    let server = parse(
        "fast+dpdk:host=10.0.0.1,dev=net_memif0,role=server,socket=/tmp/a.sock,port=7,dev=0000:01:00.0,mtu=9000",
    );
    let Transport::FastDpdk(bypass) = &server.transport else { panic!("{server}") };
    assert_eq!(bypass.devices, ["net_memif0,role=server,socket=/tmp/a.sock", "0000:01:00.0"]);
    assert_eq!((server.port, bypass.mtu), (7, Some(9000)));
    let told = server.at(([10, 0, 0, 2], 8).into());
    assert_eq!(
        told.to_string(),
        "fast+dpdk:host=10.0.0.2,port=8",
        "a locator for other nodes leaves out our devices"
    );
}

#[test]
fn brackets_around_ipv6_are_free() {
    assert_eq!(parse("tcp:host=[::1],port=1"), parse("tcp:host=::1,port=1"));
    assert_eq!(parse("tcp:port=1,host=::1").to_string(), "tcp:host=::1,port=1");
}

#[test]
fn errors_name_the_part_and_the_remedy() {
    for (text, expected) in [
        ("tpc:host=a,port=1", "did you mean `tcp`?"),
        ("udp:host=a,port=1", "did you mean `fast+udp`?"),
        ("fast-udp:host=a,port=1", "did you mean `fast+udp`?"),
        ("tcp:hots=a,port=1", "did you mean `host`?"),
        ("tcp:host=a,port=1,color=red", "takes host and port"),
        ("tcp:host=a,port=1,mac=94:DE:80:AB:01:79", "only for fast+dpdk"),
        ("tcp:host=a,port=1,dev=net_memif0", "only for fast+dpdk"),
        ("fast+dpdk:host=a,port=1,prefix=129", "0 to 128"),
        ("fast+dpdk:host=a,port=1,vlan=4095", "1 to 4094"),
        ("fast+dpdk:host=a,port=1,mtu=500", "1280 to 65535"),
        ("fast+dpdk:host=a,port=1,gatway=10.0.0.1", "did you mean `gateway`?"),
        ("fast+dpdk:host=a,port=1,gateway=x", "address of a router"),
        ("fast+dpdk:host=a,port=1,dev=", "a device, such as"),
        ("fast+dpdk:dev=net_memif0,role=server,port=1", "`host` is missing"),
        ("fast+dpdk:host=a,mac=94:DE:80,port=1", "six pairs"),
        ("tcp:host=a", "add `port=11100`"),
        ("tcp:port=1", "`host` is missing"),
        ("tcp:host=a,port=1,port=2", "given twice"),
        ("tcp:host=a,port=65536", "0 to 65535"),
        ("tcp:host=a,port=+1", "0 to 65535"),
        ("tcp:host=,port=1", "`host=`"),
        ("tcp:host=1.2.3.256,port=1", "four numbers"),
        ("tcp:host=::1:g,port=1", "an IPv6 address"),
        ("tcp:host=[1.2.3.4],port=1", "in brackets"),
        ("tcp:host", "key=value"),
        ("127.0.0.1", "write for example `127.0.0.1:11100`"),
        ("::1:11100", "write for example"),
        ("a:65536", "0 to 65535"),
        ("1.2.3:5", "four numbers"),
        ("tcp://localhost", "add `port=11100`"),
        ("tcp://:11100", "`host=`"),
        ("tcp:11100", "key=value"),
        ("udp://a:1", "did you mean `fast+udp`?"),
        ("fast+dpdk://a:1", "key=value"),
        ("host=127.0.0.1,port=1", "write for example"),
    ] {
        let error = error_of(text);
        assert!(error.contains(expected), "{text}: {error}");
        assert!(error.contains(text), "{text}: {error}");
    }
}

#[test]
fn a_long_text_is_refused_whole() {
    let text = format!("tcp:host={},port=1", "a".repeat(2000));
    let error = text.parse::<Locator>().expect_err("too long");
    assert!(matches!(error.fault, LocatorFault::TooLong(_)));
    assert!(error.text.len() <= 1024);
}

#[test]
fn names_resolve_on_demand() {
    let addresses = parse("tcp:host=localhost,port=7").resolve().expect("localhost is known");
    assert!(addresses.iter().all(|address| address.ip().is_loopback() && address.port() == 7));
}

#[test]
fn opening_says_what_is_in_the_way() {
    let failure = |text: &str| match AnyDriver::open(&parse(text), DriverRole::Listen) {
        Ok(_) => panic!("{text} opened"),
        Err(error) => error.to_string(),
    };
    #[cfg(not(feature = "dpdk"))] // with the feature, opening fails for another reason
    {
        let dpdk = failure("fast+dpdk:host=127.0.0.1,mac=94:DE:80:AB:01:79,port=1");
        assert!(dpdk.contains("without DPDK") && dpdk.contains("fast+udp"), "{dpdk}");
    }
    for transport in ["tcp", "fast+udp"] {
        let elsewhere = failure(&format!("{transport}:host=192.0.2.1,port=0"));
        assert!(elsewhere.contains("of this machine"), "{elsewhere}");
        let first = AnyDriver::open(
            &parse(&format!("{transport}:host=127.0.0.1,port=0")),
            DriverRole::Listen,
        );
        let port = first.as_ref().expect("opens").local_addr().port();
        let taken = failure(&format!("{transport}:host=127.0.0.1,port={port}"));
        assert!(taken.contains("in use") && taken.contains("another port"), "{taken}");
    }
}

#[test]
fn connecting_drivers_are_of_the_services_family() {
    for (host, v6) in [("127.0.0.1", false), ("::1", true)] {
        let locator = parse(&format!("fast+udp:host={host},port=9"));
        let driver = AnyDriver::open(&locator, DriverRole::Connect(None)).expect("opens");
        assert_eq!(driver.local_addr().is_ipv6(), v6);
        assert_ne!(driver.local_addr().port(), 9);
    }
}

#[test]
fn lists_are_taken_apart() {
    let list = "tcp:host=10.0.0.1,port=1,fast+udp:host=::1,port=2,fast+dpdk:host=10.0.0.3,port=3,dev=net_memif,role=client,tcp:host=a,port=4";
    let locators: sprat_net::Locators = list.parse().unwrap();
    let texts: Vec<String> = locators.iter().map(ToString::to_string).collect();
    assert_eq!(texts.len(), 4, "{texts:?}");
    assert_eq!((&texts[1][..], &texts[3][..]), ("fast+udp:host=::1,port=2", "tcp:host=a,port=4"));
    assert_eq!(locators.to_string().parse::<sprat_net::Locators>().unwrap(), locators);
    let one: sprat_net::Locators = "tcp:host=10.0.0.1,port=1".parse().unwrap();
    assert_eq!(one.len(), 1);
    for wrong in [
        "",
        ",",
        "tcp:host=1.2.3.4,port=1,",
        "tcp:host=1.2.3.4,port=1,,tcp:host=1.2.3.4,port=2",
        "tcp:,tcp:host=a,port=1",
    ] {
        assert!(wrong.parse::<sprat_net::Locators>().is_err(), "{wrong}");
    }
}
