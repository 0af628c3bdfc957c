//! Redis clients of a server: where it listens for them, and the thread that makes the tables of
//! their databases.

use super::run::{NodeHandle, pause};
use super::{ServerError, ServerOptions, random};
use crate::master::{Command, Outbox};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sprat_client::{Client, Error, Options, Table, TableOptions};
use sprat_net::{Locators, Mode};
use sprat_redis::{Front, TableRequest};
use sprat_wire::op::TableRecord;
use std::fmt;
use std::fs::File;
use std::io::{self, Read as _};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Pause before a table is requested again that could not be made.
const RETRY: Duration = Duration::from_millis(200);

/// Timeout of a request to the coordinator.
const TIMEOUT: Duration = Duration::from_secs(2);

/// The longest password of Redis clients, in bytes.
const MAX_PASSWORD: usize = 512;

/// The password of Redis clients. It is never shown.
#[derive(Clone, Eq, PartialEq)]
pub struct RedisPassword(Box<[u8]>);

impl RedisPassword {
    /// Reads the password from a file: its first line, which must be all of it.
    ///
    /// # Errors
    /// The file cannot be read, is empty, has several lines, or is too long.
    pub fn read(file: &Path) -> io::Result<Self> {
        let mut text = Vec::new();
        File::open(file)?.take(2 * MAX_PASSWORD as u64).read_to_end(&mut text)?;
        let line = text.strip_suffix(b"\n").unwrap_or(&text);
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let wrong = match line {
            [] => "it is empty",
            _ if line.len() > MAX_PASSWORD => "it has more than 512 bytes",
            _ if line.contains(&b'\n') => "it has more than one line",
            _ => return Ok(Self(line.into())),
        };
        Err(io::Error::new(io::ErrorKind::InvalidData, wrong))
    }
}

impl fmt::Debug for RedisPassword {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisPassword")
    }
}

/// A server's Redis clients before the server runs.
pub(super) struct RedisListener {
    pub(super) front: Front,
    pub(super) address: SocketAddr,
    /// What is to be done with the tables of databases.
    pub(super) requests: Receiver<TableRequest>,
}

impl RedisListener {
    /// Listens at `address`, if these options allow it.
    pub(super) fn open(options: &ServerOptions, address: SocketAddr) -> Result<Self, ServerError> {
        let refuse = |reason: &str| Err(ServerError::Log(format!("--redis {address}: {reason}")));
        if options.listen.len() > 1 || options.copies > 0 || !options.embedded {
            return refuse(
                "a server serves Redis clients only if it is a complete store: one node, without \
                 -r, and with its own coordinator",
            );
        }
        if options.guard.identity.is_some() {
            return refuse(
                "Redis clients have no identities, so a server with --identity does not serve them",
            );
        }
        let password = options.redis_password.as_ref().map(|password| &*password.0);
        if !address.ip().is_loopback() && !options.guard.insecure && password.is_none() {
            return refuse(
                "other machines could connect to it: give an address of this machine alone, such \
                 as 127.0.0.1:6379, --redis-password-file to admit those that know the password, \
                 or --insecure to let everyone read and write everything",
            );
        }
        raise_descriptor_limit();
        let (sender, requests) = channel();
        let failed = ServerError::system(format!("listen for Redis clients at {address}"));
        let front = Front::listen(address, sender, random(), password).map_err(failed)?;
        let address = front.address().map_err(ServerError::system("look up an address"))?;
        Ok(Self { front, address, requests })
    }
}

/// Lets this process have as many descriptors as the system allows it: by default a shell gives it
/// 1,024, and each client takes one.
fn raise_descriptor_limit() {
    let limit = getrlimit(Resource::Nofile);
    let most = Rlimit { current: limit.maximum, maximum: limit.maximum };
    if let Err(error) = setrlimit(Resource::Nofile, most) {
        tracing::warn!("the limit on open files stays at {:?}: {error}", limit.current);
    }
}

/// Starts the thread that makes and clears the tables of databases. It ends when the node of the
/// Redis clients ends.
pub(super) fn start_tables(
    coordinator: &Locators,
    requests: Receiver<TableRequest>,
    (outbox, node): (Outbox, NodeHandle),
    ended: &Arc<AtomicBool>,
) -> Result<JoinHandle<()>, ServerError> {
    let options = Options {
        coordinator: coordinator.to_string(),
        timeout: TIMEOUT,
        patient: true,
        waiting: Mode::Sleep,
        ..Options::default()
    };
    let ended = Arc::clone(ended);
    let run = move || {
        for request in &requests {
            let mut clearing = Clearing::default();
            while !ended.load(Ordering::Acquire) {
                let done = Client::connect(&options).and_then(|mut client| match request {
                    TableRequest::Open(database) => open(&mut client, &name(database)).map(Some),
                    TableRequest::Clear(database) => clearing.go_on(&mut client, &name(database)),
                });
                match done {
                    Ok(table) => {
                        let table = table.map(|table| table.0);
                        if outbox.send(Command::RedisTable(request, table)) {
                            node.ring();
                            break;
                        }
                    }
                    Err(error) => tracing::warn!("{request:?} of Redis clients: {error}"),
                }
                pause(RETRY);
            }
        }
    };
    thread::Builder::new()
        .name("sprat-tables".into())
        .spawn(run)
        .map_err(ServerError::system("start a thread"))
}

/// Returns the name of a database's table.
fn name(database: usize) -> String {
    format!("redis-{database}")
}

/// Finds a table, whatever its options are, or makes it.
fn open(client: &mut Client, name: &str) -> Result<Table, Error> {
    match client.table(name) {
        Err(Error::NoSuchTable(..)) => client.create_table(name),
        found => found,
    }
}

/// Replaces a table by an empty one. If the process ends in between, the next server makes the
/// table without its options and indexes.
#[derive(Default)]
struct Clearing {
    /// The table as it was before it was dropped.
    before: Option<TableRecord>,
}

impl Clearing {
    /// Does what is still to be done; returns the empty table, or `None` if there was no table.
    fn go_on(&mut self, client: &mut Client, name: &str) -> Result<Option<Table>, Error> {
        if self.before.is_none() {
            self.before = client.list_tables()?.into_iter().find(|table| table.name == name);
        }
        let Some(before) = &self.before else { return Ok(None) };
        match client.table(name) {
            Ok(table) if table.0 == before.id => client.drop_table(name)?,
            Ok(_) | Err(Error::NoSuchTable(..)) => {}
            Err(error) => return Err(error),
        }
        let tablets = before.tablets.len().try_into().expect("as many as before");
        let options =
            TableOptions { tablets, when_full: before.when_full, ordered: before.ordered };
        let table = client.create_table_with(name, options)?;
        for index in &before.indexes {
            client.create_index(name, &index.name, &index.definition)?;
        }
        Ok(Some(table))
    }
}
