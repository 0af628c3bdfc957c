//! One operation at a time over our own client, stamped where it passes from room to room.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sprat_client::{Client, Condition};
use sprat_net::{counts_events, stamp, ticks};
use sprat_wire::op::{Request, Status};

use crate::ours::{PING_BYTES, TABLE};
use sprat_measure::load::keys::write_key;

/// Bytes of a key.
const KEY_BYTES: usize = 30;

/// Longest an operation may take.
const DEADLINE: Duration = Duration::from_secs(5);

/// Ticks after which an answer is late, some milliseconds: the client's clock then goes on, for
/// what is sent again.
const LATE: u64 = 10_000_000;

/// A client that waits for each answer, spinning.
pub(crate) struct Single {
    client: Client,
    table: u32,
    locator: String,
}

/// One operation, as [`stamp`]s and their differences; its turns in [`ticks`].
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Lap {
    /// When it was called.
    pub(crate) begun: u64,
    /// From the call to the driver. Only of those that were [noted](Single::operate_noted), as
    /// `back`.
    pub(crate) out: u64,
    /// From the driver that brought the answer to the caller.
    pub(crate) back: u64,
    /// From the call to the answer.
    pub(crate) total: u64,
    /// The longest time between two stamps in it: a turn of the client's loop, more when its
    /// thread was held up.
    pub(crate) longest_turn: u64,
}

/// What operations work on.
pub(crate) struct Objects {
    /// The value written, and the length of those read.
    pub(crate) value: Vec<u8>,
    /// How many there are.
    pub(crate) keys: usize,
}

impl Objects {
    /// `keys` of `bytes` each.
    pub(crate) fn new(bytes: usize, keys: usize) -> Self {
        Self { value: vec![0x5a; bytes], keys }
    }

    /// Objects of each size are others.
    fn key(&self, number: usize) -> [u8; KEY_BYTES] {
        let mut key = [0; KEY_BYTES];
        write_key((number % self.keys) as u64, &mut key);
        key[0] = self.value.len().max(1).ilog2().to_le_bytes()[0] | 0x80;
        key
    }
}

impl Single {
    /// Makes the table that loads use, unless it is there.
    ///
    /// # Errors
    /// When the cluster does not answer.
    pub(crate) fn new(mut client: Client) -> Result<Self> {
        let table = client.create_table(TABLE)?.0;
        let tables = client.list_tables()?;
        let table_record =
            tables.into_iter().find(|table| table.name == TABLE).context("the table just made")?;
        let locator = table_record.tablets[0].locator.clone();
        Ok(Self { client, table, locator })
    }

    /// How the server of the table is reached, as its locator begins: `fast+udp`.
    pub(crate) fn transport(&self) -> &str {
        self.locator.split(':').next().unwrap_or_default()
    }

    /// Writes every object once.
    pub(crate) fn fill(&mut self, objects: &Objects) -> Result<()> {
        (0..objects.keys).try_for_each(|number| self.operate(objects, number, true).map(drop))
    }

    /// Reads or writes the object of a number, and waits for the answer.
    ///
    /// # Errors
    /// When it is not what it should be, or the driver is beyond use.
    pub(crate) fn operate(&mut self, objects: &Objects, number: usize, write: bool) -> Result<Lap> {
        let key = objects.key(number);
        let (table, value) = (self.table, &objects.value[..]);
        match write {
            true => self
                .call(&Request::Write { table, key: &key, value, condition: Condition::None }, 0),
            false => self.call(&Request::Read { table, key: &key }, value.len()),
        }
    }

    /// Makes a request, whose answer has a body of `wanted` bytes.
    fn call(&mut self, request: &Request<'_>, wanted: usize) -> Result<Lap> {
        let mut now = self.client.now();
        let core = self.client.core_mut();
        let begun = stamp();
        core.submit(now, 0, request, now + DEADLINE)?;
        core.flush();
        // Where stamps count events the time is another thing.
        let counted = counts_events();
        let started = if counted { ticks() } else { begun };
        let (mut last, mut longest_turn, mut ended) = (started, 0, None);
        while ended.is_none() {
            self.client.core_mut().poll(now, &mut |_, answer| {
                let right = answer
                    .is_ok_and(|answer| answer.status == Status::Ok && answer.body.len() == wanted);
                ended = Some((stamp(), right));
            })?;
            let turned = match ended {
                Some((at, _)) if !counted => at,
                _ => ticks(),
            };
            longest_turn = longest_turn.max(turned.saturating_sub(last));
            last = turned;
            if turned.saturating_sub(started) > LATE {
                now = self.client.now();
            }
        }
        let (end, right) = ended.expect("the loop ends with it");
        ensure!(right, "a request was not answered as it should be, with {wanted} B");
        Ok(Lap { begun, total: end.saturating_sub(begun), longest_turn, ..Lap::default() })
    }

    /// Has the server send a value back that it does not look at, and waits for it; in [`ticks`].
    ///
    /// # Errors
    /// When it comes back otherwise, or not at all.
    pub(crate) fn echo(&mut self, value: &[u8]) -> Result<u64> {
        Ok(self.call(&Request::Echo { table: self.table, value }, value.len())?.total)
    }

    /// The same, stamped in the client's driver too.
    ///
    /// # Errors
    /// As [`operate`](Self::operate).
    pub(crate) fn operate_noted(
        &mut self,
        objects: &Objects,
        number: usize,
        write: bool,
    ) -> Result<Lap> {
        self.client.core_mut().record_request_times(self.table)?;
        let lap = self.operate(objects, number, write)?;
        let passed = self.client.core_mut().request_times(self.table)?;
        let end = lap.begun + lap.total;
        Ok(Lap {
            out: passed.sent.saturating_sub(lap.begun),
            back: end.saturating_sub(passed.received),
            ..lap
        })
    }

    /// One round trip between the drivers, past the server; `None` of drivers without such a thing.
    /// In [`ticks`].
    ///
    /// # Errors
    /// When the answer does not come.
    pub(crate) fn ping(&mut self, number: u32) -> Result<Option<u64>> {
        let (table, mut now) = (self.table, self.client.now());
        let until = now + DEADLINE;
        let core = self.client.core_mut();
        let begun = ticks();
        if core.ping(table, number, PING_BYTES).is_err() {
            return Ok(None);
        }
        while self.client.core_mut().take_pong() != Some(number) {
            self.client.core_mut().poll(now, &mut |_, _| {})?;
            if ticks().saturating_sub(begun) > LATE {
                now = self.client.now();
                ensure!(now < until, "a ping was lost");
            }
        }
        Ok(Some(ticks().saturating_sub(begun)))
    }

    /// A counter of the server, by name, as it tells them now; see [`Counters`].
    ///
    /// # Errors
    /// When it does not answer.
    pub(crate) fn counters(&mut self) -> Result<Counters> {
        Ok(Counters(self.client.server_stats(&self.locator)?))
    }

    /// Requests that the client has sent again, over all transports.
    pub(crate) fn resent(&mut self) -> u64 {
        self.client.core_mut().rpc_counters().map(|counters| counters.retransmissions).sum()
    }
}

/// What a server told of itself.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters(Vec<sprat_client::Counter>);

impl Counters {
    /// The value of one, if the server has it.
    pub(crate) fn get(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|counter| counter.name == name).map(|counter| counter.value)
    }
}
