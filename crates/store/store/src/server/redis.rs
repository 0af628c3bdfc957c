//! Redis clients of a server: where it listens for them, and the thread that makes the tables of
//! their databases.

use super::run::{NodeHandle, pause};
use super::{ServerError, ServerOptions, random};
use crate::master::{Command, Outbox};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use sprat_client::{Client, Options};
use sprat_net::{Locators, Mode};
use sprat_redis::Front;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::thread::{self, JoinHandle};
use std::time::Duration;

/// Pause before a table is requested again that could not be made.
const RETRY: Duration = Duration::from_millis(200);

/// Timeout of a request to the coordinator.
const TIMEOUT: Duration = Duration::from_secs(2);

/// A server's Redis clients before the server runs.
pub(super) struct RedisListener {
    pub(super) front: Front,
    pub(super) address: SocketAddr,
    /// The databases whose tables are wanted.
    pub(super) wanted: Receiver<usize>,
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
        if !address.ip().is_loopback() && !options.guard.insecure {
            return refuse(
                "other machines could connect to it: give an address of this machine alone, such \
                 as 127.0.0.1:6379, or --insecure to let everyone read and write everything",
            );
        }
        raise_descriptor_limit();
        let (wants, wanted) = channel();
        let failed = ServerError::system(format!("listen for Redis clients at {address}"));
        let front = Front::listen(address, wants, random()).map_err(failed)?;
        let address = front.address().map_err(ServerError::system("look up an address"))?;
        Ok(Self { front, address, wanted })
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

/// Starts the thread that makes the tables of databases when they are first used. It ends when the
/// node of the Redis clients ends.
pub(super) fn start_tables(
    coordinator: &Locators,
    wanted: Receiver<usize>,
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
        for database in &wanted {
            while !ended.load(Ordering::Acquire) {
                let name = format!("redis-{database}");
                let made =
                    Client::connect(&options).and_then(|mut client| client.create_table(&name));
                match made {
                    Ok(table) if outbox.send(Command::RedisTable(database, table.0)) => {
                        node.ring();
                        break;
                    }
                    Ok(_) => {}
                    Err(error) => tracing::warn!("cannot make the table {name}: {error}"),
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
