//! One operation at a time over our own client. Time stamps are taken where the operation enters
//! and leaves the client's code, the client's driver and the server.

use std::time::Duration;

use anyhow::{Context, Result, ensure};
use sprat_client::{Batch, Client, Condition, Table};
use sprat_net::{counts_events, stamp, ticks};
use sprat_wire::op::{Request, Status};

use crate::ours::{PING_BYTES, TABLE};
use sprat_measure::load::keys::write_key;

/// Bytes of a key.
const KEY_BYTES: usize = 30;

/// Time after which an operation fails.
const DEADLINE: Duration = Duration::from_secs(5);

/// Bytes of the values of a batch by which objects are first written.
const FILL_BYTES: usize = 256 << 10;

/// Number of ticks (some milliseconds) after which an answer is late. Only then is the clock read
/// again; the client needs the clock for its retransmissions.
const LATE: u64 = 10_000_000;

/// A client that spins until each answer arrives.
pub(crate) struct Single {
    client: Client,
    table: u32,
    locator: String,
}

/// The times of one operation: [`stamp`]s and their differences, in ticks or in counts of an event.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct OperationTimes {
    /// Stamp of the call.
    pub(crate) begun: u64,
    /// From the call until the client's driver took the request. Zero unless
    /// [`operate_stamped`](Single::operate_stamped) made the operation.
    pub(crate) out: u64,
    /// From the driver's receipt of the answer until the return to the caller. Zero unless
    /// [`operate_stamped`](Single::operate_stamped) made the operation.
    pub(crate) back: u64,
    /// From the call until the answer.
    pub(crate) total: u64,
    /// The longest iteration of the client's loop, in [`ticks`]. It is unusually long if the
    /// client's thread was held up.
    pub(crate) longest_iteration: u64,
}

/// The objects that operations read and write.
pub(crate) struct Objects {
    /// The value that is written. Values that are read must have the same length.
    pub(crate) value: Vec<u8>,
    /// Number of objects.
    pub(crate) keys: usize,
}

impl Objects {
    /// Describes `keys` objects with values of `bytes` each.
    pub(crate) fn new(bytes: usize, keys: usize) -> Self {
        Self { value: vec![0x5a; bytes], keys }
    }

    /// Returns the key of an object. Keys differ between sizes.
    fn key(&self, number: usize) -> [u8; KEY_BYTES] {
        let mut key = [0; KEY_BYTES];
        write_key((number % self.keys) as u64, &mut key);
        key[0] = self.value.len().max(1).ilog2().to_le_bytes()[0] | 0x80;
        key
    }
}

impl Single {
    /// Makes the table that loads use, unless the table exists.
    ///
    /// # Errors
    /// When the cluster does not answer, or refuses to create or list tables.
    pub(crate) fn new(mut client: Client) -> Result<Self> {
        let table = client.create_table(TABLE)?.0;
        let tables = client.list_tables()?;
        let table_record =
            tables.into_iter().find(|table| table.name == TABLE).context("the table just made")?;
        let locator = table_record.tablets[0].locator.clone();
        Ok(Self { client, table, locator })
    }

    /// Returns the transport of the table's server, such as `fast+udp`.
    pub(crate) fn transport(&self) -> &str {
        self.locator.split(':').next().unwrap_or_default()
    }

    /// Writes every object once, many in a batch: beside other programs, each answer of a server
    /// that spins may take milliseconds.
    pub(crate) fn fill(&mut self, objects: &Objects) -> Result<()> {
        let keys: Vec<_> = (0..objects.keys).map(|number| objects.key(number)).collect();
        for keys in keys.chunks((FILL_BYTES / objects.value.len().max(1)).max(1)) {
            let mut batch = Batch::new();
            for key in keys {
                batch.put(Table(self.table), key, &objects.value);
            }
            self.client.batch(&batch).into_iter().try_for_each(|result| result.map(drop))?;
        }
        Ok(())
    }

    /// Reads or writes one object, and waits for the answer.
    ///
    /// # Errors
    /// When the answer has an unexpected status or length, no answer arrives within five seconds,
    /// or the driver fails.
    pub(crate) fn operate(
        &mut self,
        objects: &Objects,
        number: usize,
        write: bool,
    ) -> Result<OperationTimes> {
        let key = objects.key(number);
        let (table, value) = (self.table, &objects.value[..]);
        match write {
            true => self.call(
                &Request::Write { table, key: &key, value, condition: Condition::None, ttl: None },
                0,
            ),
            false => self.call(&Request::Read { table, key: &key }, value.len()),
        }
    }

    /// Sends a request and waits for its answer, which must have a body of `wanted` bytes.
    fn call(&mut self, request: &Request<'_>, wanted: usize) -> Result<OperationTimes> {
        let mut now = self.client.now();
        let core = self.client.core_mut();
        let begun = stamp();
        core.submit(now, 0, request, now + DEADLINE)?;
        core.flush();
        // Stamps may count events instead of time; iterations are always timed.
        let counted = counts_events();
        let started = if counted { ticks() } else { begun };
        let (mut last, mut longest_iteration, mut ended) = (started, 0, None);
        while ended.is_none() {
            self.client.core_mut().poll(now, &mut |_, answer| {
                let right = answer
                    .is_ok_and(|answer| answer.status == Status::Ok && answer.body.len() == wanted);
                ended = Some((stamp(), right));
            })?;
            let iterated = match ended {
                Some((at, _)) if !counted => at,
                _ => ticks(),
            };
            longest_iteration = longest_iteration.max(iterated.saturating_sub(last));
            last = iterated;
            if iterated.saturating_sub(started) > LATE {
                now = self.client.now();
            }
        }
        let (end, right) = ended.expect("the loop ends with it");
        ensure!(right, "a request was not answered as it should be, with {wanted} B");
        Ok(OperationTimes {
            begun,
            total: end.saturating_sub(begun),
            longest_iteration,
            ..OperationTimes::default()
        })
    }

    /// Makes the server echo a value, and returns the round-trip time in [`ticks`].
    ///
    /// # Errors
    /// When the answer has an unexpected status or length, no answer arrives within five seconds,
    /// or the driver fails.
    pub(crate) fn echo(&mut self, value: &[u8]) -> Result<u64> {
        Ok(self.call(&Request::Echo { table: self.table, value }, value.len())?.total)
    }

    /// Reads or writes one object as [`operate`](Self::operate) does. The client's driver also
    /// takes stamps, from which `out` and `back` are computed.
    ///
    /// # Errors
    /// For the reasons of [`operate`](Self::operate).
    pub(crate) fn operate_stamped(
        &mut self,
        objects: &Objects,
        number: usize,
        write: bool,
    ) -> Result<OperationTimes> {
        self.client.core_mut().record_request_times(self.table)?;
        let times = self.operate(objects, number, write)?;
        let request_times = self.client.core_mut().request_times(self.table)?;
        let end = times.begun + times.total;
        Ok(OperationTimes {
            out: request_times.sent.saturating_sub(times.begun),
            back: end.saturating_sub(request_times.received),
            ..times
        })
    }

    /// Pings the server's driver, which answers without the server, and returns the round-trip time
    /// in [`ticks`]. Returns `None` if the driver has no ping.
    ///
    /// # Errors
    /// When no answer arrives within five seconds, or the driver fails.
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

    /// Queries the server's counters.
    ///
    /// # Errors
    /// When the server does not answer.
    pub(crate) fn counters(&mut self) -> Result<Counters> {
        Ok(Counters(self.client.server_stats(&self.locator)?))
    }

    /// Returns the number of requests that the client has retransmitted, over all transports.
    pub(crate) fn resent(&mut self) -> u64 {
        self.client.core_mut().rpc_counters().map(|counters| counters.retransmissions).sum()
    }
}

/// The counters of a server, by name.
#[derive(Clone, Debug, Default)]
pub(crate) struct Counters(Vec<sprat_client::Counter>);

impl Counters {
    /// Returns the value of the counter `name`, or `None` if the server has no such counter.
    pub(crate) fn get(&self, name: &str) -> Option<u64> {
        self.0.iter().find(|counter| counter.name == name).map(|counter| counter.value)
    }
}
