//! Checks topologies against textbooks, and against brute force.

use proptest::prelude::*;
use sprat_plan::fabric::{
    Fabric, Failure, Link, Routing, UNREACHED, bisection, deadlock, failures, traffic,
};
use sprat_plan::spec::Routes;
use sprat_plan::topology::Topology;

fn fabric(topology: &Topology) -> Fabric {
    topology.fabric(1).unwrap_or_else(|error| panic!("{topology:?}: {error}"))
}

fn torus(sizes: &[usize]) -> Topology {
    Topology::Torus { sizes: sizes.to_vec() }
}

/// Returns the same fabric, but not marked as symmetric.
fn unknown(fabric: &Fabric) -> Fabric {
    Fabric::new(fabric.stations, fabric.switches, fabric.links.clone(), false)
}

#[test]
fn diameters_and_bisections_are_those_of_textbooks() {
    let cases = [
        // Topology, chassis, switches, cables, diameter, bisection in cables (0 if textbooks give
        // none).
        (Topology::Single, 1, 1, 0, 0, 0),
        (Topology::Mesh { chassis: 5 }, 5, 5, 10, 1, 6),
        (Topology::Tree { leaves: 2 }, 3, 3, 2, 2, 1),
        (Topology::Hypercube { dimensions: 4 }, 16, 16, 32, 4, 8),
        (torus(&[4, 4, 4, 4]), 256, 256, 1024, 8, 128),
        (torus(&[2, 2, 2]), 8, 8, 12, 3, 4),
        (torus(&[8]), 8, 8, 8, 4, 2),
        (Topology::FatTree { ports: 4 }, 8, 20, 32, 4, 8),
        (Topology::Dragonfly { groups: 9, chassis: 4, global: 2 }, 36, 36, 54 + 36, 3, 0),
    ];
    for (topology, chassis, switches, cables, diameter, halves) in cases {
        let fabric = fabric(&topology);
        let found = traffic(&fabric, Routes::Ecmp);
        assert_eq!(
            (fabric.stations, fabric.switches, fabric.links.len()),
            (chassis, switches, cables),
            "{topology:?}"
        );
        assert_eq!((found.diameter(), found.unreachable_pairs), (diameter, 0), "{topology:?}");
        if halves > 0 || chassis < 2 {
            assert_eq!(bisection(&fabric), halves, "{topology:?}");
        }
    }
}

#[test]
fn load_of_the_fullest_cable_matches_arithmetic() {
    // In a hypercube half of all pairs cross each dimension, evenly in both directions: N/2 flows
    // on each directed link.
    let cube = traffic(&fabric(&Topology::Hypercube { dimensions: 4 }), Routes::Ecmp);
    assert!((cube.all_to_all - 8.0).abs() < 1e-9, "{cube:?}");
    assert!((cube.mean_hops() - 32.0 / 15.0).abs() < 1e-9, "{cube:?}");
    // All to one in a hypercube: with ordered routes half of all flows use the last dimension; with
    // all shortest routes a quarter of the flows use each link to their destination.
    let ordered = traffic(&fabric(&Topology::Hypercube { dimensions: 4 }), Routes::Ordered);
    assert!((ordered.incast - 8.0).abs() < 1e-9, "{ordered:?}");
    assert!((cube.incast - 15.0 / 4.0).abs() < 1e-9, "{cube:?}");
    // A tree's cable carries all flows of its leaf.
    let tree = traffic(&fabric(&Topology::Tree { leaves: 4 }), Routes::Ecmp);
    assert!((tree.all_to_all - 4.0).abs() < 1e-9, "{tree:?}");
    // Two parallel cables carry half each.
    let twice = traffic(&Topology::Mesh { chassis: 3 }.fabric(2).expect("a mesh"), Routes::Ecmp);
    assert!((twice.all_to_all - 0.5).abs() < 1e-9, "{twice:?}");
}

#[test]
fn deadlocks_are_detected() {
    let cases = [
        (Topology::Mesh { chassis: 6 }, Routes::Ordered, false),
        (Topology::Tree { leaves: 5 }, Routes::Ecmp, false),
        (Topology::FatTree { ports: 4 }, Routes::Ecmp, false),
        (Topology::Hypercube { dimensions: 3 }, Routes::Ordered, false),
        (Topology::Hypercube { dimensions: 3 }, Routes::Ecmp, true),
        (torus(&[4]), Routes::Ordered, true),
        (torus(&[3]), Routes::Ordered, false),
    ];
    for (topology, routes, waits) in cases {
        assert_eq!(
            deadlock(&fabric(&topology), routes).is_some(),
            waits,
            "{topology:?} {routes:?}"
        );
    }
}

#[test]
fn the_worst_failure_is_found() {
    let tree = fabric(&Topology::Tree { leaves: 3 });
    let [link, switch] = failures(&tree, Routes::Ecmp).map(|failure| failure.expect("examined"));
    assert_eq!((link.cut_off, switch.worst, switch.cut_off), (1, Failure::Switch(0), 2));
    let cube = fabric(&Topology::Hypercube { dimensions: 4 });
    let [link, switch] = failures(&cube, Routes::Ecmp).map(|failure| failure.expect("examined"));
    assert_eq!((link.cut_off, switch.cut_off, switch.diameter), (0, 0, 4));
    assert!((1.0..3.0).contains(&link.load), "{link:?}");
    assert_eq!(
        failures(&fabric(&Topology::Hypercube { dimensions: 11 }), Routes::Ecmp),
        [None, None]
    );
    assert_eq!(failures(&fabric(&Topology::Single), Routes::Ecmp), [None, None]);
}

#[test]
fn errors_name_the_invalid_value() {
    let cases = [
        (Topology::Mesh { chassis: 1 }, "want 2 chassis or more"),
        (Topology::Hypercube { dimensions: 18 }, "more than 131072 switches"),
        (Topology::Hypercube { dimensions: 64 }, "more than 131072 switches"),
        (Topology::Mesh { chassis: usize::MAX }, "more than 131072 switches"),
        (torus(&[4, 1]), "2 or more in each dimension"),
        (torus(&[usize::MAX, 4]), "more than 131072 switches"),
        (Topology::FatTree { ports: 5 }, "even number"),
        (Topology::Dragonfly { groups: 10, chassis: 2, global: 4 }, "at least 9"),
        (Topology::Custom { chassis: 3, neighbours: vec![[0, 3]] }, "want two of 0 to 2"),
        (Topology::Custom { chassis: 3, neighbours: vec![[0, 1]] }, "no path leads from c0 to c2"),
    ];
    for (topology, what) in cases {
        let error = topology.fabric(1).expect_err("it cannot be").to_string();
        assert!(error.contains(what), "{topology:?}: {error}");
    }
}

fn topologies() -> impl Strategy<Value = Topology> {
    prop_oneof![
        (2_usize..12).prop_map(|chassis| Topology::Mesh { chassis }),
        (1_usize..9).prop_map(|leaves| Topology::Tree { leaves }),
        (1_usize..6).prop_map(|dimensions| Topology::Hypercube { dimensions }),
        prop::collection::vec(2_usize..5, 1..4).prop_map(|sizes| Topology::Torus { sizes }),
        (1_usize..4).prop_map(|half| Topology::FatTree { ports: 2 * half }),
        (2_usize..6, 1_usize..5).prop_map(|(groups, chassis)| Topology::Dragonfly {
            groups,
            chassis,
            global: groups
        }),
    ]
}

fn chance() -> impl Strategy<Value = Fabric> {
    (2_usize..10, prop::collection::vec((0_usize..10, 0_usize..10, 1_usize..4, 0_usize..3), 1..30))
        .prop_map(|(switches, links)| {
            let within = |(a, b, count, class): (usize, usize, usize, usize)| {
                (a % switches, b % switches, count, class)
            };
            let real = |(a, b, count, class)| (a != b).then(|| Link::new(a, b, count, class));
            let links = links.into_iter().map(within).filter_map(real).collect();
            Fabric::new(1 + switches / 2, switches, links, false)
        })
}

proptest! {
    /// One viewpoint of a symmetric fabric gives the result of all viewpoints.
    #[test]
    fn symmetric_fabrics_look_the_same_from_each_switch(topology in topologies(), ordered: bool) {
        let routes = if ordered { Routes::Ordered } else { Routes::Ecmp };
        let fabric = fabric(&topology);
        let (one, all) = (traffic(&fabric, routes), traffic(&unknown(&fabric), routes));
        prop_assert_eq!(&one.hops, &all.hops);
        prop_assert!((one.incast - all.incast).abs() < 1e-9, "{:?} {:?}", one, all);
        prop_assert!((one.all_to_all - all.all_to_all).abs() < 1e-9, "{:?} {:?}", one, all);
    }

    /// Each route leads one link nearer to its chassis.
    #[test]
    fn routes_have_no_loops(fabric in chance(), ordered: bool) {
        let routes = if ordered { Routes::Ordered } else { Routes::Ecmp };
        for to in 0..fabric.stations {
            let routing = Routing::new(&fabric, to, routes);
            for from in 0..fabric.switches {
                let ways: Vec<_> = routing.next(&fabric, from).collect();
                let reached = routing.hops[from] != UNREACHED;
                prop_assert_eq!(ways.is_empty(), from == to || !reached);
                prop_assert!(!ordered || ways.len() <= 1);
                for way in ways {
                    prop_assert_eq!(routing.hops[way.switch] + 1, routing.hops[from]);
                    prop_assert_eq!(fabric.directed(way.directed), (from, way.switch));
                }
            }
        }
    }

    /// No flow is lost: all pairs of chassis are counted, and the fullest link carries at least the
    /// mean of all links.
    #[test]
    fn flows_are_conserved(topology in topologies()) {
        let fabric = unknown(&fabric(&topology));
        let found = traffic(&fabric, Routes::Ecmp);
        let pairs: u64 = found.hops.iter().sum();
        prop_assert_eq!(pairs, (fabric.stations * (fabric.stations - 1)) as u64);
        let links = 2.0 * fabric.links.len() as f64;
        prop_assert!(found.all_to_all >= found.mean_hops() * pairs as f64 / links - 1e-9);
    }

    /// The number that `bisection` returns is the size of a cut into halves.
    #[test]
    fn a_bisection_is_a_cut(fabric in chance()) {
        let stations = fabric.stations;
        let cut = |side: u32| {
            let crosses = |link: &&Link| (side >> link.a & 1) != (side >> link.b & 1);
            fabric.links.iter().filter(crosses).map(|link| link.count).sum::<usize>()
        };
        let halves = (0..1_u32 << fabric.switches)
            .filter(|side| (side & ((1 << stations) - 1)).count_ones() as usize == stations / 2);
        let cuts: Vec<usize> = halves.map(cut).collect();
        let found = bisection(&fabric);
        prop_assert!(cuts.contains(&found), "{} is no cut", found);
    }
}
