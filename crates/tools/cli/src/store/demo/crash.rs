//! Clients that write until their server is killed, and the check of their writes afterwards.

use crate::store::demo::child::ServerChild;
use crate::store::demo::{grouped, seconds};
use anyhow::{Context as _, Result, anyhow, ensure};
use sprat_client::{Client, Condition, Error, Mode, Options, Table, Ticket};
use sprat_wire::op::{Request, Status};
use std::collections::VecDeque;
use std::sync::Barrier;
use std::time::{Duration, Instant};
use std::{fmt, thread};

/// Number of clients; [`DEPTH`] is the number of writes that each client has in flight.
const CLIENTS: u64 = 4;

const DEPTH: usize = 16;

/// How long the clients write before the kill.
const LIFE: Duration = Duration::from_secs(2);

/// Time without an answer after which a client considers the server dead.
const TIMEOUT: Duration = Duration::from_secs(2);

const TABLE: &str = "crash";

/// The objects that one client wrote; each has a number, in order.
#[derive(Clone, Copy, Debug, Default)]
struct Written {
    /// Number of objects that were acknowledged, counted from the first.
    acknowledged: u64,
    /// Number of objects that were sent, counted from the first.
    sent: u64,
}

/// The writes of all clients before the kill.
pub(super) struct Writes {
    clients: Vec<Written>,
    life: Duration,
}

fn key(client: u64, number: u64) -> String {
    format!("client {client} write {number}")
}

/// Returns 100 to 1,123 bytes that are unique to this write.
fn value(client: u64, number: u64) -> Vec<u8> {
    let mut state = (client << 48) ^ number;
    let len = 100 + usize::try_from(number.wrapping_mul(7919) % 1024).unwrap_or(0);
    let next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    std::iter::repeat_with(next).take(len).collect()
}

/// Lets clients write, and kills the server while they do.
pub(super) fn write_until_killed(server: ServerChild) -> Result<Writes> {
    let coordinator = server.coordinator.clone();
    super::connect(&coordinator)?.create_table(TABLE)?;
    let begin = Barrier::new(usize::try_from(CLIENTS + 1).context("few")?);
    thread::scope(|scope| {
        let (coordinator, begin) = (&coordinator, &begin);
        let clients: Vec<_> = (0..CLIENTS)
            .map(|client| scope.spawn(move || write(client, coordinator, begin)))
            .collect();
        begin.wait();
        let started = Instant::now();
        thread::park_timeout(LIFE);
        server.kill()?;
        let life = started.elapsed();
        let written = |client: thread::ScopedJoinHandle<'_, Result<Written>>| {
            client.join().unwrap_or_else(|_| Err(anyhow!("a client failed")))
        };
        let clients = clients.into_iter().map(written).collect::<Result<_>>()?;
        Ok(Writes { clients, life })
    })
}

/// Writes until the server no longer answers.
fn write(client: u64, coordinator: &str, begin: &Barrier) -> Result<Written> {
    let options = Options {
        coordinator: coordinator.to_owned(),
        timeout: TIMEOUT,
        waiting: Mode::Sleep,
        ..Options::default()
    };
    let opened =
        Client::connect(&options).and_then(|mut client| Ok((client.table(TABLE)?, client)));
    begin.wait();
    let (Table(table), mut connection) = opened?;
    let mut under_way: VecDeque<Ticket> = VecDeque::with_capacity(DEPTH);
    let mut written = Written::default();
    loop {
        while under_way.len() < DEPTH {
            let (key, value) = (key(client, written.sent), value(client, written.sent));
            let request = Request::Write {
                table,
                key: key.as_bytes(),
                value: &value,
                condition: Condition::Absent,
                ttl: None,
            };
            under_way.push_back(connection.submit(&request)?);
            written.sent += 1;
        }
        let Some(oldest) = under_way.pop_front() else { continue };
        match connection.wait(oldest, |_| ()) {
            Ok(()) => written.acknowledged += 1,
            Err(error)
                if error.is_indeterminate()
                    || matches!(error, Error::Timeout { .. } | Error::Recovering { .. }) =>
            {
                return Ok(written);
            }
            Err(error) => return Err(error).context("a write before the kill"),
        }
    }
}

impl fmt::Display for Writes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let acknowledged: u64 = self.clients.iter().map(|written| written.acknowledged).sum();
        let sent: u64 = self.clients.iter().map(|written| written.sent).sum();
        write!(
            f,
            "killed after {} and {} acknowledged writes of {CLIENTS} clients; {} more were in \
             flight",
            seconds(self.life),
            grouped(acknowledged),
            sent - acknowledged,
        )
    }
}

impl Writes {
    /// Reads all writes from the restarted server. Acknowledged writes must exist. Writes that were
    /// in flight may exist, but only complete.
    pub(super) fn verify(&self, client: &mut Client) -> Result<String> {
        let Table(table) = client.table(TABLE)?;
        let (mut kept, mut unknown, mut acknowledged) = (0, 0, 0);
        for (number, written) in (0..).zip(&self.clients) {
            ensure!(
                written.acknowledged > 0,
                "client {number} had no write acknowledged before the kill"
            );
            let mut under_way: VecDeque<(u64, Ticket)> = VecDeque::with_capacity(DEPTH);
            let mut next = 0;
            while next < written.sent || !under_way.is_empty() {
                if next < written.sent && under_way.len() < DEPTH {
                    let key = key(number, next);
                    under_way.push_back((
                        next,
                        client.submit(&Request::Read { table, key: key.as_bytes() })?,
                    ));
                    next += 1;
                    continue;
                }
                let Some((write, ticket)) = under_way.pop_front() else { break };
                let expected = value(number, write);
                let is_acknowledged = write < written.acknowledged;
                let found = client.wait(ticket, |answer| {
                    (answer.status == Status::Ok).then(|| answer.body == expected)
                })?;
                ensure!(
                    found != Some(false),
                    "{}: the bytes differ from those written",
                    key(number, write)
                );
                ensure!(
                    found.is_some() || !is_acknowledged,
                    "{}: ACKNOWLEDGED AND LOST",
                    key(number, write)
                );
                acknowledged += u64::from(is_acknowledged);
                unknown += u64::from(!is_acknowledged);
                kept += u64::from(!is_acknowledged && found.is_some());
            }
        }
        let lost = unknown - kept;
        Ok(format!(
            "all {} acknowledged writes exist, byte for byte; of {unknown} unacknowledged writes, \
             {kept} exist completely and {lost} not at all",
            grouped(acknowledged),
        ))
    }
}
