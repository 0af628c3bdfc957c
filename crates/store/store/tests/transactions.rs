//! Transactions at real servers, by both clients; and by hand, by a client that falls silent.

use crate::common::clients::{client_of, options_for};
use crate::once::ByHand;
use sprat_client::{
    AsyncClient, Change, Client, Condition, Error, TRANSACTION_ATTEMPTS, Table, TransactionAction,
    TransactionOperation, Ttl, Watch, WatchFrom,
};
use sprat_host::wait_until;
use sprat_store::server::{Server, ServerOptions};
use sprat_testing::PATIENCE;
use sprat_wire::once::OperationId;
use sprat_wire::op::{Answer, BatchItems, Request, Status, TableRecord, push_item};
use sprat_wire::tablet::position;
use sprat_wire::transaction::{
    Decision, MAX_TRANSACTION, MAX_TRANSACTION_BYTES, OperationState, Participant, Plan,
    Preparation,
};
use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes as _;

fn serve(data: &Path) -> Server {
    let listen = vec!["fast+udp:host=127.0.0.1,port=0".to_owned(); 2];
    let (memory, disk) = (128 << 20, 512 << 20);
    Server::start(&ServerOptions { listen, memory, disk, ..ServerOptions::alone(data) })
        .expect("a server")
}

/// Creates tables until two of them have different servers.
fn two_tables(client: &mut Client) -> [TableRecord; 2] {
    for number in 0..8 {
        client.create_table(&format!("t{number}")).expect("a table");
        let tables = client.list_tables().expect("the tables");
        let locator = |table: &TableRecord| table.tablets[0].locator.clone();
        if let Some(other) = tables.iter().find(|other| locator(other) != locator(&tables[0])) {
            let found = [tables[0].clone(), other.clone()];
            for table in &found {
                client.table(&table.name).expect("it was listed");
            }
            return found;
        }
    }
    panic!("all tables have one server");
}

fn value(client: &mut Client, table: Table, key: &[u8]) -> Option<Vec<u8>> {
    client.get(table, key).expect("an answer").map(|object| object.value)
}

#[test]
fn changes_on_two_servers_take_effect_together() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = serve(dir.path());
    let mut client = client_of(&server);
    let [here, there] = two_tables(&mut client).map(|table| Table(table.id));
    client.put(here, b"a", b"1").expect("written");
    client.put(there, b"gone", b"2").expect("written");
    let seen = client.transact(|transaction| {
        let seen = transaction.get_many(&[(here, b"a"), (there, b"b"), (there, b"gone")])?;
        transaction.put(here, b"a", b"changed");
        transaction.put(there, b"b", b"new");
        transaction.remove(there, b"gone");
        transaction.remove(there, b"never");
        assert_eq!(transaction.get(here, b"a")?.expect("written"), b"changed");
        assert_eq!(transaction.get(there, b"gone")?, None);
        Ok::<_, Error>(seen)
    });
    assert_eq!(seen, Ok(vec![Some(b"1".to_vec()), None, Some(b"2".to_vec())]));
    assert_eq!(value(&mut client, here, b"a").expect("there"), b"changed");
    assert_eq!(value(&mut client, there, b"b").expect("there"), b"new");
    assert_eq!(value(&mut client, there, b"gone"), None);
    client.settle().expect("both servers answer");
    assert_eq!(client.core_mut().transactions(), 0);
    // One that fails changes nothing.
    let failed = client.transact(|transaction| {
        transaction.put(here, b"a", b"never");
        Err::<(), _>(Error::BadTransaction("by its caller".into()))
    });
    assert_eq!(failed, Err(Error::BadTransaction("by its caller".into())));
    assert_eq!(value(&mut client, here, b"a").expect("there"), b"changed");
    server.stop().expect("stopped");
}

#[test]
fn a_transaction_is_tried_again_when_others_change_its_objects() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = serve(dir.path());
    let mut client = client_of(&server);
    let mut other = client_of(&server);
    let [here, there] = two_tables(&mut client).map(|table| Table(table.id));
    two_tables(&mut other);
    client.put(here, b"sum", b"0").expect("written");
    let mut attempts = 0;
    let seen = client.transact(|transaction| {
        attempts += 1;
        let seen = transaction.get(here, b"sum")?;
        if attempts < 3 {
            other.put(here, b"sum", attempts.to_string().as_bytes())?;
        }
        transaction.put(there, b"copy", seen.clone().unwrap_or_default());
        Ok::<_, Error>(seen)
    });
    assert_eq!((seen, attempts), (Ok(Some(b"2".to_vec())), 3));
    assert_eq!(value(&mut client, there, b"copy").expect("there"), b"2");
    // One that only reads is tried again, too, and locks nothing.
    attempts = 0;
    let seen = client.transact(|transaction| {
        attempts += 1;
        let first = transaction.get(here, b"sum")?;
        if attempts == 1 {
            other.put(here, b"sum", b"3")?;
        }
        Ok::<_, Error>((first, transaction.get(there, b"copy")?))
    });
    assert_eq!((seen, attempts), (Ok((Some(b"3".to_vec()), Some(b"2".to_vec()))), 2));
    // The client gives up in the end.
    attempts = 0;
    let failed = client.transact(|transaction| {
        attempts += 1;
        let seen = transaction.get(here, b"sum")?;
        other.put(here, b"sum", b"again")?;
        transaction.put(here, b"sum", seen.unwrap_or_default());
        Ok::<_, Error>(())
    });
    assert_eq!((failed, attempts), (Err(Error::TransactionConflict), TRANSACTION_ATTEMPTS));
    server.stop().expect("stopped");
}

#[test]
fn many_clients_move_amounts_and_lose_none() {
    const ACCOUNTS: u8 = 4;
    const EACH: u64 = 60;
    let dir = tempfile::tempdir().expect("a folder");
    let server = serve(dir.path());
    let mut client = client_of(&server);
    let tables = two_tables(&mut client).map(|table| Table(table.id));
    let account = |number: u8| (tables[usize::from(number % 2)], [number]);
    let read = |bytes: Option<Vec<u8>>| {
        bytes.map_or(0, |bytes| i64::from_le_bytes(bytes.try_into().expect("eight bytes")))
    };
    std::thread::scope(|scope| {
        for worker in 0..4_u64 {
            let options = options_for(&server);
            scope.spawn(move || {
                let mut client = Client::connect(&options).expect("a client");
                two_tables(&mut client);
                let mut chance = sprat_chance::Chance::new(worker);
                for _ in 0..EACH {
                    let mut draw = || u8::try_from(chance.index(ACCOUNTS.into())).expect("few");
                    let (from, to) = (draw(), draw());
                    let moved = client.transact(|transaction| {
                        for (number, amount) in [(from, -1_i64), (to, 1)] {
                            let (table, key) = account(number);
                            let balance = read(transaction.get(table, &key)?) + amount;
                            transaction.put(table, &key, balance.to_le_bytes());
                        }
                        Ok::<_, Error>(())
                    });
                    moved.expect("the servers are there");
                }
                client.settle().expect("the servers are there");
            });
        }
        let mut sums = 0;
        for _ in 0..EACH {
            let sum = client.transact(|transaction| {
                let mut sum = 0;
                for number in 0..ACCOUNTS {
                    let (table, key) = account(number);
                    sum += read(transaction.get(table, &key)?);
                }
                Ok::<_, Error>(sum)
            });
            match sum {
                Ok(sum) => sums += i64::from(sum == 0),
                Err(error) => {
                    assert_eq!(error, Error::TransactionConflict);
                    sums += 1;
                }
            }
        }
        assert_eq!(sums, i64::try_from(EACH).expect("few"), "amounts were lost or made");
    });
    server.stop().expect("stopped");
}

#[test]
fn what_no_transaction_can_have_is_refused() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = serve(dir.path());
    let mut client = client_of(&server);
    let [here, there] = two_tables(&mut client);
    let table = Table(here.id);
    let keys: Vec<String> = (0..=MAX_TRANSACTION).map(|number| number.to_string()).collect();
    let result = client.transact(|transaction| {
        keys.iter().for_each(|key| transaction.put(table, key.as_bytes(), b"x"));
        Ok::<_, Error>(())
    });
    assert!(matches!(&result, Err(Error::BadTransaction(why)) if why.contains("101 objects")));
    let result = client.transact(|transaction| {
        transaction.put(table, b"a", vec![0; MAX_TRANSACTION_BYTES / 2]);
        transaction.put(table, b"b", vec![0; MAX_TRANSACTION_BYTES / 2]);
        Ok::<_, Error>(())
    });
    assert!(matches!(&result, Err(Error::BadTransaction(why)) if why.contains("bytes")));
    let result = client.transact(|transaction| {
        transaction.put(table, &[0; 65_530], b"x");
        Ok::<_, Error>(())
    });
    assert_eq!(result, Err(Error::KeyTooLarge(65_530)));
    let operation = TransactionOperation {
        table: here.id,
        key: b"a",
        condition: Condition::None,
        action: TransactionAction::Remove,
    };
    let now = client.now();
    let core = client.core_mut();
    let twice = core.submit_transaction(now, 1, &[operation; 2], now + PATIENCE);
    assert!(matches!(twice, Err(Error::BadTransaction(_))), "{twice:?}");
    let none = core.submit_transaction(now, 1, &[], now + PATIENCE);
    assert!(matches!(none, Err(Error::BadTransaction(_))), "{none:?}");
    // A table that is dropped meanwhile: nothing is changed in the other.
    let mut other = client_of(&server);
    let result = client.transact(|transaction| {
        transaction.put(table, b"a", b"x");
        transaction.put(Table(there.id), b"a", b"x");
        other.drop_table(&there.name)?;
        Ok::<_, Error>(())
    });
    assert_eq!(result, Err(Error::TableDropped(there.id)));
    assert_eq!(value(&mut client, table, b"a"), None);
    // The largest that is allowed.
    let result = client.transact(|transaction| {
        let value = vec![0; MAX_TRANSACTION_BYTES / MAX_TRANSACTION - 3];
        keys[1..].iter().for_each(|key| transaction.put(table, key.as_bytes(), value.clone()));
        Ok::<_, Error>(())
    });
    assert_eq!(result, Ok(()));
    server.stop().expect("stopped");
}

#[test]
fn transactions_give_times_to_live() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = serve(dir.path());
    let mut client = client_of(&server);
    let [here, there] = two_tables(&mut client).map(|table| Table(table.id));
    let hour = Ttl::of_millis(3_600_000).expect("within the limits");
    // One change, two of one server, two of two servers.
    for others in [&[][..], &[(here, b"b")], &[(there, b"b")]] {
        let done = client.transact(|transaction| {
            transaction.put_for(here, b"a", b"x", hour);
            others.iter().for_each(|(table, key)| transaction.put_for(*table, *key, b"y", hour));
            assert_eq!(transaction.get(here, b"a")?, Some(b"x".to_vec()));
            Ok::<_, Error>(())
        });
        assert_eq!(done, Ok(()));
        client.settle().expect("both servers answer");
        for (table, key) in others.iter().copied().chain([(here, b"a")]) {
            let object = client.get(table, key).expect("an answer").expect("an object");
            let left = object.ttl.expect("it expires").millis();
            assert!((3_000_000..=hour.millis()).contains(&left), "{left}");
        }
        let permanent = client.transact(|transaction| {
            transaction.put(here, b"a", b"x");
            Ok::<_, Error>(())
        });
        assert_eq!(permanent, Ok(()));
        let object = client.get(here, b"a").expect("an answer").expect("an object");
        assert_eq!(object.ttl, None);
    }
    server.stop().expect("stopped");
}

#[test]
fn the_asynchronous_client_has_transactions_too() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = serve(dir.path());
    let mut blocking = client_of(&server);
    let names = two_tables(&mut blocking).map(|table| table.name);
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let client = AsyncClient::connect(&options_for(&server)).expect("a client");
        let here = client.table(&names[0]).await.expect("a table");
        let there = client.table(&names[1]).await.expect("a table");
        let mut attempts = 0;
        let seen = client
            .transact(async |transaction| {
                attempts += 1;
                let seen = transaction.get_many(&[(here, b"a"), (there, b"b")]).await?;
                if attempts == 1 {
                    client.put(there, b"b", b"meanwhile").await?;
                }
                transaction.put(here, b"a", b"new");
                transaction.remove(there, b"b");
                assert_eq!(transaction.get(there, b"b").await?, None);
                Ok::<_, Error>(seen)
            })
            .await;
        assert_eq!((seen, attempts), (Ok(vec![None, Some(b"meanwhile".to_vec())]), 2));
        let object = client.get(here, b"a").await.expect("an answer").expect("an object");
        assert_eq!(object.value, b"new");
        assert_eq!(client.get(there, b"b").await, Ok(None));
    });
    server.stop().expect("stopped");
}

/// The operations of a transaction that writes an object in each of two tables, and a connection to
/// the server of each.
struct Silent {
    participants: Vec<Participant>,
    at: [ByHand; 2],
}

const KEY: &[u8] = b"key";

impl Silent {
    fn new(tables: &[TableRecord; 2], client: u64) -> Self {
        let participant = |(slot, table): (u16, &TableRecord)| Participant {
            table: table.id,
            position: position(table.seed, table.id, KEY),
            id: OperationId { client, slot, sequence: 1, resent: false },
        };
        let participants = (0..).zip(tables).map(participant).collect();
        Self {
            participants,
            at: tables.each_ref().map(|table| ByHand::at(&table.tablets[0].locator)),
        }
    }

    fn prepare(&mut self, index: usize) -> Status {
        let Participant { table, id, .. } = self.participants[index];
        let plan = Plan::encode(TransactionAction::Write(b"new", None), &self.participants);
        let plan = Plan::parse(&plan).expect("valid");
        let request = Request::Prepare { table, key: KEY, condition: Condition::None, plan };
        self.at[index].send(&request, Some(id)).0
    }

    fn decide(&mut self, index: usize, decision: Decision) -> Option<OperationState> {
        let Participant { table, position, id } = self.participants[index];
        let request = Request::Decide { table, position, id: &id.bytes(), decision };
        let (status, number, _) = self.at[index].send(&request, None);
        assert_eq!(status, Status::Ok);
        OperationState::of(number)
    }
}

/// What a watch reports last of each object: its value, or none if it is removed.
type Reported = BTreeMap<Vec<u8>, Option<Vec<u8>>>;

/// Waits until what a watch has reported last is as expected. Before a transaction commits, the
/// watch may report the objects as they were, because a lock counts as a change; and it may repeat
/// a report.
fn await_reports((watch, seen): &mut (Watch, Reported), expected: &Reported) {
    let begun = Instant::now();
    while seen != expected {
        let left = PATIENCE.checked_sub(begun.elapsed());
        let left = left.unwrap_or_else(|| panic!("it reports {seen:?} in place of {expected:?}"));
        for change in watch.wait(left).expect("changes") {
            match change {
                Change::Present(row) => drop(seen.insert(row.key, Some(row.value))),
                Change::Removed(key) => drop(seen.insert(key, None)),
                Change::ListBegins(_) | Change::ListEnds(_) => {}
            }
        }
    }
}

#[test]
fn watches_report_what_transactions_change() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = serve(dir.path());
    let mut client = client_of(&server);
    let watcher = AsyncClient::connect(&options_for(&server)).expect("a client");
    let tables = two_tables(&mut client)
        .map(|table| watcher.table(&table.name).wait().expect("it was listed"));
    for table in tables {
        client.put(table, b"gone", b"1").expect("written");
    }
    let mut watches = tables.map(|table| {
        let watch = Watch::new(&watcher, table, WatchFrom::List).expect("a watch");
        (watch, Reported::new())
    });
    for watch in &mut watches {
        await_reports(watch, &[(b"gone".to_vec(), Some(b"1".to_vec()))].into());
    }
    // The first transaction is committed by its only server, the second by the client.
    for (round, changed) in [&tables[..1], &tables[..]].into_iter().enumerate() {
        let value = round.to_string().into_bytes();
        let result = client.transact(|transaction| {
            for &table in changed {
                transaction.put(table, b"a", value.clone());
                transaction.put(table, b"b", value.clone());
            }
            transaction.remove(tables[round], b"gone");
            Ok::<_, Error>(())
        });
        assert_eq!(result, Ok(()));
        let stored = |key: &[u8]| (key.to_vec(), Some(value.clone()));
        let expected = [stored(b"a"), stored(b"b"), (b"gone".to_vec(), None)].into();
        for watch in &mut watches[..changed.len()] {
            await_reports(watch, &expected);
        }
    }
    server.stop().expect("stopped");
}

/// Encodes an item of a batch: a request with its operation's id.
fn item(request: &Request<'_>, id: OperationId) -> Vec<u8> {
    let (header, key, value) = request.parts();
    [header.with_id().as_bytes(), &id.bytes(), key, value].concat()
}

/// Returns the counter of a node.
fn counter(client: &mut Client, table: &TableRecord, name: &str) -> u64 {
    let stats = client.server_stats(&table.tablets[0].locator).expect("counters");
    stats.iter().find(|counter| counter.name == name).expect("a counter").value
}

#[test]
fn a_server_commits_what_it_prepares_alone() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = serve(dir.path());
    let mut client = client_of(&server);
    let [here, _] = two_tables(&mut client);
    let table = Table(here.id);
    let result = client.transact(|transaction| {
        transaction.put(table, b"a", b"1");
        transaction.put(table, b"b", b"2");
        transaction.remove(table, b"c");
        Ok::<_, Error>(())
    });
    assert_eq!(result, Ok(()));
    // The client has nothing more to say, and nothing is left of the transaction.
    assert_eq!(client.core_mut().transactions(), 0);
    assert_eq!(counter(&mut client, &here, "prepared_operations"), 0);
    assert_eq!(counter(&mut client, &here, "prepares_total"), 3);
    assert_eq!(value(&mut client, table, b"a").expect("there"), b"1");
    // A single change is not prepared.
    let result = client.transact(|transaction| {
        let seen = transaction.get(table, b"a")?.expect("there");
        transaction.put(table, b"a", [&seen[..], b"1"].concat());
        Ok::<_, Error>(())
    });
    assert_eq!(result, Ok(()));
    let result = client.transact(|transaction| {
        transaction.remove(table, b"never");
        Ok::<_, Error>(())
    });
    assert_eq!(result, Ok(()));
    assert_eq!(value(&mut client, table, b"a").expect("there"), b"11");
    assert_eq!(counter(&mut client, &here, "prepares_total"), 3);
    server.stop().expect("stopped");
}

/// The server leaves the decision to the client if a batch is not one whole transaction, or if not
/// all of it can be prepared.
#[test]
fn a_server_commits_whole_transactions_only() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = serve(dir.path());
    let mut client = client_of(&server);
    let [here, there] = two_tables(&mut client);
    let table = Table(here.id);
    let mut at = ByHand::at(&here.tablets[0].locator);
    let keys: [&[u8]; 3] = [b"a", b"b", b"c"];
    let participant = |slot: u16, key: &[u8], client: u64| Participant {
        table: here.id,
        position: position(here.seed, here.id, key),
        id: OperationId { client, slot, sequence: 1, resent: false },
    };
    let of = |client: u64| -> Vec<Participant> {
        (0..).zip(keys).map(|(slot, key)| participant(slot, key, client)).collect()
    };
    // Sends the prepares of these operations in one batch, and returns each answer's status and
    // number.
    let mut send = |operations: &[(usize, &[Participant])], condition: Condition| {
        let mut items = Vec::new();
        for &(index, named) in operations {
            let plan = Plan::encode(TransactionAction::Write(b"new", None), named);
            let plan = Plan::parse(&plan).expect("valid");
            let request = Request::Prepare { table: here.id, key: keys[index], condition, plan };
            let id = named.iter().map(|one| one.id).find(|id| usize::from(id.slot) == index);
            push_item(&mut items, &[&item(&request, id.expect("named"))]);
        }
        let items = BatchItems::parse(&items).expect("valid");
        let (status, _, body) = at.send(&Request::Batch { items }, None);
        assert_eq!(status, Status::Ok);
        let answers = BatchItems::parse(&body).expect("answers");
        answers
            .map(|item| Answer::parse(item).map(|answer| (answer.status, answer.number)))
            .collect::<Option<Vec<_>>>()
            .expect("answers")
    };
    let ok = (Status::Ok, 0);
    // One operation is missing.
    let all = of(1);
    assert_eq!(send(&[(0, &all), (1, &all)], Condition::None), [ok; 2]);
    // An operation is there twice in place of another.
    let all = of(2);
    let locked = (Status::Aborted, 0);
    assert_eq!(send(&[(2, &all), (2, &all), (2, &all)], Condition::None), [ok; 3]);
    assert_eq!(send(&[(0, &all), (1, &all)], Condition::None), [locked; 2]);
    // The operations name different ones.
    let (all, other) = (of(3), [of(3), vec![participant(7, b"z", 3)]].concat());
    let named = [(0, &all[..]), (1, &other[..]), (2, &all[..])];
    assert!(send(&named, Condition::None).iter().all(|&answer| answer == locked));
    assert_eq!(value(&mut client, Table(there.id), b"a"), None);
    // The servers abort the first two transactions after a second, and the third is none.
    wait_until_ended(&mut client, &[here.clone(), there]);
    assert_eq!(value(&mut client, table, b"a"), None);
    // Here the condition of all three does not hold for one.
    client.put(table, b"b", b"old").expect("written");
    let all = of(4);
    let named = [(0, &all[..]), (1, &all[..]), (2, &all[..])];
    let answers = send(&named, Condition::Absent);
    assert_eq!(
        answers.iter().map(|answer| answer.0).collect::<Vec<_>>(),
        [Status::Ok, Status::Conflict, Status::Ok]
    );
    assert_eq!(answers[2].1, Preparation::Prepared as u64);
    wait_until_ended(&mut client, &[here.clone(), here.clone()]);
    assert_eq!(value(&mut client, table, b"a"), None);
    // A whole one, twice.
    let all = of(5);
    let named = [(0, &all[..]), (1, &all[..]), (2, &all[..])];
    for _ in 0..2 {
        let answers = send(&named, Condition::None);
        assert_eq!(answers[2], (Status::Ok, Preparation::Ended as u64));
    }
    assert_eq!(value(&mut client, table, b"b").expect("there"), b"new");
    server.stop().expect("stopped");
}

/// Waits until no server has a prepared operation.
fn wait_until_ended(client: &mut Client, tables: &[TableRecord; 2]) {
    for table in tables {
        let ended = || counter(client, table, "prepared_operations") == 0;
        assert!(wait_until(PATIENCE, Duration::from_millis(20), ended), "they are still prepared");
    }
}

#[test]
fn servers_end_the_transaction_of_a_silent_client() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = serve(dir.path());
    let mut client = client_of(&server);
    let tables = two_tables(&mut client);
    let [here, there] = tables.each_ref().map(|table| Table(table.id));
    // The client falls silent when all is prepared: the transaction is committed.
    let mut silent = Silent::new(&tables, 1);
    assert_eq!(silent.prepare(0), Status::Ok);
    assert_eq!(silent.prepare(1), Status::Ok);
    assert_eq!(silent.prepare(1), Status::Ok, "again");
    assert_eq!(value(&mut client, here, KEY).expect("after a wait"), b"new");
    assert_eq!(value(&mut client, there, KEY).expect("after a wait"), b"new");
    wait_until_ended(&mut client, &tables);
    assert_eq!(silent.prepare(0), Status::Ok, "a late copy: it is committed");
    assert_eq!(silent.decide(0, Decision::Commit), Some(OperationState::Committed));
    // One operation is not prepared: the transaction is aborted.
    let mut silent = Silent::new(&tables, 2);
    client.put(here, KEY, b"old").expect("written");
    assert_eq!(silent.prepare(0), Status::Ok);
    assert_eq!(value(&mut client, here, KEY).expect("after a wait"), b"old");
    wait_until_ended(&mut client, &tables);
    assert_eq!(silent.prepare(1), Status::Aborted, "too late");
    assert_eq!(silent.prepare(0), Status::Aborted);
    // The other table was dropped: what would have been changed there counts as prepared.
    let mut silent = Silent::new(&tables, 3);
    assert_eq!(silent.prepare(0), Status::Ok);
    client.drop_table(&tables[1].name).expect("dropped");
    assert_eq!(value(&mut client, here, KEY).expect("after a wait"), b"new");
    server.stop().expect("stopped");
}

#[test]
fn prepared_operations_are_still_prepared_after_a_restart() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = serve(dir.path());
    let mut client = client_of(&server);
    let tables = two_tables(&mut client);
    let mut silent = Silent::new(&tables, 1);
    assert_eq!(silent.prepare(0), Status::Ok);
    assert_eq!(silent.prepare(1), Status::Ok);
    assert_eq!(silent.decide(0, Decision::Commit), Some(OperationState::Committed));
    server.stop().expect("stopped");
    let server = serve(dir.path());
    let mut client = client_of(&server);
    let tables = client.list_tables().expect("the tables");
    for table in &tables {
        let found = client.table(&table.name).expect("a table");
        let wanted = silent.participants.iter().any(|one| one.table == table.id);
        let value = value(&mut client, found, KEY);
        assert_eq!(value.is_some(), wanted, "table {}", table.name);
    }
    server.stop().expect("stopped");
}

#[test]
fn requests_that_no_client_sends_change_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = serve(dir.path());
    let mut client = client_of(&server);
    let tables = two_tables(&mut client);
    let mut silent = Silent::new(&tables, 1);
    let Participant { table, id, .. } = silent.participants[0];
    let plan = Plan::encode(TransactionAction::Remove, &silent.participants);
    let plan = Plan::parse(&plan).expect("valid");
    let condition = Condition::None;
    let prepare = Request::Prepare { table, key: KEY, condition, plan };
    assert_eq!(silent.at[0].send(&prepare, None).0, Status::Malformed, "no id");
    let other = OperationId { slot: 9, ..id };
    assert_eq!(silent.at[0].send(&prepare, Some(other)).0, Status::Malformed, "not named");
    assert_eq!(silent.decide(0, Decision::Commit), Some(OperationState::Ended));
    assert_eq!(silent.decide(0, Decision::End), Some(OperationState::Ended));
    assert_eq!(silent.prepare(0), Status::Ok);
    assert_eq!(silent.decide(0, Decision::End), Some(OperationState::Prepared));
    assert_eq!(silent.decide(0, Decision::Abort), Some(OperationState::Aborted));
    assert_eq!(silent.decide(0, Decision::Commit), Some(OperationState::Aborted));
    assert_eq!(silent.decide(0, Decision::End), Some(OperationState::Aborted));
    // Another transaction does not wait for a lock.
    let mut rival = Silent::new(&tables, 2);
    assert_eq!(rival.prepare(0), Status::Ok);
    let mut third = Silent::new(&tables, 3);
    assert_eq!(third.prepare(0), Status::Aborted);
    assert_eq!(rival.decide(0, Decision::Abort), Some(OperationState::Aborted));
    assert_eq!(third.prepare(0), Status::Ok);
    assert_eq!(third.decide(0, Decision::Vote), Some(OperationState::Prepared));
    assert_eq!(third.decide(1, Decision::Vote), Some(OperationState::Aborted));
    server.stop().expect("stopped");
}
