//! The blocking client.

use crate::core::Core;
use crate::error::Error;
use crate::target::Target;
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

/// Where the cluster is, and how to wait for it.
#[derive(Clone, Debug)]
pub struct Options {
    /// Locator of the coordinator; of several, all of them with commas between.
    pub coordinator: String,
    /// Locator of our own end, for transports that know no operating system to ask: `fast+dpdk`,
    /// with the device.
    pub local: Option<String>,
    /// How long an operation may take in all, repeats included.
    pub timeout: Duration,
    /// Whether to wait that long also for coordinators that refuse connections, instead of
    /// failing at once:
    /// [`Core::wait_for_coordinators`].
    pub patient: bool,
    /// What the calling thread does while it waits.
    pub waiting: Mode,
    /// Who we are to the cluster; without, we speak only to one that lets in anybody.
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
    /// The locators as such.
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

/// How long to wait before it is asked again who has what nobody has for now.
const LOOK_AGAIN: Duration = Duration::from_millis(10);

/// Names an operation submitted with [`Client::submit`].
#[derive(Clone, Copy, Debug, Eq, Hash, PartialEq)]
pub struct Ticket(u64);

/// An answer kept until it is asked for.
struct Kept {
    status: Status,
    more: bool,
    count: u32,
    number: u64,
    body: Vec<u8>,
}

impl Kept {
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

/// A connection to a cluster, for one thread.
pub struct Client {
    core: Core,
    idle: Idle,
    start: Instant,
    timeout: Duration,
    tag: u64,
    /// Answers to submitted operations that have not been waited for yet.
    kept: HashMap<u64, Result<Kept, Error>>,
    coordinator: Rc<str>,
}

impl Client {
    /// Connects to a cluster. Sends nothing yet: a coordinator that is down shows with the first
    /// operation.
    ///
    /// # Errors
    /// [`Error::Endpoint`] when the locator is of no use.
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
            kept: HashMap::new(),
            coordinator: options.coordinator.as_str().into(),
        })
    }

    /// The time by the client's clock, as [`core_mut`](Self::core_mut) must be told it.
    #[must_use]
    pub fn now(&self) -> Nanos {
        Nanos(0) + self.start.elapsed()
    }

    /// The object of a key; `None` when there is none.
    ///
    /// # Errors
    /// [`Error`].
    pub fn get(&mut self, table: Table, key: &[u8]) -> Result<Option<Object>, Error> {
        self.call(&Request::Read { table: table.0, key }, |answer| {
            (answer.status == Status::Ok).then(|| Object::of(answer))
        })
    }

    /// Stores an object, whether there is one or not. Returns its version.
    ///
    /// # Errors
    /// [`Error`].
    pub fn put(&mut self, table: Table, key: &[u8], value: &[u8]) -> Result<u64, Error> {
        self.put_if(table, key, value, Condition::None)
    }

    /// Stores an object if the condition holds. Returns its version.
    ///
    /// # Errors
    /// [`Error::Conflict`] when it does not hold; others of [`Error`].
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
    /// [`Error`].
    pub fn remove(&mut self, table: Table, key: &[u8]) -> Result<Option<u64>, Error> {
        self.remove_if(table, key, Condition::None)
    }

    /// Removes an object if the condition holds. Returns the version it had; `None` when there was
    /// none.
    ///
    /// # Errors
    /// [`Error::Conflict`] when it does not hold; others of [`Error`].
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
    /// [`Error::NotANumber`] when the object is no integer counter or the sum overflows; others of
    /// [`Error`].
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
    /// [`Error::NotANumber`] when the object is no double counter or the sum is not finite; others
    /// of [`Error`].
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

    /// The next objects of a table: from the beginning, or on from where an earlier page ended.
    ///
    /// # Errors
    /// [`Error`].
    pub fn scan(&mut self, table: Table, after: Option<u64>) -> Result<Page, Error> {
        self.call(&Request::Scan { table: table.0, after }, Page::of)?
            .ok_or_else(|| self.protocol())
    }

    /// How much a table holds: the sum of what each of its servers tells. While tablets move
    /// between servers, objects may be counted twice.
    ///
    /// # Errors
    /// [`Error`].
    pub fn table_stats(&mut self, table: Table) -> Result<TableStats, Error> {
        let until = self.now() + self.timeout;
        loop {
            if let Some(servers) = self.core.everybody(table.0)? {
                let told = servers.into_iter().map(|server| self.stats_of(table, server));
                match told.collect::<Result<Vec<_>, _>>() {
                    // It was there a moment ago.
                    Err(Error::TableDropped(_)) if self.now() < until => {}
                    told => {
                        let add = |sum: TableStats, one: TableStats| TableStats {
                            objects: sum.objects + one.objects,
                            bytes: sum.bytes + one.bytes,
                        };
                        return told.map(|told| told.into_iter().fold(TableStats::default(), add));
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
            std::thread::sleep(LOOK_AGAIN);
            self.locate(table)?;
        }
    }

    fn stats_of(&mut self, table: Table, server: Target) -> Result<TableStats, Error> {
        let stats =
            self.call_at(Some(server), "", &Request::TableStats { table: table.0 }, |answer| {
                let bytes =
                    sprat_wire::op::Records::new(answer.body).counter().map(|(_, bytes)| bytes)?;
                Some(TableStats { objects: answer.number, bytes })
            })?;
        stats.ok_or_else(|| self.protocol())
    }

    /// Asks where a table is by now.
    fn locate(&mut self, table: Table) -> Result<(), Error> {
        let request = Request::LocateTable { table: table.0 };
        let found = self.call(&request, |answer| sprat_wire::op::Records::new(answer.body).table());
        match found {
            Err(Error::NoSuchTable(_)) => Err(Error::TableDropped(table.0)),
            found => self.core.learn(&found?.ok_or_else(|| self.protocol())?),
        }
    }

    /// Makes a table, unless there is one of that name. In a cluster that keeps replicas it is
    /// spread over all servers, up to 16.
    ///
    /// # Errors
    /// [`Error`].
    pub fn create_table(&mut self, name: &str) -> Result<Table, Error> {
        self.create_table_in(name, 0)
    }

    /// The same, in so many tablets; zero: as many as the coordinator thinks right.
    ///
    /// # Errors
    /// [`Error`].
    pub fn create_table_in(&mut self, name: &str, tablets: u32) -> Result<Table, Error> {
        self.one_table(name, &Request::CreateTable { name, tablets })
    }

    /// The table of a name.
    ///
    /// # Errors
    /// [`Error::NoSuchTable`]; others of [`Error`].
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
    /// [`Error::NoSuchTable`]; others of [`Error`].
    pub fn drop_table(&mut self, name: &str) -> Result<(), Error> {
        self.call_named(name, &Request::DropTable { name }, |_| ())
    }

    /// Has a tablet, or a part of one, moved to another server while it is served. Returns when
    /// that is written down: when it is done, [`list_tables`](Self::list_tables) tells.
    ///
    /// # Errors
    /// [`Error::Refused`] says why not; others of [`Error`].
    pub fn move_tablet(&mut self, table: Table, range: Range, to: u32) -> Result<(), Error> {
        self.call(&Request::MoveTablet { table: table.0, to, range: &range.into() }, |_| ())
    }

    /// Has all tablets of a server moved to others, and none given to it; or, with `drain` false,
    /// has it given some again.
    ///
    /// # Errors
    /// [`Error::Refused`] says why not; others of [`Error`].
    pub fn drain(&mut self, server: u32, drain: bool) -> Result<(), Error> {
        self.call(&Request::Drain { server, drain }, |_| ())
    }

    /// Every table, by name.
    ///
    /// # Errors
    /// [`Error`].
    pub fn list_tables(&mut self) -> Result<Vec<TableRecord>, Error> {
        self.call(&Request::ListTables, |answer| list(answer, |records| records.table()))?
    }

    /// Every server that has enlisted.
    ///
    /// # Errors
    /// [`Error`].
    pub fn list_servers(&mut self) -> Result<Vec<ServerRecord>, Error> {
        self.call(&Request::ListServers, |answer| list(answer, |records| records.server()))?
    }

    /// A server's counters, by its locator.
    ///
    /// # Errors
    /// [`Error`].
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

    /// The coordinator that leads: its term, and its locator. Zero and empty when there is but one.
    ///
    /// # Errors
    /// [`Error`].
    pub fn leader(&mut self) -> Result<(u64, String), Error> {
        self.call(&Request::WhoLeads, |answer| {
            (answer.number, String::from_utf8_lossy(answer.body).into_owned())
        })
    }

    /// Whether the one coordinator that this client was told of leads, and in which term.
    ///
    /// # Errors
    /// [`Error`].
    pub fn ask_leads(&mut self) -> Result<(bool, u64), Error> {
        let target = self.core.coordinator();
        let (now, tag) = (self.now(), self.next_tag());
        self.core.submit_to(now, tag, target, &Request::WhoLeads, now + self.timeout)?;
        self.turn(now, None)?;
        self.wait_whatever(Ticket(tag), |answer| (answer.status == Status::Ok, answer.number))
    }

    /// From here on an operation may take so long in all.
    pub fn set_timeout(&mut self, timeout: Duration) {
        self.timeout = timeout;
    }

    /// Submits an operation without waiting for it; see [`wait`](Self::wait). It leaves at once.
    ///
    /// # Errors
    /// What is wrong before anything is sent, such as [`Error::TooManyPending`].
    pub fn submit(&mut self, request: &Request<'_>) -> Result<Ticket, Error> {
        let (now, tag) = (self.now(), self.next_tag());
        self.core.submit(now, tag, request, now + self.timeout)?;
        self.turn(now, None)?;
        Ok(Ticket(tag))
    }

    /// Waits for the answer to a submitted operation and gives it to `take`. A status other than
    /// `Ok` and `NotFound` is an error.
    ///
    /// # Errors
    /// [`Error`].
    ///
    /// # Panics
    /// When the ticket was waited for before.
    pub fn wait<T>(
        &mut self,
        ticket: Ticket,
        take: impl FnOnce(&Answer<'_>) -> T,
    ) -> Result<T, Error> {
        let coordinator = self.coordinator.clone();
        self.wait_whatever(ticket, |answer| {
            Error::judge(answer, &coordinator, 0, "").map(|answer| take(&answer))
        })?
    }

    /// As [`wait`](Self::wait), whatever the answer's status is.
    ///
    /// # Errors
    /// Why there is no answer.
    ///
    /// # Panics
    /// As [`wait`](Self::wait).
    pub fn wait_whatever<T>(
        &mut self,
        ticket: Ticket,
        take: impl FnOnce(&Answer<'_>) -> T,
    ) -> Result<T, Error> {
        loop {
            if let Some(kept) = self.kept.remove(&ticket.0) {
                return Ok(take(&kept?.answer()));
            }
            assert!(self.core.pending() > 0, "a ticket is waited for once");
            self.round(None)?;
        }
    }

    /// The client without its waiting, for load generators. Operations of [`submit`](Self::submit)
    /// must have been waited for.
    #[must_use]
    pub fn into_core(self) -> Core {
        self.core
    }

    /// The client without its waiting, for a while: what is begun there must end there.
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

    /// One operation from beginning to end, on the caller's thread. The answer is read where it
    /// lies.
    fn call_at<T>(
        &mut self,
        target: Option<Target>,
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
            self.round(Some((tag, &mut |answer: Result<Answer<'_>, Error>| {
                result = Some(answer.and_then(|answer| {
                    Error::judge(&answer, &coordinator, table, name).map(|answer| take(&answer))
                }));
            })))?;
        }
        result.expect("the loop ended")
    }

    /// A turn, and a rest if there was nothing to do; the rest first for one that sleeps at once.
    fn round(&mut self, one: Option<One<'_>>) -> Result<(), Error> {
        let mut now = self.now();
        let rest_first = self.idle.sleeps_at_once(now);
        if rest_first {
            self.rest(now)?;
            now = self.now();
        }
        if self.turn(now, one)? {
            self.idle.worked(now);
        } else if !rest_first {
            self.rest(now)?;
        }
        Ok(())
    }

    /// Waits for something to arrive or become due.
    fn rest(&mut self, now: Nanos) -> Result<(), Error> {
        // Without a source only time passes, until an operation is due again.
        let rested = self.idle.rest(now, || (self.core.next_deadline(), self.core.sources()));
        rested.map(drop).map_err(|cause| Error::Endpoint(format!("cannot wait: {cause}")))
    }

    /// Takes what has arrived: the answer to `one` goes there, others are kept.
    fn turn(&mut self, now: Nanos, mut one: Option<One<'_>>) -> Result<bool, Error> {
        let kept = &mut self.kept;
        self.core.poll(now, &mut |tag, answer| match &mut one {
            Some((wanted, take)) if *wanted == tag => take(answer),
            _ => {
                kept.insert(tag, answer.map(|answer| Kept::of(&answer)));
            }
        })
    }
}

/// The answer being waited for: its tag, and who takes it.
type One<'a> = (u64, &'a mut dyn FnMut(Result<Answer<'_>, Error>));

fn word(answer: &Answer<'_>) -> Option<[u8; 8]> {
    answer.body.try_into().ok()
}
