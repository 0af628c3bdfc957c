//! A client that watches a table, and keeps a copy of it.

use crate::client::{ClientContext, TRANSPORT, accounts};
use crate::history::{Action, History, ObjectName, Page, Span, Value};
use crate::random::Random;
use sprat_client::{
    Change, Core, Error, Range, Row, Table, WatchFrom, WatchQuestion, WatchReply, Watcher,
};
use sprat_net::{AnyDriver, Hub, Locators, Nanos};
use sprat_wire::op::{Status, TableRecord};
use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::time::Duration;

/// How long the client waits for an answer.
const PATIENCE: Duration = Duration::from_secs(1);

/// One in this many answers ends the client; another goes on from its cursor.
const LIFE: u64 = 200;

/// A question that was sent.
struct Asked {
    /// The watcher's tag.
    tag: u64,
    question: WatchQuestion,
    moment: u64,
    began: Nanos,
}

/// A client that watches a table.
pub(super) struct WatchClient {
    core: Core,
    /// The number of the client in histories.
    client: usize,
    random: Random,
    tag: u64,
    watched: Option<Watched>,
    asked: BTreeMap<u64, Asked>,
    /// The [`edition`](ClientContext::edition) of the tables that the client knows.
    learned: Option<u64>,
    /// Number of changes that were reported.
    pub(super) changes: u64,
}

/// A table, and the copy of it.
struct Watched {
    table: u32,
    watcher: Watcher,
    copy: BTreeMap<Vec<u8>, (u64, Value)>,
    /// The lists under way, with the keys that they had so far.
    lists: Vec<(Range, BTreeSet<Vec<u8>>)>,
}

impl Watched {
    fn new(table: u32) -> Self {
        let watcher = Watcher::new(Table(table), WatchFrom::List).expect("no cursor");
        Self { table, watcher, copy: BTreeMap::new(), lists: Vec::new() }
    }

    fn position(&self, key: &[u8]) -> u64 {
        self.watcher.position(key).expect("there was a report")
    }

    /// Makes a change in the copy. The error says why it cannot be right.
    fn take(&mut self, change: Change) -> Result<(), String> {
        match change {
            Change::Present(Row { key, version, value, value_type, .. }) => {
                let value = Value::decode(value_type, &value).ok_or("a value no client wrote")?;
                if let Some((before, _)) = self.copy.get(&key).filter(|(other, _)| version < *other)
                {
                    return Err(format!("version {version} after version {before}"));
                }
                let position = self.position(&key);
                for (_, seen) in self.lists.iter_mut().filter(|(range, _)| range.contains(position))
                {
                    seen.insert(key.clone());
                }
                self.copy.insert(key, (version, value));
            }
            Change::Removed(key) => drop(self.copy.remove(&key)),
            Change::ListBegins(range) => self.lists.push((range, BTreeSet::new())),
            Change::ListEnds(range) => {
                let at = self.lists.iter().position(|(list, _)| *list == range);
                let (_, seen) = self.lists.swap_remove(at.ok_or("a list ends that did not begin")?);
                let watcher = &self.watcher;
                self.copy.retain(|key, _| {
                    let position = watcher.position(key).expect("there was a report");
                    !range.contains(position) || seen.contains(key)
                });
            }
        }
        Ok(())
    }
}

impl WatchClient {
    /// Creates the client at `address`, with this number in histories.
    pub(super) fn new(
        hub: &Hub,
        client: usize,
        address: SocketAddr,
        coordinator: &Locators,
        random: &mut Random,
    ) -> Self {
        let driver = AnyDriver::from(hub.port(address).expect("a free port"));
        let core = Core::with_drivers(vec![(TRANSPORT, driver)], coordinator, random.draw());
        Self {
            core: core.expect("the transport is there"),
            client,
            random: random.fork(),
            tag: 0,
            watched: None,
            asked: BTreeMap::new(),
            learned: None,
            changes: 0,
        }
    }

    /// Returns the time at which the client has something to do even if nothing arrives.
    pub(super) fn wake(&self) -> Nanos {
        self.core.next_deadline()
    }

    /// Returns whether the client has yet to learn of these tables.
    pub(super) fn lacks(&self, edition: u64) -> bool {
        self.learned != Some(edition)
    }

    /// Handles what has arrived, and asks what the watch needs.
    pub(super) fn step(&mut self, now: Nanos, shared: &mut ClientContext<'_>) {
        if self.learned.replace(shared.edition) != Some(shared.edition) {
            for table in shared.tables {
                self.core.learn(table).expect("locators of the simulator are good");
            }
        }
        let is_there =
            |watched: &Watched| shared.tables.iter().any(|record| record.id == watched.table);
        if !self.watched.as_ref().is_some_and(is_there) {
            let table = self.random.pick(shared.tables).id;
            shared.trace.note(now, format_args!("the watch begins, of table {table}"));
            self.watched = Some(Watched::new(table));
            self.asked.clear();
        }
        let mut answers = Vec::new();
        let asked = &mut self.asked;
        let polled = self.core.poll(now, &mut |tag, answer| {
            let Some(asked) = asked.remove(&tag) else { return };
            let answer = answer.and_then(|answer| {
                let reply = match answer.status {
                    Status::Ok => asked.question.parse(&answer),
                    // The table is gone, or another server has this part of it.
                    Status::UnknownTable => return Err(Error::NoServer("a table".to_owned())),
                    // What the answer reveals cannot become durable for now.
                    Status::TooFewServers => {
                        return Err(Error::WritesStopped("it waits".to_owned()));
                    }
                    _ => None,
                };
                reply.ok_or_else(|| Error::Protocol { server: format!("{answer:?}") })
            });
            answers.push((asked, answer));
        });
        polled.expect("a port in memory does not fail");
        for (asked, answer) in answers {
            self.take(now, &asked, answer, shared);
        }
        self.ask(now, shared);
        self.core.flush();
    }

    fn ask(&mut self, now: Nanos, shared: &mut ClientContext<'_>) {
        let Some(watched) = &mut self.watched else { return };
        while let Some((tag, question)) = watched.watcher.question() {
            self.tag += 1;
            let request = question.request(Table(watched.table));
            if self.core.submit(now, self.tag, &request, now + PATIENCE).is_err() {
                return; // the table was dropped meanwhile
            }
            let moment = shared.history.moment();
            self.asked.insert(self.tag, Asked { tag, question, moment, began: now });
        }
    }

    fn take(
        &mut self,
        now: Nanos,
        asked: &Asked,
        answer: Result<WatchReply, Error>,
        shared: &mut ClientContext<'_>,
    ) {
        let Some(watched) = &mut self.watched else { return };
        if let Err(error @ Error::Protocol { .. }) = &answer {
            shared.nonsense.get_or_insert_with(|| format!("a watch: {error}"));
        }
        if let Ok(WatchReply::Changes(changes)) = &answer {
            let of_bank: BTreeSet<Vec<u8>> =
                accounts(watched.table).map(ObjectName::bytes).collect();
            let keys = changes.present.iter().map(|row| &row.key);
            let keys = keys.chain(&changes.removed);
            let keys: Vec<_> = keys.filter(|key| !of_bank.contains(*key)).cloned().collect();
            // The copy refuses values that no client wrote.
            let row = |row: &Row| {
                let value = Value::decode(row.value_type, &row.value)?;
                Some((row.key.clone(), row.version, value))
            };
            let present = changes.present.iter().filter(|row| !of_bank.contains(&row.key));
            let rows = present.filter_map(row).collect();
            if !keys.is_empty() {
                let returned = shared.history.moment();
                let (invoked, began) = (asked.moment, asked.began);
                let (client, scan, table) = (self.client, asked.tag, watched.table);
                let (span, ended) = (Span::These(keys), now);
                let page =
                    Page { client, scan, table, span, rows, invoked, returned, began, ended };
                shared.history.turn_page(page);
            }
        }
        match watched.watcher.answer(asked.tag, answer) {
            Err(error) => shared.trace.note(now, format_args!("the watch waits: {error}")),
            Ok(changes) => {
                for change in changes {
                    shared.trace.note(now, format_args!("the watch reports {}", render(&change)));
                    self.changes += 1;
                    if let Err(wrong) = watched.take(change) {
                        let table = watched.table;
                        shared
                            .nonsense
                            .get_or_insert_with(|| format!("a watch of table {table}: {wrong}"));
                    }
                }
            }
        }
        if self.random.chance(1, LIFE) {
            let cursor = watched.watcher.cursor();
            let table = Table(watched.table);
            watched.watcher = Watcher::new(table, WatchFrom::Cursor(&cursor)).expect("its own");
            watched.lists.clear();
            self.asked.clear();
            shared.trace.note(now, format_args!("the watch goes on from its cursor"));
        }
    }

    /// Returns whether the copy is what was written last to each key, unless the watched table is
    /// none of `tables`: the last one may have been dropped. The error says what is not.
    pub(super) fn is_complete(
        &self,
        keys: u16,
        tables: &[TableRecord],
        history: &History,
    ) -> Result<(), String> {
        let is_there = |watched: &&Watched| tables.iter().any(|table| table.id == watched.table);
        let Some(watched) = self.watched.as_ref().filter(is_there) else { return Ok(()) };
        let names = (0..keys).map(|key| ObjectName { table: watched.table, key });
        let is_last = |name: &ObjectName| {
            let value = watched.copy.get(&name.bytes()).map(|&(_, value)| value);
            value == Some(Value::last(*name))
        };
        let missing: Vec<ObjectName> = names.filter(|name| !is_last(name)).collect();
        if missing.is_empty() {
            return Ok(());
        }
        let expiries: Vec<Action> = history.expiries().map(|call| call.action).collect();
        let has_expired = |name: &ObjectName| {
            !watched.copy.contains_key(&name.bytes())
                && expiries.contains(&Action::Expire { value: Value::last(*name) })
        };
        match missing.into_iter().find(|name| !has_expired(name)) {
            None => Ok(()),
            Some(name) => {
                Err(format!("the watch has not reported {} of {name}", Value::last(name)))
            }
        }
    }
}

fn render(change: &Change) -> String {
    let start = |key: &[u8]| key[..key.len().min(12)].escape_ascii().to_string();
    match change {
        Change::Present(row) => format!("version {} of {}", row.version, start(&row.key)),
        Change::Removed(key) => format!("the removal of {}", start(key)),
        Change::ListBegins(range) => format!("a list of {range}"),
        Change::ListEnds(range) => format!("the end of the list of {range}"),
    }
}
