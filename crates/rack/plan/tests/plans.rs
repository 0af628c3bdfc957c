//! Whole plans: published racks, errors, names, addresses and cables.

use proptest::prelude::*;
use sprat_plan::claims::Verdict;
use sprat_plan::racks::{EXAMPLES, ready};
use sprat_plan::{Plan, Spec};
use std::collections::HashSet;

fn plan(text: &str) -> Plan {
    Plan::from_toml(text).unwrap_or_else(|error| panic!("{error}\n{text}"))
}

fn published(name: &str) -> Plan {
    plan(ready(name).expect(name).toml)
}

/// Returns a description of six servers, with `more` added.
fn six(more: &str) -> String {
    let rack = "name = \"six\"\n[server]\ncores = 4\nmemory = \"32GB\"\ndisks = [\"1TB\", \
                \"1TB\"]\nport-rate = \"1Gb/s\"\n";
    format!("{rack}[chassis]\nservers = 6\n{more}")
}

#[track_caller]
fn verdicts(name: &str) -> Vec<(String, &'static str)> {
    let word = |verdict| match verdict {
        Verdict::Follows => "follows",
        Verdict::FollowsInBinary => "binary",
        Verdict::Off(_) => "off",
        Verdict::Unknown => "unknown",
    };
    published(name)
        .summary
        .claims
        .into_iter()
        .map(|claim| (claim.key, word(claim.verdict)))
        .collect()
}

#[test]
fn published_figures_follow_or_are_flagged() {
    let expected = |list: &[(&str, &'static str)]| -> Vec<(String, &'static str)> {
        list.iter().map(|(key, word)| ((*key).to_owned(), *word)).collect()
    };
    let rack = [
        ("chassis", "follows"),
        ("servers", "follows"),
        ("cores", "follows"),
        ("memory", "binary"),
        ("disks", "binary"),
        ("ops", "unknown"),
        ("flops", "follows"),
        ("memory-rate", "off"),
        ("disk-rate", "off"),
        ("power", "follows"),
        ("hops", "follows"),
    ];
    assert_eq!(verdicts("mms-16"), expected(&rack));
    let three = [
        ("servers", "follows"),
        ("cores", "follows"),
        ("memory", "binary"),
        ("disks", "binary"),
        ("power", "off"),
        ("height", "follows"),
    ];
    assert_eq!(verdicts("mms-3"), expected(&three));
    for name in ["mms-5", "mms-cube", "mms-65536", "cassandra-6", "ipu-6"] {
        assert!(
            verdicts(name).iter().all(|(_, word)| *word == "follows"),
            "{name}: {:?}",
            verdicts(name)
        );
    }
}

#[test]
fn published_power_follows_from_chassis_or_is_flagged() {
    let power =
        |name: &str| published(name).summary.capacity.power.expect("it is described").to_string();
    assert_eq!(power("mms-16"), "32 kW");
    assert_eq!(power("mms-3"), "5.93 kW", "4.8 kW was measured in normal operation: docs/rack.md");
    assert_eq!(power("cassandra-6"), "432 W");
    let one = ready("mms-16").expect("an example").toml;
    let one =
        one[..one.find("[fabric]").expect("a fabric")].to_owned() + "[claims]\npower = \"2kW\"\n";
    assert_eq!(plan(&one).summary.claims[0].verdict, Verdict::Follows);
}

/// A fat tree with 8 ports: 32 chassis, and 48 switches without servers.
#[test]
fn switches_without_servers_have_weight_power_and_position() {
    let plan = plan(
        "name = \"fat\"\n[server]\ncores = 2\nmemory = \"1GiB\"\nport-rate = \"1Gb/s\"\npower = \
         \"10W\"\nweight = \"1kg\"\n\
         [chassis]\nservers = 1\nuplinks = 4\nuplink-rate = \"10Gb/s\"\npower = \"100W\"\nweight = \
         \"5kg\"\n\
         [fabric]\ntopology = { kind = \"fat-tree\", ports = 8 }\n[claims]\nheight = \"80U\"\n\
         power = \"8.3kW\"\nweight = \"432kg\"\n",
    );
    let has = &plan.summary.capacity;
    assert_eq!((has.chassis, has.switches, has.height, has.racks), (32, 48, 80, 2));
    assert_eq!(has.power.map(|power| power.0.round()), Some(32.0 * 10.0 + 80.0 * 100.0));
    assert!(
        plan.summary.claims.iter().all(|claim| claim.verdict == Verdict::Follows),
        "{:?}",
        plan.summary.claims
    );
    let layout = plan.layout();
    let positions: HashSet<_> = (0..80)
        .map(|switch| layout.position(switch).map(|position| (position.rack, position.unit)))
        .collect();
    assert_eq!(positions.len(), 80, "each switch has its own position");
    assert!(
        layout.cables().iter().all(|cable| cable.to.position.is_some()),
        "cables give the positions of switches"
    );
    let svg = sprat_plan::picture::picture(&plan).expect("few enough");
    assert_eq!(svg.matches(": a switch</text>").count(), 48);
}

/// A chassis that does not fit into the rest of a rack goes into the next rack, and is counted
/// there.
#[test]
fn racks_are_counted_by_chassis_position() {
    let text = six("height = 22\n")
        .replace("servers = 6", "servers = 6\nuplinks = 2\nuplink-rate = \"10Gb/s\"");
    let plan = plan(&format!("{text}[fabric]\ntopology = {{ kind = \"mesh\", chassis = 3 }}\n"));
    assert_eq!(
        (plan.summary.capacity.racks, plan.layout().position(2).map(|position| position.rack)),
        (3, Some(3))
    );
}

#[test]
fn uplinks_without_a_cable_carry_nothing() {
    let text = six(
        "uplinks = 4\nuplink-rate = \"40Gb/s\"\n[fabric]\ntopology = { kind = \"tree\", leaves = 2 \
         }\nlinks = 2\n",
    );
    let plan = plan(&text.replace("1Gb/s", "10Gb/s").replace("servers = 6", "servers = 8"));
    assert_eq!(
        plan.summary.network.oversubscription,
        Some(1.0),
        "80 Gb/s over a leaf's two cables of 40 Gb/s"
    );
    assert_eq!(
        published("mms-3").summary.network.oversubscription,
        Some(2.75),
        "220 Gb/s over two cables of 40 Gb/s"
    );
}

#[test]
fn published_diameters_and_rates_follow() {
    let hops = |name: &str| {
        let network = published(name).summary.network;
        (network.diameter, network.link_rate.to_string(), network.cables)
    };
    assert_eq!(hops("mms-3"), (2, "40 Gb/s".to_owned(), 4));
    assert_eq!(hops("mms-5"), (1, "40 Gb/s".to_owned(), 10));
    assert_eq!(hops("mms-cube"), (4, "40 Gb/s".to_owned(), 32));
    assert_eq!(hops("mms-65536"), (16, "10 Gb/s".to_owned(), 524_288));
    let six = published("cassandra-6").summary.cassandra.expect("Cassandra is on it");
    assert_eq!((six.instances, six.disks_each, six.lost_with_server), (12, 2, 0.0));
    assert_eq!(six.usable.to_string(), "16 TB", "96 TB, three replicas, half full");
    assert_eq!(six.memory_each.to_string(), "18.5 GB");
}

#[test]
fn summaries_serialize_to_json() {
    for ready in EXAMPLES {
        let summary = serde_json::to_value(published(ready.name).summary).expect("JSON");
        assert_eq!(summary["name"], ready.name);
        assert!(summary["capacity"]["servers"].as_u64() > Some(0), "{summary}");
        assert!(summary["network"]["all-to-all"].as_f64() > Some(0.0), "{summary}");
    }
}

#[test]
fn plan_errors_name_the_remedy() {
    let one = "[cassandra]\ninstances = 2\nracks = \"one\"\npicked = \"random\"\n";
    let ready = |name: &str, from: &str, to: &str| ready(name).expect(name).toml.replace(from, to);
    let cases = [
        (String::new(), "missing field `name`"),
        (six("sevrers = 1\n"), "unknown field `sevrers`"),
        (six("height = 0\n"), "chassis.height = 0: want 1 to 100"),
        (six("[fabric]\ntopology = { kind = \"ring\" }\n"), "unknown variant `ring`"),
        (
            six("[fabric]\ntopology = { kind = \"mesh\", chassis = 3 }\n"),
            "c0 needs 2 uplinks, a chassis has 0",
        ),
        (
            ready("mms-65536", "split = true ", "split = false"),
            "`fabric.split = true` splits each into several",
        ),
        (six("[addresses]\nv4 = \"10.0.0.0/29\"\n"), "do not fit into it"),
        (six("[addresses]\nv6 = \"fd00::/65\"\n"), "1 chassis with a /64 each do not fit"),
        (
            six("[cassandra]\nreplication = 7\n"),
            "there are 6 servers, replicas on different ones need 7",
        ),
        (
            six("[cassandra]\nracks = \"chassis\"\n"),
            "there are 1 chassis, replicas on different ones need 3",
        ),
        (
            six("[cassandra]\nheap = \"20GB\"\ninstances = 2\n"),
            "cassandra.heap = 20 GB: want 2 instances to fit",
        ),
        (six("[cassandra]\ntokens = 300\n"), "cassandra.tokens = 300: want 1 to 256"),
        (six(one), "lose QUORUM with it; racks = \"host\" keeps them apart"),
        (
            six("[claims]\nservers = \"six\"\n"),
            "claims.servers = \"six\": want a number, such as \"736\"",
        ),
        (six("[claims]\nbeauty = \"1\"\n"), "want a claim about one of chassis, servers"),
        (six("").replace("32GB", "32 parsecs"), "want bytes, such as"),
        (six("").replace("six\"", "s i x\""), "1 to 32 letters, digits and dashes"),
        (six("").replace("1Gb/s", "0b/s"), "server.port-rate"),
        (
            six("uplinks = 64\nuplink-rate = \"40Gb/s\"\n[fabric]\ntopology = { kind = \
                 \"fat-tree\", ports = 128 }\n"),
            "8192 chassis are too many",
        ),
        ("#".repeat(2 << 20), "2097152 bytes: a description has at most"),
    ];
    for (text, what) in cases {
        let error = Plan::from_toml(&text).map(|plan| plan.summary).expect_err(what).to_string();
        assert!(error.contains(what), "want {what:?}: {error}");
    }
    let accepted =
        plan(&six(&format!("{one}accept-loss = true\n"))).summary.cassandra.expect("Cassandra");
    assert!(accepted.doubled > 0.1 && accepted.lost_with_server > 0.0, "{accepted:?}");
}

#[test]
fn no_port_has_two_cables() {
    for ready in EXAMPLES.iter().filter(|ready| ready.name != "mms-65536") {
        let plan = published(ready.name);
        let cables = plan.layout().cables();
        let mut ends = HashSet::new();
        for cable in &cables {
            for end in [&cable.from, &cable.to] {
                assert!(
                    ends.insert((end.name.clone(), end.port.clone())),
                    "{}: {end:?} twice",
                    ready.name
                );
            }
        }
        let down = if plan.spec.chassis.backplane {
            0
        } else {
            plan.summary.capacity.servers * plan.spec.server.ports
        };
        assert_eq!(cables.len(), plan.summary.network.cables + down, "{}", ready.name);
    }
    let split = ready("mms-5")
        .expect("it is there")
        .toml
        .replace("links = 1", "")
        .replace("chassis = 5 }", "chassis = 5 }\nsplit = true");
    let cables = plan(&split).layout().cables();
    assert_eq!((cables[0].from.port.as_str(), cables[0].rate), ("1/1", 1e10));
    assert_eq!(cables[3].from.port, "1/4");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// All names and addresses are different, and the addresses of a chassis are in no other
    /// chassis's network.
    #[test]
    fn names_and_addresses_are_unique(
        chassis in 1_usize..9,
        servers in 1_usize..70,
        instances in 0_usize..4,
    ) {
        let cassandra = if instances > 0 && chassis * servers >= 3 {
            format!("[cassandra]\ninstances = {instances}\ntokens = 1\n")
        } else {
            String::new()
        };
        let topology = if chassis > 1 {
            format!(
                "[fabric]\ntopology = {{ kind = \"mesh\", chassis \
            = {chassis} }}\n"
            )
        } else {
            String::new()
        };
        let text = six("").replace(
            "servers = 6",
            &format!(
                "servers = {servers}\nuplinks = 16\n\
            uplink-rate = \"10Gb/s\""
            ),
        );
        let text = text.replace(
            "[\"1TB\", \"1TB\"]",
            "[\"1TB\", \"1TB\", \"1TB\", \"1TB\", \
            \"1TB\", \"1TB\"]",
        );
        let plan = plan(&format!("{text}{topology}{cassandra}"));
        let (mut names, mut fours, mut sixes) = (HashSet::new(), HashSet::new(), HashSet::new());
        for host in plan.layout().hosts() {
            let (v4, prefix) = host.v4;
            let network = ipnet::Ipv4Net::new(v4, prefix).expect("a prefix");
            prop_assert!(v4 != network.network() && v4 != network.broadcast());
            prop_assert!(host.gateway != std::net::IpAddr::V4(v4));
            prop_assert_eq!(
                u32::from(network.network()) as usize,
                0x0a00_0000 + host.chassis * (1 << (32 - prefix))
            );
            prop_assert!(names.insert(host.name) && fours.insert(v4) && sixes.insert(host.v6));
        }
        let each = if cassandra.is_empty() { 1 } else { 1 + instances };
        prop_assert_eq!(names.len(), chassis * servers * each);
    }

    /// Any text gives a plan or an error.
    #[test]
    fn any_text_is_a_plan_or_an_error(text in "\\PC{0,200}", cut in 0_usize..600) {
        let _: Result<Spec, _> = Spec::from_toml(&text);
        let whole = EXAMPLES[1].toml;
        let cut = (0..=cut.min(whole.len())).rev().find(|at| whole.is_char_boundary(*at));
        let cut = cut.unwrap_or(0);
        let _: Result<Plan, _> = Plan::from_toml(&format!("{}{text}", &whole[..cut]));
    }
}

#[test]
fn a_picture_has_every_chassis_and_every_link() {
    for ready in EXAMPLES {
        let plan = published(ready.name);
        let Some(svg) = sprat_plan::picture::picture(&plan) else {
            assert_eq!(ready.name, "mms-65536", "too many switches to draw");
            continue;
        };
        let count = |what: &str| svg.matches(what).count();
        assert_eq!(count("<line "), plan.fabric.links.len(), "{}", ready.name);
        assert_eq!(count("<circle "), plan.fabric.switches, "{}", ready.name);
        assert_eq!(count(" servers</text>"), plan.fabric.stations, "{}", ready.name);
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
    }
}
