//! The data nodes of a server. Each is a server of its own to the coordinator, with its own log,
//! memory, port and thread: they share a process, and nothing else.

use super::agent::{self, Link};
use super::run::Stop;
use super::{DataNode, End, Seat, Server, ServerError, ServerOptions, metrics, open};
use crate::agent::Enlisted;
use crate::backup::Failed;
use crate::coordinator::{Catalog, MetadataMemory};
use crate::data_dir::{DataDir, Identity};
use crate::master::Outbox;
use crate::restart::Tables;
use sprat_net::bypass::{DeviceShare, shares};
use sprat_net::{Locator, Nanos, Policy, Transport};
use std::sync::mpsc::{Sender, channel};

impl Server {
    /// Starts a node at each locator, with its directory if it has one: one after the other, as
    /// each has its threads read its log.
    pub(super) fn start_nodes(
        &mut self,
        options: &ServerOptions,
        listen: &[Locator],
        dirs: &mut [Option<DataDir>],
        ended: &Sender<End>,
    ) -> Result<(), ServerError> {
        let mut shares = match share_a_device(listen) {
            true => {
                shares(listen.len()).map_err(ServerError::system("share a device between nodes"))?
            }
            false => Vec::new(),
        }
        .into_iter();
        let mut told = Vec::new();
        for (at, (listen, dir)) in listen.iter().zip(dirs).enumerate() {
            told.push(self.start_node(options, at, (listen, shares.next()), dir.take(), ended)?);
        }
        if let Some(address) = options.metrics {
            let serving = metrics::serve(address, told)?;
            self.metrics = Some(serving.bound);
            self.serving = Some(serving);
        }
        Ok(())
    }

    /// Starts node `at`; returns by what its counters are asked for.
    fn start_node(
        &mut self,
        options: &ServerOptions,
        at: usize,
        (listen, share): (&Locator, Option<DeviceShare>),
        mut dir: Option<DataDir>,
        ended: &Sender<End>,
    ) -> Result<(Outbox, Stop), ServerError> {
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
            _ => Tables::default(),
        };
        if let Some(dir) = &mut dir {
            let Enlisted { server, cluster } = enlisted;
            let identity = Identity { cluster, server, ..dir.identity() };
            if identity != dir.identity() {
                dir.set_identity(identity)?;
            }
        }
        let kept = dir.clone().map(|dir| (dir, copy));
        let (outbox, inbox) = crate::master::inbox();
        let name = if at == 0 { "data".to_owned() } else { format!("data-{}", at + 1) };
        let core = options.cores.get(at).copied();
        let seat =
            Seat { name, locator: listen.clone(), policy: Policy::of(options.idle), core, share };
        let (report, restored) = channel();
        let opening = options.clone();
        let bound = match dir {
            Some(dir) if options.copies > 0 => {
                drop(report); // its log begins empty
                outbox.set_lease(Nanos(0)); // nothing is served before it is told, nor for longer
                let path = dir.replicas();
                let make = move |begun| open::open_member(&opening, &path, enlisted, inbox, begun);
                let close = move |member: open::FileMember, now| {
                    let closed = member.into_parts().1.close(now);
                    // The directory is ours until its files are closed.
                    end_use(dir, closed)
                };
                self.spawn_node(seat, ended, make, close)?
            }
            dir => {
                let place = dir.as_ref().map(|dir| (dir.log(), dir.identity()));
                let make = move |_| {
                    let (master, restored) = open::open(&opening, place, &tables, inbox)?;
                    // Whoever starts the server waits for this.
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
                self.spawn_node(seat, ended, make, close)?
            }
        };
        let data = self.stops.last().expect("just started").clone();
        // Other servers reach it where it enlisted; clients alone may be told of a port that the
        // kernel chose.
        let locator = if options.copies > 0 { listen.to_string() } else { bound.to_string() };
        let place = agent::Place {
            locator,
            outbox: outbox.clone(),
            data: data.clone(),
            end: ended.clone(),
            kept,
        };
        self.agents.push(agent::start(&self.coordinator, link, place, &self.ended)?);
        self.nodes.push(DataNode { listen: bound, restored: restored.recv().unwrap_or_default() });
        Ok((outbox, data))
    }
}

/// What a catalog says of tables to a server that serves those in `served`.
fn tables_of(catalog: &Catalog<MetadataMemory>, served: Vec<u32>) -> Tables {
    let others = catalog.tables().filter(|table| !served.contains(&table.id));
    let elsewhere = others.map(|table| (table.id, table.name)).collect();
    Tables { served, next: Some(catalog.next_table()), elsewhere }
}

/// Ends the use of a directory whose files have been closed.
fn end_use(mut dir: DataDir, closed: Result<(), Failed>) -> Result<(), ServerError> {
    closed.map_err(|failed| ServerError::Log(failed.to_string()))?;
    dir.note_ages();
    Ok(())
}

/// Whether the nodes are to be reached at ports that follow one another, past the kernel, over one
/// device.
fn share_a_device(listen: &[Locator]) -> bool {
    let [first, others @ ..] = listen else { return false };
    let follows = |(number, locator): (u16, &Locator)| {
        let port = first.port.checked_add(number);
        port.is_some_and(|port| *locator == Locator { port, ..first.clone() })
    };
    let past_the_kernel = matches!(first.transport, Transport::FastDpdk(_));
    past_the_kernel && !others.is_empty() && (1..).zip(others).all(follows)
}
