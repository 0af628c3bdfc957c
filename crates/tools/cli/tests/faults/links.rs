//! Two links between the same hosts: both carry what is long, and either stands in for the other.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::load::{client, mixed};
use crate::net::{alone, cable};
use crate::support::{COORDINATOR, ip};
use crate::{local, serve, table, until_nothing_is_in_use};

/// How long the client works before, during and after a failure.
const SPELL: Duration = Duration::from_millis(700);

/// Lays a way between two interfaces by a bridge, so that it can be cut where neither end sees it.
fn way(number: usize) {
    let name = |kind: &str| format!("{kind}{number}");
    let bridge = name("br");
    ip(&["link", "add", &bridge, "type", "bridge"]).expect("a bridge");
    ip(&["link", "set", &bridge, "up"]).expect("a bridge");
    for (end, port) in [("s", "sm"), ("c", "cm")] {
        cable(&name(end), &name(port)).expect("a cable");
        ip(&["link", "set", &name(port), "master", &bridge]).expect("ours");
    }
}

/// Takes the server's cable out of the bridge, or puts it back.
fn cut(number: usize, broken: bool) {
    let (port, bridge) = (format!("sm{number}"), format!("br{number}"));
    let args: &[&str] = if broken {
        &["link", "set", &port, "nomaster"]
    } else {
        &["link", "set", &port, "master", &bridge]
    };
    ip(args).expect("ours");
}

/// Bytes that came over an interface of the client's.
fn received(number: usize) -> u64 {
    let output = Command::new("ip")
        .args(["-s", "-j", "link", "show", "dev", &format!("c{number}")])
        .output();
    let links: Value = serde_json::from_slice(&output.expect("ip runs").stdout).expect("JSON");
    links[0]["stats64"]["rx"]["bytes"].as_u64().expect("a count")
}

#[test]
fn two_links_share_what_is_long_and_either_stands_in_for_the_other() {
    alone(|| {
        (0..2).for_each(way);
        let folder = tempfile::tempdir().expect("a folder");
        let device = |end: &str, first: usize| {
            format!("net_af_packet{first},iface={end}0,dev=net_af_packet{},iface={end}1", first + 1)
        };
        let server = serve(folder.path(), &device("s", 0), COORDINATOR);
        let mut client = client(&server.coordinator, &local(&device("c", 2)));
        let small = table(&mut client, "small");
        mixed(&mut client, small, 500, 1); // both have met by now
        let long = vec![7; 1 << 20];
        client.put(small, b"long", &long).expect("written");
        let before = [0, 1].map(received);
        for _ in 0..5 {
            assert!(client.get(small, b"long").expect("read").expect("there").value == long);
        }
        let came = [0, 1].map(|number| received(number) - before[number]);
        let [least, all] = [came[0].min(came[1]), came[0] + came[1]];
        assert!(all > 5 << 20 && least > all / 3, "{came:?} bytes came over the two links");

        // One way after the other is cut where nobody sees it.
        for number in 0..2 {
            let (mut worst, mut count) = ([Duration::ZERO; 3], 0_u64);
            for (spell, worst) in worst.iter_mut().enumerate() {
                cut(number, spell == 1);
                let begun = Instant::now();
                while begun.elapsed() < SPELL {
                    count += 1;
                    let called = Instant::now();
                    client.put(small, b"count", &count.to_le_bytes()).expect("written");
                    let found = client.get(small, b"count").expect("read").expect("there");
                    assert_eq!(found.value, count.to_le_bytes());
                    *worst = called.elapsed().max(*worst);
                }
            }
            eprintln!(
                "way {number}: a write and a read take at most {worst:.1?} before, during and \
                 after it is cut"
            );
        }
        drop(client);
        until_nothing_is_in_use();
        assert!(server.stop().success());
    });
}
