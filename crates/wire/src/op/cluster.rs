//! What a coordinator tells a server: what it is to do, and whom it may rely on.

use super::records::{Records, ServerRecord, push_counter, push_server};

/// A server that is gone, and what another is to bring back of it.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct RecoveryOrder {
    /// Its server id.
    pub master: u32,
    /// Open heads of its log below this segment are void; zero when it never began a log.
    pub min_open: u64,
    /// Tables to bring back, ascending, each with the segment of its log from which on entries count.
    pub tables: Vec<(u32, u64)>,
}

/// All that a coordinator has for a server.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Assignment {
    /// Ids of the tables it serves.
    pub tables: Vec<u32>,
    /// For how long from its question on it may serve them, microseconds; zero: for ever, as nobody else could.
    pub lease_micros: u64,
    /// Open heads of its log below this segment are void, as noted.
    pub min_open: u64,
    /// Servers that keep replicas for others, itself included.
    pub members: Vec<ServerRecord>,
    /// Servers whose replicas are needed.
    pub masters: Vec<u32>,
    /// The next server to enlist gets this id: of higher ones nothing is said in `masters`.
    pub next_server: u32,
    /// What it is to bring back.
    pub orders: Vec<RecoveryOrder>,
}

/// Lists longer than this are taken for damage.
const MAX_LIST: u64 = 1 << 16;

impl Assignment {
    /// Appends it to a body.
    pub fn encode(&self, out: &mut Vec<u8>) {
        push_counter(out, "lease", self.lease_micros);
        push_counter(out, "min_open", self.min_open);
        push_counter(out, "next_server", self.next_server.into());
        push_ids(out, "tables", self.tables.iter().map(|&id| id.into()));
        push_ids(out, "masters", self.masters.iter().map(|&id| id.into()));
        push_counter(out, "members", self.members.len() as u64);
        self.members.iter().for_each(|member| push_server(out, member));
        push_counter(out, "orders", self.orders.len() as u64);
        for order in &self.orders {
            push_counter(out, "master", order.master.into());
            push_counter(out, "min_open", order.min_open);
            push_ids(out, "tables", order.tables.iter().flat_map(|&(id, since)| [id.into(), since]));
        }
    }

    /// Parses a body; `None` when it is none.
    #[must_use]
    pub fn parse(body: &[u8]) -> Option<Self> {
        let records = &mut Records::new(body);
        let lease_micros = records.named("lease")?;
        let min_open = records.named("min_open")?;
        let next_server = u32::try_from(records.named("next_server")?).ok()?;
        let tables = ids(records, "tables")?;
        let masters = ids(records, "masters")?;
        let count = list(records, "members")?;
        let members = (0..count).map(|_| records.server()).collect::<Option<_>>()?;
        let count = list(records, "orders")?;
        let orders = (0..count).map(|_| order(records)).collect::<Option<_>>()?;
        records.is_done().then_some(Self { tables, lease_micros, min_open, members, masters, next_server, orders })
    }
}

fn order(records: &mut Records<'_>) -> Option<RecoveryOrder> {
    let master = u32::try_from(records.named("master")?).ok()?;
    let min_open = records.named("min_open")?;
    let words = words(records, "tables")?;
    let pairs = words.chunks_exact(2).map(|pair| Some((u32::try_from(pair[0]).ok()?, pair[1])));
    let tables = pairs.collect::<Option<Vec<_>>>()?;
    let sorted = tables.is_sorted_by(|one, next| one.0 < next.0);
    (sorted && words.len().is_multiple_of(2)).then_some(RecoveryOrder { master, min_open, tables })
}

fn push_ids(out: &mut Vec<u8>, name: &str, ids: impl Iterator<Item = u64>) {
    let ids: Vec<u64> = ids.collect();
    push_counter(out, name, ids.len() as u64);
    ids.iter().for_each(|id| out.extend_from_slice(&id.to_le_bytes()));
}

fn list(records: &mut Records<'_>, name: &str) -> Option<u64> {
    records.named(name).filter(|&count| count <= MAX_LIST)
}

fn words(records: &mut Records<'_>, name: &str) -> Option<Vec<u64>> {
    let count = list(records, name)?;
    (0..count).map(|_| records.u64()).collect()
}

fn ids(records: &mut Records<'_>, name: &str) -> Option<Vec<u32>> {
    words(records, name)?.into_iter().map(|word| u32::try_from(word).ok()).collect()
}
