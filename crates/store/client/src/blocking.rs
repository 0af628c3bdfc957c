//! The blocking client.

use crate::core::Core;
use crate::error::Error;
use crate::target::ServerHandle;
use crate::types::{Counter, Object, Page, Table, TableStats, list};
use sprat_host::random;
use sprat_key::Identity;
use sprat_net::{Idle, Locator, Locators, Mode, Nanos, Policy};
use sprat_wire::op::{Answer, Condition, Request, ServerRecord, Status, TableRecord};
use sprat_wire::tablet::Range;
use std::collections::HashMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// The cluster to connect to, and how to wait for its answers.
#[derive(Clone, Debug)]
pub struct Options {
    /// Locator of the coordinator; of several, all of them, separated by commas.
    pub coordinator: String,
    /// The client's own locator, for transports that bypass the kernel (`fast+dpdk`): it names the
    /// device.
    pub local: Option<String>,
    /// How long an operation may take in all, including retries.
    pub timeout: Duration,
    /// Whether an operation waits until its timeout for coordinators that refuse connections,
    /// instead of failing at once: [`Core::wait_for_coordinators`].
    pub patient: bool,
    /// What the calling thread does while it waits.
    pub waiting: Mode,
    /// The client's identity; without one it can use only a cluster that admits anyone.
    pub identity: Option<Arc<Identity>>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            coordinator: "tcp:host=127.0.0.1,port=11100".into(),
            local: None,
            timeout: Duration::from_secs(10),
            patient: false,
            waiting: Mode::Adaptive,
            identity: None,
        }
    }
}

impl Options {
    /// Parses the coordinators' locators and the client's own.
    pub(crate) fn locators(&self) -> Result<(Locators, Option<Locator>), Error> {
        let endpoint = |error: sprat_net::LocatorError| Error::Endpoint(error.to_string());
        let local = self
            .local
            .as_deref()
            .map(|text| text.parse::<Locator>().map_err(endpoint))
            .transpose()?;
        Ok((self.coordinator.parse().map_err(endpoint)?, local))
    }
}

/// Interval at which the client asks the coordinator again for tablets that have no server.
const LOCATE_INTERVAL: Duration = Duration::from_millis(10);

/// Names an operation submitted with [`Client::submit`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Ticket(u64);

/// A copy of an answer, kept until the caller waits for it.
struct StoredAnswer {
    status: Status,
    more: bool,
    count: u32,
    number: u64,
    body: Vec<u8>,
}

impl StoredAnswer {
    fn of(answer: &Answer<'_>) -> Self {
        let Answer { status, more, count, number, body } = *answer;
        Self { status, more, count, number, body: body.to_vec() }
    }

    fn answer(&self) -> Answer<'_> {
        Answer {
            status: self.status,
            more: self.more,
            count: self.count,
            number: self.number,
            body: &self.body,
        }
    }
}

/// A client of a cluster, for one thread: each call waits on that thread for its answer.
///
/// [`connect`](Self::connect) sends nothing yet. Find a table with [`table`](Self::table) or
/// [`create_table`](Self::create_table), then read and write its objects. A call ends within the
/// [timeout](Options::timeout); until then the client sends the operation again where that is safe,
/// also to the servers that recover a failed one's tablets. For many operations at once use
/// [`submit`](Self::submit) and [`wait`](Self::wait). The client starts no thread.
pub struct Client {
    core: Core,
    idle: Idle,
    start: Instant,
    timeout: Duration,
    tag: u64,
    /// Answers to submitted operations that the caller has not waited for yet.
    stored: HashMap<u64, Result<StoredAnswer, Error>>,
    coordinator: Rc<str>,
}

impl Client {
    /// Makes a client of a cluster. Sends nothing yet: if the coordinator cannot be reached, the
    /// first operation reports it.
    ///
    /// # Errors
    /// [`Error::Endpoint`] when a locator is invalid or its transport cannot be opened.
    pub fn connect(options: &Options) -> Result<Self, Error> {
        let (coordinator, local) = options.locators()?;
        let seed = random();
        let mut core = Core::new(&coordinator, local, options.identity.as_ref(), seed)?;
        if options.patient {
            core.wait_for_coordinators();
        }
        let idle = Idle::new(Policy::of(options.waiting), Nanos(0)).map_err(|cause| {
            Error::Endpoint(format!("cannot make an eventfd to wait on: {cause}"))
        })?;
        Ok(Self {
            core,
            idle,
            start: Instant::now(),
            timeout: options.timeout,
            tag: 0,
            stored: HashMap::new(),
            coordinator: options.coordinator.as_str().into(),
        })
    }

    /// Returns the time by the client's clock, in which the methods of [`core_mut`](Self::core_mut)
    /// expect `now`.
    #[must_use]
    pub fn now(&self) -> Nanos {
        Nanos(0) + self.start.elapsed()
    }

    /// Reads the object of a key; `None` when there is none.
    ///
    /// # Errors
    /// [`Error`] when the key is too long, the table was dropped, this client has no right to read
    /// it, or no answer arrives in time.
    pub fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Object>, Error> {
        self.call(&Request::Read { table: table.0, key }, |answer| {
            (answer.status == Status::Ok).then(|| Object::of(answer))
        })
    }

    /// Stores an object, replacing the one of that key if there is one. Returns its version.
    ///
    /// # Errors
    /// [`Error`] when the key or value is too long, the table was dropped, this client has no right
    /// to change it, the server cannot take the write, or no answer arrives in time. The write may
    /// have been executed if [`Error::is_indeterminate`] says so.
    pub fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<u64, Error> {
        self.put_if(table, key, value, Condition::None)
    }

    /// Stores an object if the condition holds. Returns its version.
    ///
    /// # Errors
    /// [`Error::Conflict`] when the condition does not hold; other [`Error`]s as for
    /// [`put`](Self::put).
    pub fn put_if(
        &mut self,
        table: Table,
        key: &[u8],
        value: &[u8],
        condition: Condition,
    ) -> Result<u64, Error> {
        self.call(&Request::Write { table: table.0, key, value, condition }, |answer| answer.number)
    }

    /// Removes an object. Returns the version it had; `None` when there was none.
    ///
    /// # Errors
    /// [`Error`] when the key is too long, the table was dropped, this client has no right to
    /// change it, the server cannot take the change, or no answer arrives in time. The object may
    /// have been removed if [`Error::is_indeterminate`] says so.
    pub fn remove(&mut self, table: Table, key: &[u8]) -> Result<Option<u64>, Error> {
        self.remove_if(table, key, Condition::None)
    }

    /// Removes an object if the condition holds. Returns the version it had; `None` when there was
    /// none.
    ///
    /// # Errors
    /// [`Error::Conflict`] when the condition does not hold; other [`Error`]s as for
    /// [`remove`](Self::remove).
    pub fn remove_if(
        &mut self,
        table: Table,
        key: &[u8],
        condition: Condition,
    ) -> Result<Option<u64>, Error> {
        self.call(&Request::Remove { table: table.0, key, condition }, |answer| {
            (answer.status == Status::Ok).then_some(answer.number)
        })
    }

    /// Adds to a 64-bit integer; an absent one counts as zero. Returns the sum and the object's
    /// version.
    ///
    /// # Errors
    /// [`Error::NotANumber`] when the object is not an integer counter or the sum overflows; other
    /// [`Error`]s as for [`put`](Self::put).
    pub fn increment_i64(
        &mut self,
        table: Table,
        key: &[u8],
        delta: i64,
    ) -> Result<(i64, u64), Error> {
        let request = Request::IncrementI64 { table: table.0, key, delta };
        let (sum, version) = self.call(&request, |answer| (word(answer), answer.number))?;
        Ok((i64::from_le_bytes(sum.ok_or_else(|| self.protocol())?), version))
    }

    /// Adds to a double; an absent one counts as zero. Returns the sum and the object's version.
    ///
    /// # Errors
    /// [`Error::NotANumber`] when the object is not a double counter or the sum is not finite;
    /// other [`Error`]s as for [`put`](Self::put).
    pub fn increment_f64(
        &mut self,
        table: Table,
        key: &[u8],
        delta: f64,
    ) -> Result<(f64, u64), Error> {
        let request = Request::IncrementF64 { table: table.0, key, delta };
        let (sum, version) = self.call(&request, |answer| (word(answer), answer.number))?;
        Ok((f64::from_le_bytes(sum.ok_or_else(|| self.protocol())?), version))
    }

    /// Reads the next objects of a table: from the beginning, or after the end of an earlier page
    /// ([`Page::next`]).
    ///
    /// # Errors
    /// [`Error`] when the table was dropped, this client has no right to read it, or no answer
    /// arrives in time.
    pub fn scan(&mut self, table: Table, after: Option<u64>) -> Result<Page, Error> {
        self.call(&Request::Scan { table: table.0, after }, Page::of)?
            .ok_or_else(|| self.protocol())
    }

    /// Counts the objects of a table and their bytes: the sum of what its servers report. While
    /// tablets move between servers, objects may be counted twice.
    ///
    /// # Errors
    /// [`Error`] when the table was dropped, this client has no right to read it, or some server of
    /// the table does not answer in time.
    pub fn table_stats(&mut self, table: Table) -> Result<TableStats, Error> {
        let until = self.now() + self.timeout;
        loop {
            if let Some(servers) = self.core.servers_of(table.0)? {
                let per_server = servers.into_iter().map(|server| self.stats_of(table, server));
                match per_server.collect::<Result<Vec<_>, _>>() {
                    // A server answers so while its tablet moves to another: ask again.
                    Err(Error::TableDropped(_)) if self.now() < until => {}
                    per_server => {
                        let add = |sum: TableStats, one: TableStats| TableStats {
                            objects: sum.objects + one.objects,
                            bytes: sum.bytes + one.bytes,
                        };
                        return per_server.map(|per_server| {
                            per_server.into_iter().fold(TableStats::default(), add)
                        });
                    }
                }
            }
            if self.now() >= until {
                return Err(Error::Recovering { table: table.0, waited: self.timeout });
            }
            #[expect(
                clippy::disallowed_methods,
                reason = "a blocking client's thread is the caller's"
            )]
            std::thread::sleep(LOCATE_INTERVAL);
            self.locate(table)?;
        }
    }

    fn stats_of(&mut self, table: Table, server: ServerHandle) -> Result<TableStats, Error> {
        let stats =
            self.call_at(Some(server), "", &Request::TableStats { table: table.0 }, |answer| {
                let bytes =
                    sprat_wire::op::Records::new(answer.body).counter().map(|(_, bytes)| bytes)?;
                Some(TableStats { objects: answer.number, bytes })
            })?;
        stats.ok_or_else(|| self.protocol())
    }

    /// Asks the coordinator which servers have a table, and learns it.
    fn locate(&mut self, table: Table) -> Result<(), Error> {
        let request = Request::LocateTable { table: table.0 };
        let found = self.call(&request, |answer| sprat_wire::op::Records::new(answer.body).table());
        match found {
            Err(Error::NoSuchTable(_)) => Err(Error::TableDropped(table.0)),
            found => self.core.learn(&found?.ok_or_else(|| self.protocol())?),
        }
    }

    /// Makes a table, unless there is one of that name. In a cluster with replicas the coordinator
    /// spreads it over all servers, up to 16.
    ///
    /// # Errors
    /// [`Error`] when the name is not valid, no server has enlisted, the coordinator refuses (a
    /// limit is reached, or this client has no right), or no answer arrives in time.
    pub fn create_table(&mut self, name: &str) -> Result<Table, Error> {
        self.create_table_in(name, 0)
    }

    /// Like [`create_table`](Self::create_table), with that many tablets; zero: as many as the
    /// coordinator chooses.
    ///
    /// # Errors
    /// [`Error`] for the causes of [`create_table`](Self::create_table), and when several tablets
    /// are requested of a cluster whose servers keep no replicas.
    pub fn create_table_in(&mut self, name: &str, tablets: u32) -> Result<Table, Error> {
        self.one_table(name, &Request::CreateTable { name, tablets })
    }

    /// Finds the table of a name.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`] when there is no table of that name; other [`Error`]s when the name
    /// is not valid, the coordinator refuses, or no answer arrives in time.
    pub fn table(&mut self, name: &str) -> Result<Table, Error> {
        self.one_table(name, &Request::FindTable { name })
    }

    fn one_table(&mut self, name: &str, request: &Request<'_>) -> Result<Table, Error> {
        let table = self.call_named(name, request, |answer| {
            sprat_wire::op::Records::new(answer.body).table()
        })?;
        let table = table.ok_or_else(|| self.protocol())?;
        self.core.learn(&table)?;
        Ok(Table(table.id))
    }

    /// Drops a table and every object in it.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`] when there is no table of that name; other [`Error`]s when the name
    /// is not valid, the coordinator refuses, or no answer arrives in time.
    pub fn drop_table(&mut self, name: &str) -> Result<(), Error> {
        self.call_named(name, &Request::DropTable { name }, |_| ())
    }

    /// Moves a tablet, or a part of one, to another server while it is served. Returns when the
    /// coordinator has recorded the order; [`list_tables`](Self::list_tables) shows when the move
    /// is done.
    ///
    /// # Errors
    /// [`Error::Refused`], with the reason, when the coordinator refuses the move; other [`Error`]s
    /// when this client has no right to administer the cluster or no answer arrives in time.
    pub fn move_tablet(&mut self, table: Table, range: Range, to: u32) -> Result<(), Error> {
        self.call(&Request::MoveTablet { table: table.0, to, range: &range.into() }, |_| ())
    }

    /// Moves all tablets of a server to others, and assigns it none; with `drain` false, lets it be
    /// assigned tablets again.
    ///
    /// # Errors
    /// [`Error::Refused`], with the reason, when the coordinator refuses; other [`Error`]s when
    /// this client has no right to administer the cluster or no answer arrives in time.
    pub fn drain(&mut self, server: u32, drain: bool) -> Result<(), Error> {
        self.call(&Request::Drain { server, drain }, |_| ())
    }

    /// Lists all tables by name.
    ///
    /// # Errors
    /// [`Error`] when no coordinator answers in time, it refuses, or its answer cannot be parsed.
    pub fn list_tables(&mut self) -> Result<Vec<TableRecord>, Error> {
        self.call(&Request::ListTables, |answer| list(answer, |records| records.table()))?
    }

    /// Lists all servers that have enlisted.
    ///
    /// # Errors
    /// [`Error`] when no coordinator answers in time, it refuses, or its answer cannot be parsed.
    pub fn list_servers(&mut self) -> Result<Vec<ServerRecord>, Error> {
        self.call(&Request::ListServers, |answer| list(answer, |records| records.server()))?
    }

    /// Reads the counters of the server at a locator.
    ///
    /// # Errors
    /// [`Error`] when the locator is not valid or its transport cannot be opened, or when the
    /// server does not answer in time, refuses, or gives an answer that cannot be parsed.
    pub fn server_stats(&mut self, locator: &str) -> Result<Vec<Counter>, Error> {
        let locator: Locator = locator
            .parse()
            .map_err(|error: sprat_net::LocatorError| Error::Endpoint(error.to_string()))?;
        let target = self.core.target(&locator)?;
        self.call_at(Some(target), "", &Request::ServerStats, |answer| {
            list(answer, |records| {
                records.counter().map(|(name, value)| Counter { name: name.to_owned(), value })
            })
        })?
    }

    /// Returns the term and the locator of the leading coordinator; zero and empty when the cluster
    /// has only one coordinator.
    ///
    /// # Errors
    /// [`Error`] when no coordinator answers in time.
    pub fn leader(&mut self) -> Result<(u64, String), Error> {
        self.call(&Request::WhoLeads, |answer| {
            (answer.number, String::from_utf8_lossy(answer.body).into_owned())
        })
    }

    /// Returns whether the coordinator that this client currently uses leads, and in which term. It
    /// does not try others.
    ///
    /// # Errors
    /// [`Error`] when that coordinator does not answer in time.
    pub fn coordinator_leads(&mut self) -> Result<(bool, u64), Error> {
        let target = self.core.coordinator();
        let (now, tag) = (self.now(), self.next_tag());
        self.core.submit_to(now, tag, target, &Request::WhoLeads, now + self.timeout)?;
        self.poll(now, None)?;
        self.wait_any_status(Ticket(tag), |answer| (answer.status == Status::Ok, answer.number))
    }

    /// Sets how long an operation may take in all, from the next one on.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Submits an operation without waiting for it; see [`wait`](Self::wait). It is sent at once.
    ///
    /// # Errors
    /// Those found before anything is sent, such as [`Error::TooManyPending`].
    pub fn submit(&mut self, request: &Request<'_>) -> Result<Ticket, Error> {
        let (now, tag) = (self.now(), self.next_tag());
        self.core.submit(now, tag, request, now + self.timeout)?;
        self.poll(now, None)?;
        Ok(Ticket(tag))
    }

    /// Waits for the answer to a submitted operation and passes it to `take`. A status other than
    /// `Ok` and `NotFound` is an error.
    ///
    /// # Errors
    /// [`Error`] when the operation failed, or no answer to it arrives in time.
    ///
    /// # Panics
    /// When the ticket was waited for before.
    pub fn wait<T>(
        &mut self,
        ticket: Ticket,
        take: impl FnOnce(&Answer<'_>) -> T,
    ) -> Result<T, Error> {
        let coordinator = self.coordinator.clone();
        self.wait_any_status(ticket, |answer| {
            Error::check_status(answer, &coordinator, 0, "").map(|answer| take(&answer))
        })?
    }

    /// Like [`wait`](Self::wait), but passes an answer of any status to `take`.
    ///
    /// # Errors
    /// Why there is no answer.
    ///
    /// # Panics
    /// When the ticket was waited for before.
    pub fn wait_any_status<T>(
        &mut self,
        ticket: Ticket,
        take: impl FnOnce(&Answer<'_>) -> T,
    ) -> Result<T, Error> {
        loop {
            if let Some(stored) = self.stored.remove(&ticket.0) {
                return Ok(take(&stored?.answer()));
            }
            assert!(self.core.pending() > 0, "a ticket is waited for once");
            self.iterate(None)?;
        }
    }

    /// Turns the client into its [`Core`], for load generators. The caller must have waited for all
    /// submitted operations.
    #[must_use]
    pub fn into_core(self) -> Core {
        self.core
    }

    /// Lends the client's [`Core`]. Operations submitted to it must end through it.
    pub fn core_mut(&mut self) -> &mut Core {
        &mut self.core
    }

    fn next_tag(&mut self) -> u64 {
        self.tag += 1;
        self.tag
    }

    fn protocol(&self) -> Error {
        Error::Protocol { server: self.coordinator.to_string() }
    }

    fn call<T>(
        &mut self,
        request: &Request<'_>,
        take: impl FnMut(&Answer<'_>) -> T,
    ) -> Result<T, Error> {
        self.call_at(None, "", request, take)
    }

    fn call_named<T>(
        &mut self,
        name: &str,
        request: &Request<'_>,
        take: impl FnMut(&Answer<'_>) -> T,
    ) -> Result<T, Error> {
        self.call_at(None, name, request, take)
    }

    /// Executes one operation on the caller's thread and passes its answer to `take`, from the
    /// receive buffer.
    fn call_at<T>(
        &mut self,
        target: Option<ServerHandle>,
        name: &str,
        request: &Request<'_>,
        mut take: impl FnMut(&Answer<'_>) -> T,
    ) -> Result<T, Error> {
        let (now, tag) = (self.now(), self.next_tag());
        let deadline = now + self.timeout;
        match target {
            Some(target) => self.core.submit_to(now, tag, target, request, deadline)?,
            None => self.core.submit(now, tag, request, deadline)?,
        }
        self.core.flush();
        let table = request.table().unwrap_or_default();
        let coordinator = Rc::clone(&self.coordinator);
        let mut result = None;
        while result.is_none() {
            self.iterate(Some((tag, &mut |answer: Result<Answer<'_>, Error>| {
                result = Some(answer.and_then(|answer| {
                    Error::check_status(&answer, &coordinator, table, name)
                        .map(|answer| take(&answer))
                }));
            })))?;
        }
        result.expect("the loop ended")
    }

    /// Polls once, and rests if there was nothing to do; in the mode that sleeps at once it rests
    /// first.
    fn iterate(&mut self, one: Option<Awaited<'_>>) -> Result<(), Error> {
        let mut now = self.now();
        let rest_first = self.idle.sleeps_at_once(now);
        if rest_first {
            self.rest(now)?;
            now = self.now();
        }
        if self.poll(now, one)? {
            self.idle.worked(now);
        } else if !rest_first {
            self.rest(now)?;
        }
        Ok(())
    }

    /// Waits for a frame or for something to become due.
    fn rest(&mut self, now: Nanos) -> Result<(), Error> {
        // Without a source only time passes, until an operation is to be sent again.
        let rested = self.idle.rest(now, || (self.core.next_deadline(), self.core.sources()));
        rested.map(drop).map_err(|cause| Error::Endpoint(format!("cannot wait: {cause}")))
    }

    /// Polls once: passes the answer to `one` to its closure, and stores the others.
    fn poll(&mut self, now: Nanos, mut one: Option<Awaited<'_>>) -> Result<bool, Error> {
        let stored = &mut self.stored;
        self.core.poll(now, &mut |tag, answer| match &mut one {
            Some((wanted, take)) if *wanted == tag => take(answer),
            _ => {
                stored.insert(tag, answer.map(|answer| StoredAnswer::of(&answer)));
            }
        })
    }
}

/// The tag of the answer being waited for, and the closure that takes it.
type Awaited<'a> = (u64, &'a mut dyn FnMut(Result<Answer<'_>, Error>));

fn word(answer: &Answer<'_>) -> Option<[u8; 8]> {
    answer.body.try_into().ok()
}
