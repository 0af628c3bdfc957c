//! Tests two links between the same hosts. Both carry parts of long messages, and either link takes
//! over when the other fails.

use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::load::{client, mixed};
use crate::net::{alone, cable};
use crate::support::{COORDINATOR, ip};
use crate::{local, serve, table, until_nothing_is_in_use};

/// Time for which the client works before, during and after a failure.
const SPELL: Duration = Duration::from_millis(700);

/// Joins two interfaces by a bridge, so that the path can be cut where neither end notices.
fn lay_path(number: usize) {
    let name = |kind: &str| format!("{kind}{number}");
    let bridge = name("br");
    ip(&["link", "add", &bridge, "type", "bridge"]).expect("a bridge");
    ip(&["link", "set", &bridge, "up"]).expect("a bridge");
    for (end, port) in [("s", "sm"), ("c", "cm")] {
        cable(&name(end), &name(port)).expect("a cable");
        ip(&["link", "set", &name(port), "master", &bridge]).expect("ours");
    }
}

/// Removes the server's cable from the bridge if `broken`, otherwise puts it back.
fn set_cut(number: usize, broken: bool) {
    let (port, bridge) = (format!("sm{number}"), format!("br{number}"));
    let args: &[&str] = if broken {
        &["link", "set", &port, "nomaster"]
    } else {
        &["link", "set", &port, "master", &bridge]
    };
    ip(args).expect("ours");
}

/// Returns the bytes received on an interface of the client.
fn received(number: usize) -> u64 {
    let output = Command::new("ip")
        .args(["-s", "-j", "link", "show", "dev", &format!("c{number}")])
        .output();
    let links: Value = serde_json::from_slice(&output.expect("ip runs").stdout).expect("JSON");
    links[0]["stats64"]["rx"]["bytes"].as_u64().expect("a count")
}

#[test]
fn two_links_share_long_messages_and_replace_each_other() {
    alone(|| {
        (0..2).for_each(lay_path);
        let folder = tempfile::tempdir().expect("a folder");
        let device = |end: &str, first: usize| {
            format!("net_af_packet{first},iface={end}0,dev=net_af_packet{},iface={end}1", first + 1)
        };
        let server = serve(folder.path(), &device("s", 0), COORDINATOR);
        let mut client = client(&server.coordinator, &local(&device("c", 2)));
        let small = table(&mut client, "small");
        mixed(&mut client, small, 500, 1); // after this both links are in use
        let long = vec![7; 1 << 20];
        client.put(small, b"long", &long).expect("written");
        let before = [0, 1].map(received);
        for _ in 0..5 {
            assert!(client.get(small, b"long").expect("read").expect("there").value == long);
        }
        let shares = [0, 1].map(|number| received(number) - before[number]);
        let [least, all] = [shares[0].min(shares[1]), shares[0] + shares[1]];
        assert!(all > 5 << 20 && least > all / 3, "{shares:?} bytes came over the two links");

        // One path after the other is cut. Neither end notices the cut.
        for number in 0..2 {
            let (mut worst, mut count) = ([Duration::ZERO; 3], 0_u64);
            for (spell, worst) in worst.iter_mut().enumerate() {
                set_cut(number, spell == 1);
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
