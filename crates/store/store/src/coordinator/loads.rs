//! What servers tell of their tablets.

use super::balance::{Burden, Weighed};
use super::catalog::{Catalog, MAX_ALL_TABLETS};
use super::metadata::Metadata;
use sprat_wire::op::Load;
use sprat_wire::tablet::{MAX_TABLETS, Tablet};
use std::collections::BTreeMap;

/// What one has told last.
#[derive(Default)]
struct Told {
    capacity: u64,
    /// Bytes, requests a second, and of those the ones to the second half.
    tablets: BTreeMap<Tablet, (u64, u64, u64)>,
}

/// By server.
#[derive(Default)]
pub struct Loads(BTreeMap<u32, Told>);

impl Loads {
    /// A server has told.
    pub fn told(&mut self, server: u32, capacity: u64, loads: &[Load]) {
        let weigh = |load: &Load| {
            let tablet = Tablet { table: load.table.get(), range: load.range.range()? };
            Some((
                tablet,
                (load.bytes.get(), load.requests.get().into(), load.second_half.get().into()),
            ))
        };
        self.0.insert(server, Told { capacity, tablets: loads.iter().filter_map(weigh).collect() });
    }

    /// What others have told is of the past.
    pub fn keep(&mut self, lives: impl Fn(u32) -> bool) {
        self.0.retain(|&server, _| lives(server));
    }

    /// Whether all of these have told something.
    pub fn are_known(&self, servers: &[u32]) -> bool {
        servers.iter().all(|server| self.0.contains_key(server))
    }
}

impl<M: Metadata> Catalog<M> {
    /// What servers that live bear, as far as they have told: of what a tablet is to them since
    /// they told nothing is known.
    pub(super) fn burdens(&self, servers: &[u32], loads: &Loads) -> Vec<Burden> {
        let burden = |&server: &u32| {
            let told = loads.0.get(&server);
            let weigh = |tablet: Tablet| {
                let (bytes, requests, second_half) =
                    told.and_then(|told| told.tablets.get(&tablet)).copied().unwrap_or_default();
                let parts = self.tablets_in(tablet.table);
                // A table that was to be whole stays so.
                let divides =
                    (2..MAX_TABLETS / 2).contains(&parts) && self.tablets() < MAX_ALL_TABLETS / 2;
                Weighed { tablet, bytes, requests, second_half, divides }
            };
            let tablets =
                self.tablets_of(server).into_iter().map(|owned| weigh(owned.tablet)).collect();
            let (gives, takes) = self.may_move(server);
            Burden { server, capacity: told.map_or(0, |told| told.capacity), gives, takes, tablets }
        };
        servers.iter().map(burden).collect()
    }
}
