//! Estimates a fabric's bisection width: how many cables must be cut to separate its chassis into
//! halves.

use super::Fabric;

/// Limit on the rounds of improvement from each start, and on the rounds of [`settle`]. A round
/// exchanges one pair of chassis; most searches end before the limit.
const MAX_ROUNDS: usize = 64;

/// Number of partitions from which the search starts.
const BEGINNINGS: usize = 8;

/// Returns the number of cables in the smallest cut that was found between two halves of the
/// chassis. It is an upper bound of the bisection width: finding the true minimum is NP-hard.
#[must_use]
pub fn bisection(fabric: &Fabric) -> usize {
    let starts = BEGINNINGS.min(fabric.stations);
    (0..starts).map(|start| improved(fabric, start * fabric.stations / starts)).min().unwrap_or(0)
}

/// Starts with the half of the chassis that is nearest to `start`, and exchanges pairs of chassis
/// while an exchange makes the cut smaller. Returns the number of cables in the cut.
fn improved(fabric: &Fabric, start: usize) -> usize {
    let hops = fabric.hops(start);
    let mut order: Vec<usize> = (0..fabric.stations).collect();
    order.sort_by_key(|station| (hops[*station], *station));
    let mut in_half = vec![false; fabric.switches];
    order[..fabric.stations / 2].iter().for_each(|station| in_half[*station] = true);
    settle(fabric, &mut in_half);
    let mut best = cut(fabric, &in_half);
    for _ in 0..MAX_ROUNDS {
        let gain = |in_half: &[bool], station: usize| gain(fabric, in_half, station);
        let (ours, theirs): (Vec<usize>, Vec<usize>) =
            (0..fabric.stations).partition(|station| in_half[*station]);
        let Some(one) = ours.into_iter().max_by_key(|station| gain(&in_half, *station)) else {
            break;
        };
        // Both gains count a link between the two chassis, but this link stays in the cut.
        let joined = |other: usize| {
            let links = fabric.neighbours(other).iter().filter(|neighbour| neighbour.switch == one);
            2 * links.map(|neighbour| count(fabric, neighbour.link)).sum::<i64>()
        };
        let Some(other) =
            theirs.into_iter().max_by_key(|station| gain(&in_half, *station) - joined(*station))
        else {
            break;
        };
        let before = in_half.clone();
        in_half[one] = false;
        in_half[other] = true;
        settle(fabric, &mut in_half);
        let now = cut(fabric, &in_half);
        if now >= best {
            in_half = before;
            break;
        }
        best = now;
    }
    assert_eq!(cut(fabric, &in_half), best, "the cut is that of the halves");
    best
}

/// Moves each switch without servers to the side to which most of its cables lead, until none
/// moves, but for at most [`MAX_ROUNDS`] rounds.
fn settle(fabric: &Fabric, in_half: &mut [bool]) {
    for _ in 0..MAX_ROUNDS {
        let mut moved = false;
        for switch in fabric.stations..fabric.switches {
            if gain(fabric, in_half, switch) > 0 {
                in_half[switch] = !in_half[switch];
                moved = true;
            }
        }
        if !moved {
            return;
        }
    }
}

/// Returns the number of cables by which the cut shrinks if `switch` changes sides.
fn gain(fabric: &Fabric, in_half: &[bool], switch: usize) -> i64 {
    let side = |other: usize| if in_half[other] == in_half[switch] { -1 } else { 1 };
    fabric
        .neighbours(switch)
        .iter()
        .map(|neighbour| side(neighbour.switch) * count(fabric, neighbour.link))
        .sum()
}

fn count(fabric: &Fabric, link: usize) -> i64 {
    i64::try_from(fabric.links[link].count).unwrap_or(i64::MAX)
}

fn cut(fabric: &Fabric, in_half: &[bool]) -> usize {
    fabric
        .links
        .iter()
        .filter(|link| in_half[link.a] != in_half[link.b])
        .map(|link| link.count)
        .sum()
}
