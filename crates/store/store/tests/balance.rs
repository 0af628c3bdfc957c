//! Balancing evens out memory, requests and tablets among servers, and ends.

use proptest::prelude::*;
use sprat_store::coordinator::balance::{
    LEAST_FILL, Objective, PlannedMove, ServerLoad, TabletLoad, UNEVEN_FILL, UNEVEN_REQUESTS, next,
};
use sprat_wire::tablet::{Range, Tablet};

const CAPACITY: u64 = 1000 << 20;
const MOST_MOVES: usize = 1000;

/// Returns a server with these tablets, given by the megabytes and the requests a second of each.
fn server_load(id: u32, tablets: &[(u64, u64)]) -> ServerLoad {
    let tablets = tablets.iter().enumerate().map(|(at, &(megabytes, requests))| {
        // Each tablet is part of a table of its own.
        let table = id * 1000 + u32::try_from(at).unwrap();
        TabletLoad {
            tablet: Tablet { table, range: Range { first: 0, last: u64::MAX - 1 } },
            bytes: megabytes << 20,
            requests,
            second_half: requests / 2,
            divides: true,
        }
    });
    ServerLoad {
        server: id,
        capacity: CAPACITY,
        gives: true,
        takes: true,
        tablets: tablets.collect(),
    }
}

/// Carries out the next move and returns its objective.
fn step(servers: &mut [ServerLoad]) -> Option<Objective> {
    let PlannedMove { tablet: moved, to, objective } = next(servers)?;
    let from = servers.iter_mut().find_map(|server| {
        let has = |load: &TabletLoad| {
            load.tablet.table == moved.table
                && load.tablet.range.overlap(moved.range) == Some(moved.range)
        };
        let at = server.tablets.iter().position(has)?;
        Some((server.server, &mut server.tablets, at))
    });
    let (from, tablets, at) = from.expect("somebody has it");
    assert_ne!(from, to);
    let whole = tablets[at];
    let piece = if whole.tablet == moved {
        tablets.remove(at)
    } else {
        let range = whole.tablet.range.parts(2)[0];
        let (bytes, requests) = (whole.bytes / 2, whole.second_half);
        let tablet = Tablet { range, ..whole.tablet };
        let rest = whole.requests - requests;
        tablets[at] = TabletLoad {
            tablet,
            bytes: whole.bytes - bytes,
            requests: rest,
            second_half: rest / 2,
            ..whole
        };
        TabletLoad { tablet: moved, bytes, requests, second_half: requests / 2, ..whole }
    };
    let to = servers.iter_mut().find(|server| server.server == to).unwrap();
    assert!(to.takes);
    to.tablets.push(piece);
    Some(objective)
}

fn settle(servers: &mut [ServerLoad]) -> Vec<Objective> {
    let moves: Vec<_> = std::iter::from_fn(|| step(servers)).take(MOST_MOVES).collect();
    assert!(moves.len() < MOST_MOVES, "the moves never end: {:?}", &moves[MOST_MOVES - 9..]);
    moves
}

fn spread(servers: &[ServerLoad], measure: impl Fn(&ServerLoad) -> u64) -> u64 {
    let measured: Vec<u64> = servers.iter().map(measure).collect();
    measured.iter().max().unwrap() - measured.iter().min().unwrap()
}

#[test]
fn the_fullest_server_gives_to_the_emptiest() {
    let mut servers = [
        server_load(1, &[(300, 0), (200, 0), (50, 0)]),
        server_load(2, &[(100, 0), (100, 0), (20, 0)]),
    ];
    assert_eq!(settle(&mut servers)[0], Objective::Memory);
    assert!(spread(&servers, ServerLoad::fill) <= UNEVEN_FILL, "{servers:?}");
}

#[test]
fn a_hot_tablet_is_divided() {
    let mut servers =
        [server_load(1, &[(10, 90_000), (10, 10)]), server_load(2, &[(10, 10), (10, 10)])];
    let moves = settle(&mut servers);
    assert_eq!(moves[0], Objective::Requests);
    assert!(spread(&servers, ServerLoad::requests) <= UNEVEN_REQUESTS + 90_000 / 4, "{servers:?}");
}

/// However small the parts of the tablet, the hot key would be in one of them.
#[test]
fn a_tablet_with_one_hot_key_is_not_divided() {
    for second_half in [0, 90_000] {
        let mut servers =
            [server_load(1, &[(10, 90_000), (10, 10)]), server_load(2, &[(10, 10), (10, 10)])];
        servers[0].tablets[0].second_half = second_half;
        assert_eq!(next(&servers).map(|planned| planned.tablet), None, "{second_half}");
    }
}

#[test]
fn a_table_created_with_one_tablet_is_not_divided() {
    let mut servers = [server_load(1, &[(900, 90_000)]), server_load(2, &[])];
    servers[0].tablets[0].divides = false;
    assert_eq!(settle(&mut servers), [Objective::Memory; 0], "to move it would change nothing");
}

#[test]
fn balancing_requests_does_not_unbalance_memory() {
    let mut servers =
        [server_load(1, &[(100, 50_000), (100, 50_000)]), server_load(2, &[(250, 0)])];
    servers.iter_mut().flat_map(|server| &mut server.tablets).for_each(|load| load.divides = false);
    assert_eq!(settle(&mut servers), [Objective::Memory; 0]);
}

#[test]
fn servers_that_may_not_give_or_take_are_left_out() {
    let mut servers =
        [server_load(1, &[(500, 0), (100, 0)]), server_load(2, &[]), server_load(3, &[(10, 0)])];
    servers[1].takes = false;
    assert!(!settle(&mut servers).is_empty());
    assert_eq!(servers[1].tablets.len(), 0);
    let mut servers = [server_load(1, &[(500, 0), (100, 0)]), server_load(2, &[])];
    servers[0].gives = false;
    assert_eq!(settle(&mut servers), [Objective::Memory; 0]);
}

proptest! {
    /// Balancing ends for any loads. If tablets can be divided, memory is even at the end.
    #[test]
    fn balancing_ends_and_evens_out_memory(
        tablets in
            prop::collection::vec(prop::collection::vec((0..200_u64, 0..30_000_u64), 0..5), 2..6),
        divides: bool,
    ) {
        let mut servers: Vec<ServerLoad> =
            (1..).zip(&tablets).map(|(id, tablets)| server_load(id, tablets)).collect();
        servers
            .iter_mut()
            .flat_map(|server| &mut server.tablets)
            .for_each(|load| load.divides = divides);
        let before = (spread(&servers, ServerLoad::fill), spread(&servers, ServerLoad::requests));
        let number: usize = servers.iter().map(|server| server.tablets.len()).sum();
        let moves = settle(&mut servers);
        let after = spread(&servers, ServerLoad::fill);
        prop_assert!(after <= before.0.max(UNEVEN_FILL), "{after} of {}", before.0);
        if divides {
            prop_assert!(after <= UNEVEN_FILL + LEAST_FILL, "{after} of {}, {moves:?}", before.0);
        } else {
            prop_assert_eq!(
                servers.iter().map(|server| server.tablets.len()).sum::<usize>(),
                number
            );
        }
        let mut tablets = servers.iter().flat_map(|server| &server.tablets);
        prop_assert!(tablets.all(|load| load.tablet.range.first <= load.tablet.range.last));
    }
}
