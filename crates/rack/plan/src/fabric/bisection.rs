//! How many cables must be cut to part a fabric's chassis into halves.

use super::Fabric;

/// Rounds of improvement from each beginning; each takes a pair at a time across, and most end by
/// themselves.
const MAX_ROUNDS: usize = 64;

/// Beginnings.
const BEGINNINGS: usize = 8;

/// Cables in the smallest cut found between two halves of the chassis. It is a bound from above: no
/// other cut that was tried is smaller, and to be sure that none is takes forever.
#[must_use]
pub fn bisection(fabric: &Fabric) -> usize {
    let starts = BEGINNINGS.min(fabric.stations);
    (0..starts).map(|start| improved(fabric, start * fabric.stations / starts)).min().unwrap_or(0)
}

/// Begins with the half that is nearest to `start`, and exchanges chassis while that helps.
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
        // A link between the two would be counted by both.
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

/// Puts each switch without servers where most of its links lead, until none moves.
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

/// Cables fewer in the cut if a switch goes to the other side.
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
