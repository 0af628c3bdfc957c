//! What a coordinator assigns to a server: tablets, recoveries and moves, and what the server must
//! know of others.

use super::moving::MoveOrder;
use super::records::{Records, ServerRecord, push_counter, push_server};
use crate::index::SortOrder;
use crate::tablet::{Range, Tablet};

/// An order to recover tablets of a failed server.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RecoveryOrder {
    /// Id of the order; unique in the cluster.
    pub id: u64,
    /// Server id of the failed master.
    pub master: u32,
    /// Open heads of the failed master's log below this segment are void (the recovery ignores
    /// them); zero when that master never began a log.
    pub min_open: u64,
    /// Number of servers that recover parts of this master, as far as the coordinator knows.
    pub askers: u32,
    /// Tablets to recover, ascending. The number with each tablet is a segment of the master's log;
    /// entries of earlier segments do not count for this tablet.
    pub tablets: Vec<(Tablet, u64)>,
}

/// All that a coordinator assigns to a server.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Assignment {
    /// The tablets that the server serves, ascending.
    pub tablets: Vec<Tablet>,
    /// How long the server may serve these tablets, in microseconds, counted from when it sent its
    /// request. Zero: without limit, because no other server could take the tablets over.
    pub lease_micros: u64,
    /// Open heads of the server's log below this segment are void (a recovery ignores them), as the
    /// server has reported.
    pub min_open: u64,
    /// Servers that keep replicas for others, this server included.
    pub members: Vec<ServerRecord>,
    /// Masters whose replicas are still needed; the server must keep these replicas.
    pub masters: Vec<u32>,
    /// The id that the next server to enlist gets; `masters` says nothing about this id and higher
    /// ones. Zero: the map has not changed, and only the lease is valid.
    pub next_server: u32,
    /// Orders to recover tablets.
    pub orders: Vec<RecoveryOrder>,
    /// Ids and names of the tables that the server serves. It needs the names to check grants.
    pub names: Vec<(u32, String)>,
    /// Moves of tablets from or to this server.
    pub moves: Vec<MoveOrder>,
    /// Ids of the tables whose objects are [evicted](super::WhenFull::Evict) and of which the
    /// server has tablets, or gets some.
    pub evicting: Vec<u32>,
    /// The orders in which the server keeps objects of ordered tables, and of tables with indexes,
    /// of which it has tablets, or gets some by a move or a recovery.
    pub sort_orders: Vec<SortOrder>,
}

/// The largest number of items in a list. A longer list is taken for damage.
const MAX_LIST: u64 = 1 << 16;

impl Assignment {
    /// Appends the assignment to a body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        push_counter(out, "lease", self.lease_micros);
        push_counter(out, "min_open", self.min_open);
        push_counter(out, "next_server", self.next_server.into());
        push_words(out, "tablets", self.tablets.iter().copied().map(words_of));
        push_words(out, "masters", self.masters.iter().map(|&id| [id.into()]));
        push_counter(out, "members", self.members.len() as u64);
        self.members.iter().for_each(|member| push_server(out, member));
        push_counter(out, "orders", self.orders.len() as u64);
        for order in &self.orders {
            push_counter(out, "order", order.id);
            push_counter(out, "master", order.master.into());
            push_counter(out, "min_open", order.min_open);
            push_counter(out, "askers", order.askers.into());
            let with_since = |&(tablet, since): &(Tablet, u64)| {
                let [table, first, last] = words_of(tablet);
                [table, first, last, since]
            };
            push_words(out, "tablets", order.tablets.iter().map(with_since));
        }
        push_counter(out, "names", self.names.len() as u64);
        self.names.iter().for_each(|(id, name)| push_counter(out, name, u64::from(*id)));
        let row = |order: &MoveOrder| {
            let [table, first, last] = words_of(order.tablet);
            [order.id, table, first, last, order.from.into(), order.to.into()]
        };
        push_words(out, "moves", self.moves.iter().map(row));
        // Programs from before there was eviction, or order, can parse the others.
        if !self.evicting.is_empty() || !self.sort_orders.is_empty() {
            push_words(out, "evicting", self.evicting.iter().map(|&id| [id.into()]));
        }
        if !self.sort_orders.is_empty() {
            push_counter(out, "sort_orders", self.sort_orders.len() as u64);
            self.sort_orders.iter().for_each(|order| order.push_to(out));
        }
    }

    /// Parses a body; `None` when it is not an assignment.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let records = &mut Records::new(body);
        let lease_micros = records.named("lease")?;
        let min_open = records.named("min_open")?;
        let next_server = u32::try_from(records.named("next_server")?).ok()?;
        let tablets =
            words(records, "tablets")?.into_iter().map(tablet_of).collect::<Option<Vec<_>>>()?;
        let masters = ids(records, "masters")?;
        let count = list(records, "members")?;
        let members = (0..count).map(|_| records.server()).collect::<Option<_>>()?;
        let count = list(records, "orders")?;
        let orders = (0..count).map(|_| order(records)).collect::<Option<_>>()?;
        let count = list(records, "names")?;
        let names = (0..count).map(|_| name(records)).collect::<Option<_>>()?;
        let moves = words(records, "moves")?.into_iter().map(move_order).collect::<Option<_>>()?;
        let evicting = if records.is_done() { Vec::new() } else { ids(records, "evicting")? };
        let count = if records.is_done() { 0 } else { list(records, "sort_orders")? };
        let sort_orders = (0..count).map(|_| SortOrder::read(records)).collect::<Option<_>>()?;
        let sensible = records.is_done() && are_apart(tablets.iter());
        let whole = Self {
            tablets,
            lease_micros,
            min_open,
            members,
            masters,
            next_server,
            orders,
            names,
            moves,
            evicting,
            sort_orders,
        };
        sensible.then_some(whole)
    }
}

fn ids(records: &mut Records<'_>, name: &str) -> Option<Vec<u32>> {
    words(records, name)?.into_iter().map(|[id]| u32::try_from(id).ok()).collect()
}

fn move_order([id, table, first, last, from, to]: [u64; 6]) -> Option<MoveOrder> {
    let (from, to) = (u32::try_from(from).ok()?, u32::try_from(to).ok()?);
    Some(MoveOrder { id, tablet: tablet_of([table, first, last])?, from, to })
}

fn name(records: &mut Records<'_>) -> Option<(u32, String)> {
    let (name, id) = records.counter()?;
    Some((u32::try_from(id).ok()?, name.to_owned()))
}

fn order(records: &mut Records<'_>) -> Option<RecoveryOrder> {
    let id = records.named("order")?;
    let master = u32::try_from(records.named("master")?).ok()?;
    let min_open = records.named("min_open")?;
    let askers = u32::try_from(records.named("askers")?).ok()?;
    let with_since =
        |[table, first, last, since]: [u64; 4]| Some((tablet_of([table, first, last])?, since));
    let tablets =
        words(records, "tablets")?.into_iter().map(with_since).collect::<Option<Vec<_>>>()?;
    let apart = are_apart(tablets.iter().map(|(tablet, _)| tablet));
    apart.then_some(RecoveryOrder { id, master, min_open, askers, tablets })
}

fn words_of(tablet: Tablet) -> [u64; 3] {
    [tablet.table.into(), tablet.range.first, tablet.range.last]
}

fn tablet_of([table, first, last]: [u64; 3]) -> Option<Tablet> {
    let table = u32::try_from(table).ok()?;
    (first <= last).then_some(Tablet { table, range: Range { first, last } })
}

/// Returns whether tablets ascend and do not overlap.
fn are_apart<'a>(tablets: impl Iterator<Item = &'a Tablet>) -> bool {
    let apart =
        |one: &Tablet, next: &Tablet| one.table < next.table || one.range.last < next.range.first;
    let all: Vec<_> = tablets.collect();
    all.is_sorted_by(|one, next| one.table <= next.table && apart(one, next))
}

fn push_words<const N: usize>(
    out: &mut Vec<u8>,
    name: &str,
    rows: impl ExactSizeIterator<Item = [u64; N]>,
) {
    push_counter(out, name, rows.len() as u64);
    rows.flatten().for_each(|word| out.extend_from_slice(&word.to_le_bytes()));
}

fn list(records: &mut Records<'_>, name: &str) -> Option<u64> {
    records.named(name).filter(|&count| count <= MAX_LIST)
}

fn words<const N: usize>(records: &mut Records<'_>, name: &str) -> Option<Vec<[u64; N]>> {
    let count = list(records, name)?;
    let row = |records: &mut Records<'_>| {
        let mut row = [0; N];
        for word in &mut row {
            *word = records.u64()?;
        }
        Some(row)
    };
    (0..count).map(|_| row(records)).collect()
}
