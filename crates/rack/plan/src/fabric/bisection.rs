//! Estimates a fabric's bisection width: how many cables must be cut to separate its chassis into
//! halves.

use super::Fabric;

/// The most rounds of improvement from each start. A round exchanges one pair of chassis; most
/// searches end earlier.
const MAX_ROUNDS: usize = 64;

/// Number of starting partitions.
const BEGINNINGS: usize = 8;

/// Returns the number of cables in the smallest cut found between two halves of the chassis. It is
/// an upper bound: finding the true minimum is NP-hard.
#[must_use]
pub fn bisection(fabric: &Fabric) -> usize {
    let starts = BEGINNINGS.min(fabric.stations);
    (0..starts).map(|start| improved(fabric, start * fabric.stations / starts)).min().unwrap_or(0)
}

/// Starts with the half of the chassis that is nearest to `start`, and exchanges pairs of chassis
/// while that makes the cut smaller.
fn improved(fabric: &Fabric, start: usize) -> usize {
    let hops = fabric.hops(start);
    let mut order: Vec<usize> = (0..fabric.stations).collect();
    order.sort_by_key(|station| (hops[*station], *station));
    let mut here = vec![false; fabric.switches];
    order[..fabric.stations / 2].iter().for_each(|station| here[*station] = true);
    settle(fabric, &mut here);
    let mut best = cut(fabric, &here);
    for _ in 0..MAX_ROUNDS {
        let gain = |here: &[bool], station: usize| gain(fabric, here, station);
        let (ours, theirs): (Vec<usize>, Vec<usize>) =
            (0..fabric.stations).partition(|station| here[*station]);
        let Some(one) = ours.into_iter().max_by_key(|station| gain(&here, *station)) else { break };
        // Both gains count a link between the two chassis, which stays in the cut.
        let joined = |other: usize| {
            let links = fabric.neighbours(other).iter().filter(|neighbour| neighbour.switch == one);
            2 * links.map(|neighbour| count(fabric, neighbour.link)).sum::<i64>()
        };
        let Some(other) =
            theirs.into_iter().max_by_key(|station| gain(&here, *station) - joined(*station))
        else {
            break;
        };
        let before = here.clone();
        here[one] = false;
        here[other] = true;
        settle(fabric, &mut here);
        let now = cut(fabric, &here);
        if now >= best {
            here = before;
            break;
        }
        best = now;
    }
    assert_eq!(cut(fabric, &here), best, "the cut is that of the halves");
    best
}

/// Moves each switch without servers to the side that most of its links lead to, until none moves.
fn settle(fabric: &Fabric, here: &mut [bool]) {
    for _ in 0..MAX_ROUNDS {
        let mut moved = false;
        for switch in fabric.stations..fabric.switches {
            if gain(fabric, here, switch) > 0 {
                here[switch] = !here[switch];
                moved = true;
            }
        }
        if !moved {
            return;
        }
    }
}

/// Returns by how many cables the cut shrinks if `switch` changes sides.
fn gain(fabric: &Fabric, here: &[bool], switch: usize) -> i64 {
    let side = |other: usize| if here[other] == here[switch] { -1 } else { 1 };
    fabric
        .neighbours(switch)
        .iter()
        .map(|neighbour| side(neighbour.switch) * count(fabric, neighbour.link))
        .sum()
}

fn count(fabric: &Fabric, link: usize) -> i64 {
    i64::try_from(fabric.links[link].count).unwrap_or(i64::MAX)
}

fn cut(fabric: &Fabric, here: &[bool]) -> usize {
    fabric.links.iter().filter(|link| here[link.a] != here[link.b]).map(|link| link.count).sum()
}
