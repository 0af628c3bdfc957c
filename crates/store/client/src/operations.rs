//! The operations that both clients offer, in one list.

use crate::core::Core;
use crate::error::Error;
use crate::keys::Index;
use crate::types::{Object, Table};
use sprat_wire::op::{Answer, Records, Request, Status, TableRecord};

/// The recipient of an operation.
pub(crate) enum Recipient {
    /// The server of the key's tablet, or the leading coordinator, whichever the request is for.
    ByRequest,
    /// The server at this locator.
    Server(String),
    /// The coordinator that the client currently uses, whether it leads or not.
    CurrentCoordinator,
}

/// An operation of a client: the request to send, and how to turn the answer into a result.
///
/// A client [checks](sprat_wire::op::Status) the answer's status, passes the answer to `parse`
/// while it still lies in the receive buffer, and then the result to `finish`. `None` from `parse`
/// is a malformed answer.
pub(crate) struct Operation<'a, P, F> {
    pub(crate) request: Request<'a>,
    pub(crate) recipient: Recipient,
    /// The name of the table, for errors of requests that have no table's id.
    pub(crate) name: &'a str,
    /// Whether `parse` takes answers of every status, instead of `Ok` and `NotFound`.
    pub(crate) any_status: bool,
    pub(crate) parse: P,
    pub(crate) finish: F,
}

impl<'a> Operation<'a, (), ()> {
    /// Makes an operation whose result is what `parse` finds in the answer.
    #[inline]
    pub(crate) fn new<P, T>(
        request: Request<'a>,
        parse: P,
    ) -> Operation<'a, P, impl FnOnce(&mut Core, T) -> Result<T, Error> + Send + use<P, T>>
    where
        P: FnOnce(&Answer<'_>) -> Option<T>,
    {
        Operation {
            request,
            recipient: Recipient::ByRequest,
            name: "",
            any_status: false,
            parse,
            finish: |_: &mut Core, result| Ok(result),
        }
    }
}

impl<'a, P, F> Operation<'a, P, F> {
    /// Sends the operation to this recipient.
    pub(crate) fn to(self, recipient: Recipient) -> Self {
        Self { recipient, ..self }
    }

    /// Names the table in errors.
    pub(crate) fn named(self, name: &'a str) -> Self {
        Self { name, ..self }
    }

    /// Makes the result, with the client's core, from what `parse` found.
    pub(crate) fn then<G>(self, finish: G) -> Operation<'a, P, G> {
        let Self { request, recipient, name, any_status, parse, .. } = self;
        Operation { request, recipient, name, any_status, parse, finish }
    }

    /// Lets `parse` take answers of every status.
    pub(crate) fn of_any_status(self) -> Self {
        Self { any_status: true, ..self }
    }
}

/// Where an answer comes from and what it is about, for errors.
pub(crate) struct AnswerContext<'a> {
    pub(crate) server: &'a str,
    pub(crate) table: u32,
    pub(crate) name: &'a str,
    pub(crate) any_status: bool,
}

impl AnswerContext<'_> {
    /// Checks an answer's status and parses it.
    #[inline]
    pub(crate) fn parse<T>(
        &self,
        answer: Result<Answer<'_>, Error>,
        parse: impl FnOnce(&Answer<'_>) -> Option<T>,
    ) -> Result<T, Error> {
        let answer = answer?;
        if !self.any_status && !matches!(answer.status, Status::Ok | Status::NotFound) {
            return Err(Error::of_answer(&answer, self.server, self.table, self.name));
        }
        parse(&answer).ok_or_else(|| Error::Protocol { server: self.server.to_owned() })
    }
}

/// Returns the `number` of an answer.
pub(crate) fn number(answer: &Answer<'_>) -> Option<u64> {
    Some(answer.number)
}

/// Returns the object that was read, if there is one.
#[expect(clippy::option_option, reason = "the outer one is of an answer that cannot be parsed")]
pub(crate) fn object(answer: &Answer<'_>) -> Option<Option<Object>> {
    Some((answer.status == Status::Ok).then(|| Object::of(answer)))
}

/// Returns the sum and the version of an integer counter.
pub(crate) fn integer_sum(answer: &Answer<'_>) -> Option<(i64, u64)> {
    Some((i64::from_le_bytes(answer.body.try_into().ok()?), answer.number))
}

/// Returns the sum and the version of a double counter.
pub(crate) fn double_sum(answer: &Answer<'_>) -> Option<(f64, u64)> {
    Some((f64::from_le_bytes(answer.body.try_into().ok()?), answer.number))
}

/// Returns the version of the object that was removed or changed, if there was one.
#[expect(clippy::option_option, reason = "the outer one is of an answer that cannot be parsed")]
pub(crate) fn version_if_any(answer: &Answer<'_>) -> Option<Option<u64>> {
    Some((answer.status == Status::Ok).then_some(answer.number))
}

/// Returns the table in a coordinator's answer.
pub(crate) fn one_table(answer: &Answer<'_>) -> Option<TableRecord> {
    Records::new(answer.body).table()
}

/// Takes an answer that holds nothing.
pub(crate) fn nothing(_: &Answer<'_>) -> Option<()> {
    Some(())
}

/// Lets the client know where a table is.
pub(crate) fn learn(core: &mut Core, table: TableRecord) -> Result<Table, Error> {
    core.learn(&table)?;
    Ok(Table(table.id))
}

/// Returns what finds the index of this name among those of a table.
pub(crate) fn one_index(
    name: &str,
) -> impl FnOnce(&mut Core, TableRecord) -> Result<Index, Error> + Send + use<> {
    let name = name.to_owned();
    move |_, table| {
        let found = table.indexes.into_iter().find(|index| index.name == name);
        found.map(Index::of).ok_or(Error::NoSuchIndex)
    }
}

/// Hands the list of operations to a macro, which makes a client's methods of it. Both clients are
/// made in this way, so they have the same operations, which are documented once.
macro_rules! operations {
    ($methods:ident) => {
        $methods! {
            /// Reads the object of a key; `None` when there is none.
            ///
            /// # Errors
            /// [`Error`] when the key is too long, the table was dropped, this client has no right
            /// to read it, or no answer arrives in time.
            fn get(table: Table, key: &[u8]) -> Option<Object> {
                Operation::new(Request::Read { table: table.0, key }, object)
            }

            /// Stores an object, replacing the one of that key if there is one. Returns its
            /// version.
            ///
            /// # Errors
            /// [`Error`] when the key or value is too long, the table was dropped, this client has
            /// no right to change it, the server cannot take the write, or no answer arrives in
            /// time. The write may have been executed if [`Error::is_indeterminate`] says so.
            fn put(table: Table, key: &[u8], value: &[u8]) -> u64 {
                Operation::new(
                    Request::Write {
                        table: table.0,
                        key,
                        value,
                        condition: Condition::None,
                        ttl: None,
                    },
                    number,
                )
            }

            /// Stores an object if the condition holds. Returns its version.
            ///
            /// # Errors
            /// [`Error::Conflict`] when the condition does not hold; other [`Error`]s as for
            /// [`put`](Self::put).
            fn put_if(table: Table, key: &[u8], value: &[u8], condition: Condition) -> u64 {
                Operation::new(
                    Request::Write { table: table.0, key, value, condition, ttl: None },
                    number,
                )
            }

            /// Stores an object that expires, if the condition holds. Returns its version. The time
            /// to live begins when the server executes the write. A later write without a time to
            /// live makes the object permanent; an increment leaves the time of its expiry as it
            /// is.
            ///
            /// # Errors
            /// [`Error::Conflict`] when the condition does not hold; other [`Error`]s as for
            /// [`put`](Self::put).
            fn put_for(
                table: Table,
                key: &[u8],
                value: &[u8],
                ttl: Ttl,
                condition: Condition,
            ) -> u64 {
                Operation::new(
                    Request::Write { table: table.0, key, value, condition, ttl: Some(ttl) },
                    number,
                )
            }

            /// Sets after how long an object expires, counted from when the server executes the
            /// operation; `None`: never. Its value stays. Returns the version that the object gets;
            /// `None` when there is no object.
            ///
            /// # Errors
            /// [`Error`] for the causes of [`put`](Self::put).
            fn set_ttl(table: Table, key: &[u8], ttl: Option<Ttl>) -> Option<u64> {
                Operation::new(
                    Request::SetTtl { table: table.0, key, condition: Condition::None, ttl },
                    version_if_any,
                )
            }

            /// Removes an object. Returns the version it had; `None` when there was none.
            ///
            /// # Errors
            /// [`Error`] when the key is too long, the table was dropped, this client has no right
            /// to change it, the server cannot take the change, or no answer arrives in time. The
            /// object may have been removed if [`Error::is_indeterminate`] says so.
            fn remove(table: Table, key: &[u8]) -> Option<u64> {
                Operation::new(
                    Request::Remove { table: table.0, key, condition: Condition::None },
                    version_if_any,
                )
            }

            /// Removes an object if the condition holds. Returns the version it had; `None` when
            /// there was none.
            ///
            /// # Errors
            /// [`Error::Conflict`] when the condition does not hold; other [`Error`]s as for
            /// [`remove`](Self::remove).
            fn remove_if(table: Table, key: &[u8], condition: Condition) -> Option<u64> {
                Operation::new(Request::Remove { table: table.0, key, condition }, version_if_any)
            }

            /// Adds to a 64-bit integer; an absent one counts as zero. Returns the sum and the
            /// object's version.
            ///
            /// # Errors
            /// [`Error::NotANumber`] when the object is not an integer counter or the sum
            /// overflows; other [`Error`]s as for [`put`](Self::put).
            fn increment_i64(table: Table, key: &[u8], delta: i64) -> (i64, u64) {
                Operation::new(Request::IncrementI64 { table: table.0, key, delta }, integer_sum)
            }

            /// Adds to a double; an absent one counts as zero. Returns the sum and the object's
            /// version.
            ///
            /// # Errors
            /// [`Error::NotANumber`] when the object is not a double counter or the sum is not
            /// finite; other [`Error`]s as for [`put`](Self::put).
            fn increment_f64(table: Table, key: &[u8], delta: f64) -> (f64, u64) {
                Operation::new(Request::IncrementF64 { table: table.0, key, delta }, double_sum)
            }

            /// Reads the next objects of a table: from the beginning, or after the end of an
            /// earlier page ([`Page::next`]).
            ///
            /// # Errors
            /// [`Error`] when the table was dropped, this client has no right to read it, or no
            /// answer arrives in time.
            fn scan(table: Table, after: Option<u64>) -> Page {
                Operation::new(Request::Scan { table: table.0, after }, Page::of)
            }

            /// Reads the first objects of a range of keys of an [ordered](TableOptions::ordered)
            /// table, or of an [`Index`], at most `limit` and about as many as fit into a message;
            /// further ones with [`KeyPage::next`].
            ///
            /// What a page has of one server was so at one moment. Pages, and what different
            /// servers have, are of different moments; an object that exists from the first call
            /// to the last is returned exactly once.
            ///
            /// # Errors
            /// [`Error::NotOrdered`] when the table keeps no order, and [`Error::NoSuchIndex`] when
            /// the index was dropped, or is another table's; [`Error`] when the table was dropped,
            /// this client has no right to read it, a key is over its limit, or no answer arrives
            /// in time: a new index cannot be scanned before its
            /// [size](crate::OrderStats::left) says that it is complete.
            fn scan_keys(table: Table, keys: Keys, limit: u32) -> KeyPage {
                Operation::new(
                    Request::ScanRange {
                        table: table.0,
                        position: 0,
                        query: RangeQuery::write(
                            &mut Vec::new(),
                            keys.index(),
                            &keys.range(),
                            limit,
                        ),
                    },
                    {
                        let keys = keys.clone();
                        move |answer| KeyPage::of(answer, keys)
                    },
                )
            }

            /// Returns what has changed in the tablet of a table that has this position, after
            /// `from`; waits up to [`WATCH_WAIT`](crate::WATCH_WAIT) for a
            /// change. A [`Watch`](crate::Watch) does this for all tablets.
            ///
            /// # Errors
            /// [`Error`] when the table was dropped, this client has no right to read it, or no
            /// answer arrives in time.
            fn watch_tablet(table: Table, position: u64, from: WatchCursor) -> TabletChanges {
                Operation::new(
                    Request::Watch { table: table.0, position, from: &from },
                    TabletChanges::of,
                )
            }

            /// Counts the objects of a table and their bytes: the sum of what its servers report.
            /// While a tablet moves between servers, its objects may be counted twice or not at
            /// all.
            ///
            /// # Errors
            /// [`Error`] when the table was dropped, this client has no right to read it, or some
            /// server of the table does not answer in time.
            fn table_stats(table: Table) -> TableStats {
                Operation::new(Request::TableStats { table: table.0 }, TableStats::of)
            }

            /// Makes a table, unless there is one of that name. In a cluster with replicas the
            /// coordinator spreads the table over all servers, at most 16.
            ///
            /// # Errors
            /// [`Error`] when the name is not valid, no server has enlisted, the coordinator
            /// refuses (a limit is reached, or this client has no right), or no answer arrives in
            /// time.
            fn create_table(name: &str) -> Table {
                Operation::new(
                    Request::CreateTable { name, options: TableOptions::default() },
                    one_table,
                )
                .named(name)
                .then(learn)
            }

            /// Makes a table like [`create_table`](Self::create_table), with a number of tablets,
            /// with objects that give way when memory is full, or with its keys in order.
            ///
            /// # Errors
            /// [`Error`] for the causes of [`create_table`](Self::create_table), when several
            /// tablets are requested of a cluster whose servers keep no replicas, and when there is
            /// a table of that name with another [`TableOptions::when_full`] or
            /// [`TableOptions::ordered`].
            fn create_table_with(name: &str, options: TableOptions) -> Table {
                Operation::new(Request::CreateTable { name, options }, one_table)
                    .named(name)
                    .then(learn)
            }

            /// Finds the table of a name.
            ///
            /// # Errors
            /// [`Error::NoSuchTable`] when there is no table of that name; other [`Error`]s when
            /// the name is not valid, the coordinator refuses, or no answer arrives in time.
            fn table(name: &str) -> Table {
                Operation::new(Request::FindTable { name }, one_table).named(name).then(learn)
            }

            /// Drops a table and every object in it.
            ///
            /// # Errors
            /// [`Error::NoSuchTable`] when there is no table of that name; other [`Error`]s when
            /// the name is not valid, the coordinator refuses, or no answer arrives in time.
            fn drop_table(name: &str) -> () {
                Operation::new(Request::DropTable { name }, nothing).named(name)
            }

            /// Makes an index of a table, unless it has one of that name. The servers put the
            /// objects that are there in order while they serve others:
            /// [`table_stats`](Self::table_stats) shows how far they have come.
            ///
            /// # Errors
            /// [`Error::NoSuchTable`] when there is no table of that name; [`Error::BadIndex`] when
            /// the name or the definition is not [valid](IndexDefinition::check); other [`Error`]s
            /// when the table has another index of that name or as many as it can have, this client
            /// has no right to administer the cluster, or no answer arrives in time.
            fn create_index(table: &str, name: &str, definition: &IndexDefinition) -> Index {
                Operation::new(
                    Request::CreateIndex { table, index: &new_index(name, definition) },
                    one_table,
                )
                .named(table)
                .then(one_index(name))
            }

            /// Finds an index of a table.
            ///
            /// # Errors
            /// [`Error::NoSuchTable`] when there is no table of that name, [`Error::NoSuchIndex`]
            /// when it has no index of that name; other [`Error`]s when the coordinator refuses, or
            /// no answer arrives in time.
            fn index(table: &str, name: &str) -> Index {
                Operation::new(Request::FindTable { name: table }, one_table)
                    .named(table)
                    .then(one_index(name))
            }

            /// Lists the indexes of a table.
            ///
            /// # Errors
            /// [`Error::NoSuchTable`] when there is no table of that name; other [`Error`]s when
            /// the coordinator refuses, or no answer arrives in time.
            fn indexes(table: &str) -> Vec<Index> {
                Operation::new(Request::FindTable { name: table }, |answer| {
                    Some(one_table(answer)?.indexes.into_iter().map(Index::of).collect())
                })
                .named(table)
            }

            /// Drops an index of a table. The objects stay.
            ///
            /// # Errors
            /// As [`index`](Self::index), and when this client has no right to administer the
            /// cluster.
            fn drop_index(table: &str, name: &str) -> () {
                Operation::new(Request::DropIndex { table, index: name }, nothing).named(table)
            }

            /// Moves a tablet, or a part of one, to another server while it is served. Returns when
            /// the coordinator has recorded the order; [`list_tables`](Self::list_tables) shows
            /// when the move is done.
            ///
            /// # Errors
            /// [`Error::Refused`], with the reason, when the coordinator refuses the move; other
            /// [`Error`]s when this client has no right to administer the cluster or no answer
            /// arrives in time.
            fn move_tablet(table: Table, range: Range, to: u32) -> () {
                Operation::new(
                    Request::MoveTablet { table: table.0, to, range: &range.into() },
                    nothing,
                )
            }

            /// Moves all tablets of a server to others, and assigns no more tablets to it; with
            /// `drain` false, lets tablets be assigned to it again.
            ///
            /// # Errors
            /// [`Error::Refused`], with the reason, when the coordinator refuses; other [`Error`]s
            /// when this client has no right to administer the cluster or no answer arrives in
            /// time.
            fn drain(server: u32, drain: bool) -> () {
                Operation::new(Request::Drain { server, drain }, nothing)
            }

            /// Lists the tables on which this client has rights, in the order of their names.
            ///
            /// # Errors
            /// [`Error`] when no coordinator answers in time, it refuses, or its answer cannot be
            /// parsed.
            fn list_tables() -> Vec<TableRecord> {
                Operation::new(Request::ListTables, |answer| list(answer, Records::table))
            }

            /// Lists all servers that have enlisted.
            ///
            /// # Errors
            /// [`Error`] when no coordinator answers in time, it refuses, or its answer cannot be
            /// parsed.
            fn list_servers() -> Vec<ServerRecord> {
                Operation::new(Request::ListServers, |answer| list(answer, Records::server))
            }

            /// Reads the counters of the server at a locator.
            ///
            /// # Errors
            /// [`Error`] when the locator is not valid or its transport cannot be opened, or when
            /// the server does not answer in time, refuses, or gives an answer that cannot be
            /// parsed.
            fn server_stats(locator: &str) -> Vec<Counter> {
                Operation::new(Request::ServerStats, |answer| list(answer, Counter::of))
                    .to(Recipient::Server(locator.to_owned()))
            }

            /// Takes a step of a copy of the log of the server at a locator, for a backup of the
            /// store. A server keeps only one client at a time from interfering with another's
            /// copy: see [`CopyStep`].
            ///
            /// # Errors
            /// [`Error::Refused`] when another client copies that log; other [`Error`]s when this
            /// client has no right to administer the cluster, or the server does not answer in
            /// time.
            fn copy_log(locator: &str, step: CopyStep<'_>) -> CopiedPiece {
                Operation::new(Request::CopyLog { step }, |answer| Some(CopiedPiece::of(answer)))
                    .to(Recipient::Server(locator.to_owned()))
            }

            /// Returns a copy of the cluster's catalog, as servers keep it, and its version.
            ///
            /// # Errors
            /// [`Error`] when this client has no right to administer the cluster, or no coordinator
            /// answers in time.
            fn copy_catalog() -> (u64, Vec<u8>) {
                Operation::new(
                    Request::CopyCatalog { server: 0, seen: &ClusterSeen::default() },
                    |answer| Some((answer.number, answer.body.to_vec())),
                )
            }

            /// Returns the term and the locator of the leading coordinator; zero and empty when the
            /// cluster has only one coordinator.
            ///
            /// # Errors
            /// [`Error`] when no coordinator answers in time.
            fn leader() -> (u64, String) {
                Operation::new(Request::WhoLeads, |answer| {
                    Some((answer.number, String::from_utf8_lossy(answer.body).into_owned()))
                })
            }

            /// Returns whether the coordinator that this client currently uses leads, and in which
            /// term. It does not try others.
            ///
            /// # Errors
            /// [`Error`] when that coordinator does not answer in time.
            fn coordinator_leads() -> (bool, u64) {
                Operation::new(Request::WhoLeads, |answer| {
                    Some((answer.status == Status::Ok, answer.number))
                })
                .to(Recipient::CurrentCoordinator)
                .of_any_status()
            }
        }
    };
}
pub(crate) use operations;
