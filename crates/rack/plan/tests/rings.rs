//! Tests where Cassandra's replicas are placed.

use proptest::prelude::*;
use sprat_plan::ring::{Instance, Ring};
use sprat_plan::spec::TokenAllocation;

fn chance(seed: u64) -> impl FnMut() -> u64 {
    // Marsaglia's xorshift (2003), with Vigna's multiplier: xorshift64*.
    let mut state = seed | 1;
    move || {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        state.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// Returns `each` instances on each server. Each server is a rack, or all servers are in one rack.
fn instances(servers: usize, each: usize, tokens: usize, one_rack: bool) -> Vec<Instance> {
    (0..servers * each)
        .map(|number| number / each)
        .map(|server| Instance { server, rack: if one_rack { 0 } else { server }, tokens })
        .collect()
}

#[test]
fn with_one_rack_name_a_quarter_of_all_rows_are_lost_with_a_server() {
    // Twelve instances on six servers: three successive tokens are on different servers with a
    // probability of 10/11 x 8/10.
    let expected = 1.0 - 10.0 / 11.0 * 8.0 / 10.0;
    let mut random = chance(7);
    let doubled = |_| {
        Ring::new(instances(6, 2, 16, true), 3, TokenAllocation::Random, &mut random)
            .placement(3)
            .doubled()
    };
    let all: Vec<f64> = (0..200).map(doubled).collect();
    let mean = all.iter().sum::<f64>() / all.len() as f64;
    // Neighbouring tokens of the same instance are skipped, so this is an approximation.
    assert!((mean - expected).abs() < 0.01, "{mean} of {expected}");

    let ring = Ring::new(instances(6, 2, 1, true), 3, TokenAllocation::Adjacent, &mut random);
    assert!((ring.placement(3).doubled() - 1.0).abs() < 1e-9);
    // Each of the six servers has two replicas of a sixth of all rows.
    assert!((ring.placement(3).lost_with(&|server| server) - 1.0 / 6.0).abs() < 1e-9);
    let (pairs, worst) = ring.placement(3).lost_with_two();
    assert!((pairs - 1.0).abs() < 1e-9 && (worst - 1.0 / 3.0).abs() < 1e-9, "{pairs} {worst}");

    let ring = Ring::new(instances(6, 2, 1, false), 3, TokenAllocation::Adjacent, &mut random);
    let placement = ring.placement(3);
    assert!(
        (placement.doubled(), placement.lost_with(&|server| server)) == (0.0, 0.0),
        "racks keep replicas apart, wherever tokens are"
    );
}

#[test]
fn replicas_go_where_cassandra_puts_them() {
    let instance = |rack| Instance { server: rack, rack, tokens: 1 };
    let token = |at, instance| sprat_plan::ring::Token { at, instance };
    let ring = |racks: &[usize]| {
        let instances: Vec<Instance> = racks.iter().map(|rack| instance(*rack)).collect();
        let tokens =
            (0_i64..).zip(0..racks.len()).map(|(at, instance)| token(at, instance)).collect();
        let mut distinct = racks.to_vec();
        distinct.sort_unstable();
        distinct.dedup();
        Ring { instances, tokens, racks: distinct.len() }
    };
    assert_eq!(ring(&[0, 0, 1, 1, 2]).replicas(0, 3), [0, 2, 4], "one in each rack");
    assert_eq!(
        ring(&[0, 0, 0, 1, 1]).replicas(0, 3),
        [0, 1, 3],
        "one replica more than racks: one rack has two"
    );
    assert_eq!(ring(&[0, 0, 0, 0]).replicas(2, 3), [2, 3, 0], "one rack: the next instances");
    assert_eq!(ring(&[0, 1]).replicas(1, 3), [1, 0], "no more than all instances");
}

#[test]
fn losses_of_server_pairs_match_brute_force() {
    let ring = Ring::new(instances(5, 2, 4, false), 3, TokenAllocation::Even, &mut chance(3));
    let placement = ring.placement(3);
    let (mut worst, mut lossy) = (0.0_f64, 0);
    for (a, b) in (0..5).flat_map(|a| (a + 1..5).map(move |b| (a, b))) {
        // Two servers that fail together are one group; each other server is a group of its own.
        let lost = placement.lost_with(&|server| if server == b { a } else { server });
        worst = worst.max(lost);
        lossy += u32::from(lost > 0.0);
    }
    let (pairs, found) = placement.lost_with_two();
    assert!(
        (found - worst).abs() < 1e-9 && (pairs - f64::from(lossy) / 10.0).abs() < 1e-9,
        "{found} {worst} {pairs}"
    );
    assert!(placement.lost_with(&|server| server) == 0.0 && worst > 0.0);
}

#[test]
fn all_servers_share_the_load_of_a_failed_one() {
    // If one order were repeated, only pairs of neighbours in it would take rows: four of eleven.
    let ring = Ring::new(instances(12, 1, 16, false), 3, TokenAllocation::Even, &mut chance(11));
    let (pairs, _) = ring.placement(3).lost_with_two();
    assert!(pairs > 0.9, "{pairs}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(10_000))]

    /// For plans of any size, and servers with any number of instances and tokens: no row has two
    /// replicas on one server if there are as many servers as replicas, all tokens are different,
    /// and shares add up to 1.
    #[test]
    fn no_two_replicas_are_on_one_server_where_that_can_be_avoided(
        servers in prop::collection::vec((1_usize..4, 1_usize..9), 1..24),
        replication in 1_usize..6,
        picked in prop_oneof![
            Just(TokenAllocation::Even),
            Just(TokenAllocation::Adjacent),
            Just(TokenAllocation::Random)
        ],
        seed: u64,
    ) {
        let of = |(server, (each, tokens)): (usize, &(usize, usize))| {
            vec![Instance { server, rack: server, tokens: *tokens }; *each]
        };
        let instances: Vec<Instance> = servers.iter().enumerate().flat_map(of).collect();
        let tokens: usize = instances.iter().map(|instance| instance.tokens).sum();
        let ring = Ring::new(instances, replication, picked, &mut chance(seed));
        prop_assert_eq!(ring.tokens.len(), tokens);
        prop_assert!(ring.tokens.windows(2).all(|pair| pair[0].at < pair[1].at));
        let shares: f64 = (0..tokens).map(|token| ring.share(token)).sum();
        prop_assert!((shares - 1.0).abs() < 1e-9, "{}", shares);
        if servers.len() >= replication {
            prop_assert_eq!(ring.placement(replication).doubled(), 0.0);
            let lost = ring.placement(replication).lost_with(&|server| server);
            prop_assert!(replication < 3 || lost == 0.0, "{}", lost);
        }
    }

    /// If all servers are equal and there are enough, all instances have equally many replicas.
    #[test]
    fn even_tokens_are_even(
        servers in 3_usize..24,
        each in 1_usize..4,
        tokens in 1_usize..17,
        seed: u64,
    ) {
        let instances = instances(servers, each, tokens, false);
        let ring = Ring::new(instances, 3, TokenAllocation::Even, &mut chance(seed));
        let (most, least) = ring.placement(3).balance();
        prop_assert!(most < 1.0 + 1e-6 && least > 1.0 - 1e-6, "{} {}", most, least);
    }

    /// Instances that join a ring get tokens between those of others, which do not move. No row has
    /// two replicas on one server where that can be avoided.
    #[test]
    fn joining_instances_move_no_token(
        servers in prop::collection::vec((1_usize..3, 1_usize..9), 1..12),
        newcomers in prop::collection::vec((1_usize..3, 1_usize..9), 1..6),
        replication in 1_usize..4,
        seed: u64,
    ) {
        let of = |(server, (each, tokens)): (usize, &(usize, usize))| {
            vec![Instance { server, rack: server, tokens: *tokens }; *each]
        };
        let there: Vec<Instance> = servers.iter().enumerate().flat_map(of).collect();
        let old = Ring::new(there.clone(), replication, TokenAllocation::Even, &mut chance(seed));
        let all: Vec<Instance> =
            servers.iter().chain(&newcomers).enumerate().flat_map(of).collect();
        let mut taken = vec![Vec::new(); all.len()];
        old.tokens.iter().for_each(|token| taken[token.instance].push(token.at));
        let ring = Ring::extended(all.clone(), &taken, replication);
        let tokens = all.iter().map(|instance| instance.tokens).sum::<usize>();
        prop_assert_eq!(ring.tokens.len(), tokens);
        prop_assert!(ring.tokens.windows(2).all(|pair| pair[0].at < pair[1].at));
        prop_assert!(old.tokens.iter().all(|token| ring.tokens.contains(token)), "a token moved");
        for (number, instance) in all.iter().enumerate() {
            let own = ring.tokens.iter().filter(|token| token.instance == number);
            prop_assert_eq!(own.count(), instance.tokens);
        }
        if servers.len() + newcomers.len() >= replication {
            prop_assert_eq!(ring.placement(replication).doubled(), 0.0);
        }
    }
}

/// After a ring has grown by several servers, at once or one after another, all instances have
/// about equally many replicas. The seeds are fixed: of a million random rings a few are a little
/// worse, without a fault.
#[test]
fn joining_instances_take_their_share() {
    let grown = |servers: usize, more: usize, at_once: bool, seed: u64| {
        let mut all = instances(servers, 1, 16, false);
        let mut ring = Ring::new(all.clone(), 3, TokenAllocation::Even, &mut chance(seed));
        for server in servers..servers + more {
            all.push(Instance { server, rack: server, tokens: 16 });
            if !at_once || server + 1 == servers + more {
                let mut taken = vec![Vec::new(); all.len()];
                ring.tokens.iter().for_each(|token| taken[token.instance].push(token.at));
                ring = Ring::extended(all.clone(), &taken, 3);
            }
        }
        ring.placement(3).balance()
    };
    for (servers, more) in (3..12).flat_map(|servers| (1..12).map(move |more| (servers, more))) {
        for (at_once, seed) in
            [true, false].into_iter().flat_map(|at_once| (0..16).map(move |seed| (at_once, seed)))
        {
            let (most, least) = grown(servers, more, at_once, seed);
            assert!(
                most < 1.35 && least > 0.65,
                "{servers} + {more}, at once {at_once}, seed {seed}: {most} {least}"
            );
        }
    }
}
