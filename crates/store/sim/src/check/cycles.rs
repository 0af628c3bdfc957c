//! Checks that transactions, and calls on single objects, took effect one after another: that there
//! is an order of all of them that fits every object and real time.
//!
//! The calls and their order on one object follow from versions. A call that wrote version 5 comes
//! after the one that wrote version 4, and before those that have read version 5, which come before
//! the one that wrote version 6. A call also comes after all calls that had their response before
//! it was invoked. If these demands have a cycle, no order exists (Adya, Liskov, O'Neil:
//! *Generalized Isolation Level Definitions*, ICDE 2000). Calls whose effect or version is unknown
//! are left out.

use crate::history::{Action, History, OPEN, ObjectName, Operation, Response, Value};
use sprat_wire::op::Condition;
use std::collections::{BTreeMap, HashMap, HashSet};

/// The largest number of calls of a cycle that are shown.
const MAX_SHOWN: usize = 12;

/// A transaction, or a call on a single object.
struct Node<'a> {
    parts: Vec<&'a Operation>,
    invoked: u64,
    returned: u64,
}

/// A change of an object: the version that was written, or (with `true`) removed.
type Change = (u64, bool);

/// Checks a history.
///
/// # Errors
/// Describes a cycle, or a version that two calls have written.
pub fn check(history: &History) -> Result<(), String> {
    let nodes = nodes(history);
    let mut written: HashMap<Value, u64> = HashMap::new();
    for operation in &history.operations {
        if let Response::Found { version, value: value @ Value::Text { .. } } = operation.response {
            written.insert(value, version);
        }
    }
    let mut changes: BTreeMap<ObjectName, BTreeMap<Change, usize>> = BTreeMap::new();
    for (index, part) in parts(&nodes) {
        let Some(change) = change(part, &written) else { continue };
        let before = changes.entry(part.name).or_default().insert(change, index);
        if let Some(before) = before.filter(|before| *before != index) {
            return Err(format!(
                "two calls made version {} of {}:\n{}",
                change.0,
                part.name,
                describe(&nodes, &[before, index])
            ));
        }
    }
    // After the nodes come the responses, in the order of their moments: a chain that stands for
    // real time.
    let mut edges = vec![Vec::new(); 2 * nodes.len()];
    let mut responses: Vec<usize> = (0..nodes.len()).collect();
    responses.sort_by_key(|&index| nodes[index].returned);
    for (rank, &index) in responses.iter().enumerate() {
        edges[index].push(nodes.len() + rank);
        if rank > 0 {
            edges[nodes.len() + rank - 1].push(nodes.len() + rank);
        }
    }
    for (index, node) in nodes.iter().enumerate() {
        let earlier = responses.partition_point(|&one| nodes[one].returned < node.invoked);
        if earlier > 0 {
            edges[nodes.len() + earlier - 1].push(index);
        }
    }
    for changes in changes.values() {
        for (one, next) in changes.values().zip(changes.values().skip(1)) {
            if one != next {
                edges[*one].push(*next);
            }
        }
    }
    for (index, part) in parts(&nodes) {
        let (Some(read), Some(changes)) = (read(part), changes.get(&part.name)) else { continue };
        if let Some(&writer) = changes.get(&(read, false)).filter(|&&writer| writer != index) {
            edges[writer].push(index);
        }
        if let Some((_, &next)) = changes.range((read, true)..).next()
            && next != index
        {
            edges[index].push(next);
        }
    }
    match cycle(&edges) {
        None => Ok(()),
        Some(cycle) => {
            let calls: Vec<usize> =
                cycle.into_iter().filter(|&index| index < nodes.len()).collect();
            Err(format!("a cycle of calls, each before the next:\n{}", describe(&nodes, &calls)))
        }
    }
}

fn parts<'a, 'n>(
    nodes: &'n [Node<'a>],
) -> impl Iterator<Item = (usize, &'a Operation)> + use<'a, 'n> {
    let each =
        |(index, node): (usize, &'n Node<'a>)| node.parts.iter().map(move |part| (index, *part));
    nodes.iter().enumerate().flat_map(each)
}

/// Returns the transactions and calls that certainly took place.
fn nodes(history: &History) -> Vec<Node<'_>> {
    let is_certain = |part: &&Operation| {
        part.returned != OPEN && !matches!(part.response, Response::Unknown | Response::NotDone)
    };
    let mut nodes = Vec::new();
    let mut grouped: HashSet<usize> = HashSet::new();
    for numbers in &history.transactions {
        grouped.extend(numbers);
        let parts: Vec<_> = numbers.iter().map(|&number| &history.operations[number]).collect();
        if parts.iter().all(is_certain) {
            let invoked = parts.iter().map(|part| part.invoked).max().unwrap_or(0);
            let returned = parts.iter().map(|part| part.returned).min().unwrap_or(0);
            nodes.push(Node { parts, invoked, returned });
        }
    }
    let single = history.operations.iter().filter(|part| !grouped.contains(&part.number));
    for part in single.filter(is_certain) {
        let (invoked, returned) = (part.invoked, part.returned);
        nodes.push(Node { parts: vec![part], invoked, returned });
    }
    nodes
}

/// Returns the version that a call has read, if it is known.
fn read(part: &Operation) -> Option<u64> {
    match (part.action, part.response) {
        (_, Response::Found { version, .. }) => Some(version),
        (
            Action::Write { condition: Condition::Version(version), .. }
            | Action::Remove { condition: Condition::Version(version) },
            Response::Committed | Response::Done { .. },
        ) => Some(version),
        _ => None,
    }
}

/// Returns the change that a call has made, if its version is known.
fn change(part: &Operation, written: &HashMap<Value, u64>) -> Option<Change> {
    match (part.action, part.response) {
        (Action::Write { .. }, Response::Done { version })
        | (Action::Increment { .. }, Response::Sum { version, .. }) => Some((version, false)),
        (Action::Remove { .. }, Response::Done { version }) => Some((version, true)),
        (Action::Write { condition: Condition::Version(version), .. }, Response::Committed) => {
            Some((version + 1, false))
        }
        (Action::Write { value, .. }, Response::Committed) => {
            written.get(&value).map(|version| (*version, false))
        }
        (Action::Remove { condition: Condition::Version(version) }, Response::Committed) => {
            Some((version, true))
        }
        _ => None,
    }
}

/// Returns a cycle of a graph, if there is one.
fn cycle(edges: &[Vec<usize>]) -> Option<Vec<usize>> {
    let mut incoming = vec![0_usize; edges.len()];
    edges.iter().flatten().for_each(|&to| incoming[to] += 1);
    let mut free: Vec<usize> = (0..edges.len()).filter(|&index| incoming[index] == 0).collect();
    while let Some(index) = free.pop() {
        for &to in &edges[index] {
            incoming[to] -= 1;
            if incoming[to] == 0 {
                free.push(to);
            }
        }
    }
    // What is left is in cycles, or behind them. Going back from there leads round a cycle.
    let start = incoming.iter().position(|&left| left > 0)?;
    let mut before = vec![None; edges.len()];
    for (index, to) in edges.iter().enumerate().filter(|(index, _)| incoming[*index] > 0) {
        to.iter().for_each(|&to| before[to] = Some(index));
    }
    let mut path = vec![start];
    let mut seen: HashMap<usize, usize> = HashMap::from([(start, 0)]);
    loop {
        let at = before[*path.last()?]?;
        if let Some(&from) = seen.get(&at) {
            let mut cycle = path.split_off(from);
            cycle.reverse();
            return Some(cycle);
        }
        seen.insert(at, path.len());
        path.push(at);
    }
}

fn describe(nodes: &[Node<'_>], calls: &[usize]) -> String {
    let shown = calls.iter().take(MAX_SHOWN).map(|&index| {
        let parts: Vec<String> = nodes[index].parts.iter().map(ToString::to_string).collect();
        parts.join("\n    ")
    });
    let mut lines: Vec<String> = shown.collect();
    if calls.len() > MAX_SHOWN {
        lines.push(format!("and {} more", calls.len() - MAX_SHOWN));
    }
    lines.join("\n")
}
