//! The load of tablets as servers report it.

use super::balance::{ServerLoad, TabletLoad};
use super::catalog::{Catalog, MAX_ALL_TABLETS};
use super::metadata::Metadata;
use sprat_wire::op::Load;
use sprat_wire::tablet::{MAX_TABLETS, Tablet};
use std::collections::BTreeMap;

/// The latest report of a server.
#[derive(Default)]
struct LoadReport {
    capacity: u64,
    tablets: BTreeMap<Tablet, Figures>,
}

#[derive(Clone, Copy, Default)]
struct Figures {
    bytes: u64,
    requests: u64,
    second_half: u64,
}

/// The latest load report of each server, from which [`balance`](super::balance) decides.
#[derive(Default)]
pub struct LoadReports(BTreeMap<u32, LoadReport>);

impl LoadReports {
    /// Records a server's report, which replaces its previous one. `capacity` is the number of
    /// bytes of objects that its log can hold.
    pub fn record(&mut self, server: u32, capacity: u64, loads: &[Load]) {
        let figures = |load: &Load| {
            let tablet = Tablet { table: load.table.get(), range: load.range.range()? };
            let figures = Figures {
                bytes: load.bytes.get(),
                requests: load.requests.get().into(),
                second_half: load.second_half.get().into(),
            };
            Some((tablet, figures))
        };
        let tablets = loads.iter().filter_map(figures).collect();
        self.0.insert(server, LoadReport { capacity, tablets });
    }

    /// Drops the reports of servers that are not alive.
    pub fn retain(&mut self, is_alive: impl Fn(u32) -> bool) {
        self.0.retain(|&server, _| is_alive(server));
    }

    /// Returns whether all of these servers have reported.
    pub fn are_known(&self, servers: &[u32]) -> bool {
        servers.iter().all(|server| self.0.contains_key(server))
    }
}

impl<M: Metadata> Catalog<M> {
    /// Returns the load of these live servers, from the tablets that each has now and its latest
    /// report. A tablet that the server got after that report counts as idle and empty.
    pub(super) fn server_loads(&self, servers: &[u32], loads: &LoadReports) -> Vec<ServerLoad> {
        let server_load = |&server: &u32| {
            let report = loads.0.get(&server);
            let tablet_load = |tablet: Tablet| {
                let reported = report.and_then(|report| report.tablets.get(&tablet));
                let Figures { bytes, requests, second_half } =
                    reported.copied().unwrap_or_default();
                let parts = self.tablet_count_of(tablet.table);
                // Balancing does not divide a table that has one tablet.
                let divides = (2..MAX_TABLETS / 2).contains(&parts)
                    && self.tablet_count() < MAX_ALL_TABLETS / 2;
                TabletLoad { tablet, bytes, requests, second_half, divides }
            };
            let tablets = self.tablets_of(server).into_iter();
            let tablets = tablets.map(|owned| tablet_load(owned.tablet)).collect();
            let (gives, takes) = self.may_move(server);
            let capacity = report.map_or(0, |report| report.capacity);
            ServerLoad { server, capacity, gives, takes, tablets }
        };
        servers.iter().map(server_load).collect()
    }
}
