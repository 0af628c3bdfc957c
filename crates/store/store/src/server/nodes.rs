//! The data nodes of a server. To the coordinator each node is a server of its own, with its own
//! log, memory, port and thread. The nodes share the process, and perhaps a device that bypasses
//! the kernel.

use super::agent::{self, Link};
use super::redis::RedisListener;
use super::run::NodeHandle;
use super::{
    DataNode, NodeSettings, Server, ServerError, ServerOptions, ThreadResult, metrics, open, redis,
};
use crate::agent::Enlisted;
use crate::backup::Failed;
use crate::coordinator::{Catalog, MetadataMemory};
use crate::data_dir::{DataDir, Identity};
use crate::master::Outbox;
use crate::restart::LogTables;
use sprat_net::bypass::{DeviceShare, shares};
use sprat_net::{Locator, Nanos, Policy, Transport};
use sprat_redis::Front;
use std::sync::mpsc::{Sender, channel};

impl Server {
    /// Starts a node at each locator, with its directory if it has one. The nodes start one after
    /// the other, since each reads its log with several threads.
    pub(super) fn start_nodes(
        &mut self,
        options: &ServerOptions,
        (listen, redis): (&[Locator], Option<RedisListener>),
        dirs: &mut [Option<DataDir>],
        ended: &Sender<ThreadResult>,
    ) -> Result<(), ServerError> {
        let mut shares = match share_a_device(listen) {
            true => {
                shares(listen.len()).map_err(ServerError::system("share a device between nodes"))?
            }
            false => Vec::new(),
        }
        .into_iter();
        self.redis = redis.as_ref().map(|redis| redis.address);
        let (mut front, requests) = redis.map(|redis| (redis.front, redis.requests)).unzip();
        let mut metric_sources = Vec::new();
        for (at, (listen, dir)) in listen.iter().zip(dirs).enumerate() {
            metric_sources.push(self.start_node(
                options,
                at,
                (listen, shares.next()),
                (dir.take(), front.take()),
                ended,
            )?);
        }
        if let Some(requests) = requests {
            let node = metric_sources[0].clone();
            let tables = redis::start_tables(&self.coordinator, requests, node, &self.ended)?;
            self.threads.push(tables);
        }
        if let Some(address) = options.metrics {
            let server = metrics::serve(address, metric_sources)?;
            self.metrics = Some(server.bound);
            self.metrics_server = Some(server);
        }
        Ok(())
    }

    /// Starts node `at`; returns the handles for its counters.
    fn start_node(
        &mut self,
        options: &ServerOptions,
        at: usize,
        (listen, share): (&Locator, Option<DeviceShare>),
        (mut dir, front): (Option<DataDir>, Option<Front>),
        ended: &Sender<ThreadResult>,
    ) -> Result<(Outbox, NodeHandle), ServerError> {
        let identity = dir.as_ref().map(DataDir::identity);
        let mut link = Link::connect(
            &self.coordinator,
            identity,
            (options.copies, &options.rack),
            listen.to_string(),
            self.guard.identity.clone(),
        )?;
        if let Some(dir) = &dir {
            link = link.keeping_copies(dir.catalog()?.map_or(0, |catalog| catalog.version()));
        }
        let enlisted = link.enlist()?;
        let (copy, catalog) = link.catalog()?;
        let tables = match options.copies {
            0 => tables_of(&catalog, link.tables()?),
            _ => LogTables::default(),
        };
        if let Some(dir) = &mut dir {
            let Enlisted { server, cluster } = enlisted;
            let identity = Identity { cluster, server, ..dir.identity() };
            if identity != dir.identity() {
                dir.set_identity(identity)?;
            }
        }
        let catalog_copy = dir.clone().map(|dir| (dir, copy));
        let (outbox, inbox) = crate::master::inbox();
        let name = if at == 0 { "data".to_owned() } else { format!("data-{}", at + 1) };
        let core = options.cores.get(at).copied();
        let settings = NodeSettings {
            name,
            locator: listen.clone(),
            policy: Policy::of(options.idle),
            core,
            share,
        };
        let (report, restored) = channel();
        let opening = options.clone();
        let bound = match dir {
            Some(dir) if options.copies > 0 => {
                drop(report); // the log of this master begins empty
                outbox.set_lease(Nanos(0)); // the master serves only while it has a lease
                let path = dir.replicas();
                let make =
                    move |begun| open::open_cluster_node(&opening, &path, enlisted, inbox, begun);
                let close = move |node: open::FileNode, now| {
                    let closed = node.into_parts().1.close(now);
                    // The directory stays locked until its files are closed.
                    end_use(dir, closed)
                };
                self.spawn_node(settings, ended, make, close)?
            }
            dir => {
                let place = dir.as_ref().map(|dir| (dir.log(), dir.identity()));
                let make = move |begun| {
                    let (master, restored) = open::open(&opening, place, &tables, inbox, begun)?;
                    let master = master.with_redis(front);
                    // The thread that starts the server waits for this message.
                    let _ = report.send(restored);
                    Ok(master)
                };
                let close = move |master: crate::master::Master<sprat_disk::FileDisk>, now| {
                    let closed = master.close(now);
                    match dir {
                        Some(dir) => end_use(dir, closed),
                        None => closed.map_err(|failed| ServerError::Log(failed.to_string())),
                    }
                };
                self.spawn_node(settings, ended, make, close)?
            }
        };
        let handle = self.node_handles.last().expect("just started").clone();
        // Other servers reach the node at the locator with which it enlisted. Only clients may be
        // directed to a port that the kernel chose.
        let locator = if options.copies > 0 { listen.to_string() } else { bound.to_string() };
        let node = agent::ControlledNode {
            locator,
            outbox: outbox.clone(),
            handle: handle.clone(),
            end: ended.clone(),
            catalog: catalog_copy,
        };
        self.control_threads.push(agent::start(&self.coordinator, link, node, &self.ended)?);
        self.nodes.push(DataNode { listen: bound, restored: restored.recv().unwrap_or_default() });
        Ok((outbox, handle))
    }
}

/// Returns the catalog's tables as seen by a server that serves those in `served`.
fn tables_of(catalog: &Catalog<MetadataMemory>, served: Vec<u32>) -> LogTables {
    let others = catalog.tables().filter(|table| !served.contains(&table.id));
    let elsewhere = others.map(|table| (table.id, table.name)).collect();
    LogTables { served, next: Some(catalog.next_table()), elsewhere }
}

/// Records the ages of a directory's files once they have been closed.
fn end_use(mut dir: DataDir, closed: Result<(), Failed>) -> Result<(), ServerError> {
    closed.map_err(|failed| ServerError::Log(failed.to_string()))?;
    dir.note_ages();
    Ok(())
}

/// Returns whether the nodes listen at consecutive ports of one device that bypasses the kernel.
fn share_a_device(listen: &[Locator]) -> bool {
    let [first, others @ ..] = listen else { return false };
    let follows = |(number, locator): (u16, &Locator)| {
        let port = first.port.checked_add(number);
        port.is_some_and(|port| *locator == Locator { port, ..first.clone() })
    };
    let past_the_kernel = matches!(first.transport, Transport::FastDpdk(_));
    past_the_kernel && !others.is_empty() && (1..).zip(others).all(follows)
}
