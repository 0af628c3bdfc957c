//! Servers share memory, requests and tablets.

use proptest::prelude::*;
use sprat_store::coordinator::balance::{
    Burden, LEAST_FILL, Sake, UNEVEN_FILL, UNEVEN_REQUESTS, Weighed, next,
};
use sprat_wire::tablet::{Range, Tablet};

const CAPACITY: u64 = 1000 << 20;
const MOST_MOVES: usize = 1000;

/// A server with tables in parts, each of so many MB and requests a second.
fn server(id: u32, tablets: &[(u64, u64)]) -> Burden {
    let tablets = tablets.iter().enumerate().map(|(at, &(megabytes, requests))| {
        // Tablets of a table each, of which nobody sees that they are not all of it.
        let table = id * 1000 + u32::try_from(at).unwrap();
        Weighed {
            tablet: Tablet { table, range: Range { first: 0, last: u64::MAX - 1 } },
            bytes: megabytes << 20,
            requests,
            second_half: requests / 2,
            divides: true,
        }
    });
    Burden { server: id, capacity: CAPACITY, gives: true, takes: true, tablets: tablets.collect() }
}

/// Does as it is said; why.
fn step(burdens: &mut [Burden]) -> Option<Sake> {
    let (moved, to, sake) = next(burdens)?;
    let from = burdens.iter_mut().find_map(|burden| {
        let has = |weighed: &Weighed| {
            weighed.tablet.table == moved.table
                && weighed.tablet.range.overlap(moved.range) == Some(moved.range)
        };
        let at = burden.tablets.iter().position(has)?;
        Some((burden.server, &mut burden.tablets, at))
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
        tablets[at] = Weighed {
            tablet,
            bytes: whole.bytes - bytes,
            requests: rest,
            second_half: rest / 2,
            ..whole
        };
        Weighed { tablet: moved, bytes, requests, second_half: requests / 2, ..whole }
    };
    let to = burdens.iter_mut().find(|burden| burden.server == to).unwrap();
    assert!(to.takes);
    to.tablets.push(piece);
    Some(sake)
}

fn settle(burdens: &mut [Burden]) -> Vec<Sake> {
    let moves: Vec<_> = std::iter::from_fn(|| step(burdens)).take(MOST_MOVES).collect();
    assert!(moves.len() < MOST_MOVES, "it never ends: {:?}", &moves[MOST_MOVES - 9..]);
    moves
}

fn spread(burdens: &[Burden], measure: impl Fn(&Burden) -> u64) -> u64 {
    let measured: Vec<u64> = burdens.iter().map(measure).collect();
    measured.iter().max().unwrap() - measured.iter().min().unwrap()
}

#[test]
fn who_is_fullest_gives_to_who_has_most_room() {
    let mut burdens =
        [server(1, &[(300, 0), (200, 0), (50, 0)]), server(2, &[(100, 0), (100, 0), (20, 0)])];
    assert_eq!(settle(&mut burdens)[0], Sake::Memory);
    assert!(spread(&burdens, Burden::fill) <= UNEVEN_FILL, "{burdens:?}");
}

#[test]
fn one_tablet_that_all_ask_for_is_divided() {
    let mut burdens = [server(1, &[(10, 90_000), (10, 10)]), server(2, &[(10, 10), (10, 10)])];
    let moves = settle(&mut burdens);
    assert_eq!(moves[0], Sake::Requests);
    assert!(spread(&burdens, Burden::requests) <= UNEVEN_REQUESTS + 90_000 / 4, "{burdens:?}");
}

/// However often it is divided, the key is in one part.
#[test]
fn a_tablet_is_not_divided_for_one_key_that_all_ask_for() {
    for second_half in [0, 90_000] {
        let mut burdens = [server(1, &[(10, 90_000), (10, 10)]), server(2, &[(10, 10), (10, 10)])];
        burdens[0].tablets[0].second_half = second_half;
        assert_eq!(next(&burdens).map(|(tablet, ..)| tablet), None, "{second_half}");
    }
}

#[test]
fn a_table_that_was_to_be_whole_stays_whole() {
    let mut burdens = [server(1, &[(900, 90_000)]), server(2, &[])];
    burdens[0].tablets[0].divides = false;
    assert_eq!(settle(&mut burdens), [Sake::Memory; 0], "to move it would change nothing");
}

#[test]
fn requests_are_not_evened_at_the_cost_of_memory() {
    let mut burdens = [server(1, &[(100, 50_000), (100, 50_000)]), server(2, &[(250, 0)])];
    burdens
        .iter_mut()
        .flat_map(|burden| &mut burden.tablets)
        .for_each(|weighed| weighed.divides = false);
    assert_eq!(settle(&mut burdens), [Sake::Memory; 0]);
}

#[test]
fn nothing_moves_from_or_to_those_that_may_not() {
    let mut burdens = [server(1, &[(500, 0), (100, 0)]), server(2, &[]), server(3, &[(10, 0)])];
    burdens[1].takes = false;
    assert!(!settle(&mut burdens).is_empty());
    assert_eq!(burdens[1].tablets.len(), 0);
    let mut burdens = [server(1, &[(500, 0), (100, 0)]), server(2, &[])];
    burdens[0].gives = false;
    assert_eq!(settle(&mut burdens), [Sake::Memory; 0]);
}

proptest! {
    /// Whatever servers have: after some moves there are no more, and as far as tablets can be divided all is shared.
    #[test]
    fn it_ends_and_is_even(
        tablets in prop::collection::vec(prop::collection::vec((0..200_u64, 0..30_000_u64), 0..5), 2..6), divides: bool,
    ) {
        let mut burdens: Vec<Burden> = (1..).zip(&tablets).map(|(id, tablets)| server(id, tablets)).collect();
        burdens.iter_mut().flat_map(|burden| &mut burden.tablets).for_each(|weighed| weighed.divides = divides);
        let before = (spread(&burdens, Burden::fill), spread(&burdens, Burden::requests));
        let number: usize = burdens.iter().map(|burden| burden.tablets.len()).sum();
        let moves = settle(&mut burdens);
        let after = spread(&burdens, Burden::fill);
        prop_assert!(after <= before.0.max(UNEVEN_FILL), "{after} of {}", before.0);
        if divides {
            prop_assert!(after <= UNEVEN_FILL + LEAST_FILL, "{after} of {}, {moves:?}", before.0);
        } else {
            prop_assert_eq!(burdens.iter().map(|burden| burden.tablets.len()).sum::<usize>(), number);
        }
        prop_assert!(burdens.iter().all(|burden| burden.tablets.iter().all(|weighed| weighed.tablet.range.first <= weighed.tablet.range.last)));
    }
}
