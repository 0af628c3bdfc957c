//! Operations that take effect once, sent by hand to a real server: repeated, late, and after a
//! restart.

use crate::common::clients::options_for;
use sprat_client::Client;
use sprat_net::{AnyDriver, Driver as _, DriverRole, Locator, Nanos};
use sprat_rpc::{
    CallFailure, CallId, Config, Endpoint, Handler, Outcome, RequestId, Response, SessionId,
};
use sprat_store::server::{Server, ServerOptions};
use sprat_wire::once::OperationId;
use sprat_wire::op::{
    Answer, BATCH_ANSWER_BYTES, BatchItems, Condition, MAX_BATCH, Request, Status, push_item,
};
use std::path::Path;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// A client that sends operations with given ids.
pub(crate) struct ByHand {
    driver: AnyDriver,
    endpoint: Endpoint<()>,
    session: SessionId,
    begun: Instant,
}

/// The parts of an answer.
pub(crate) type Reply = (Status, u64, Vec<u8>);

#[derive(Default)]
struct ReplyHandler(Option<Reply>);

impl Handler for ReplyHandler {
    type Body = ();

    fn request(&mut self, _: Nanos, _: RequestId, _: &[u8]) -> Outcome<()> {
        Outcome::Retry(1)
    }

    fn gather(&self, (): ()) -> &[u8] {
        &[]
    }

    fn release(&mut self, (): ()) {}

    fn completed(&mut self, _: Nanos, _: CallId, result: Result<Response<'_>, CallFailure>) {
        let response = result.expect("the server is there");
        let answer = Answer::parse(&response).expect("an answer");
        self.0 = Some((answer.status, answer.number, answer.body.to_vec()));
    }
}

impl ByHand {
    fn new(server: &Server) -> Self {
        Self::at(&server.nodes[0].listen.to_string())
    }

    /// Connects to the node at a locator.
    pub(crate) fn at(locator: &str) -> Self {
        let locator: Locator = locator.parse().unwrap();
        let mut driver = AnyDriver::open(&locator, DriverRole::Connect(None)).unwrap();
        let mut endpoint = Endpoint::new(&Config::default(), 7);
        let peer = locator.resolve().unwrap()[0];
        let session = endpoint.connect(Nanos(0), peer, driver.tx()).unwrap();
        Self { driver, endpoint, session, begun: Instant::now() }
    }

    pub(crate) fn send(&mut self, request: &Request<'_>, id: Option<OperationId>) -> Reply {
        let (header, key, value) = request.parts();
        let header = if id.is_some() { header.with_id() } else { header };
        let id = id.map(|id| id.bytes().to_vec()).unwrap_or_default();
        let now = |begun: Instant| Nanos(0) + begun.elapsed();
        let parts = [header.as_bytes(), &id, key, value];
        let deadline = now(self.begun) + Duration::from_secs(10);
        let tx = self.driver.tx();
        self.endpoint.call(now(self.begun), self.session, &parts, deadline, tx).unwrap();
        let mut reply = ReplyHandler::default();
        while reply.0.is_none() {
            self.endpoint.flush(self.driver.tx());
            let Self { driver, endpoint, begun, .. } = self;
            driver
                .receive(&mut |tx, from, frame| {
                    endpoint.receive(now(*begun), from, frame, &mut reply, tx)
                })
                .unwrap();
            self.endpoint.poll(now(self.begun), &mut reply, self.driver.tx());
        }
        reply.0.expect("the loop ends with it")
    }
}

/// Appends a request to the items of a batch.
fn push(items: &mut Vec<u8>, request: &Request<'_>, id: Option<OperationId>) {
    let (header, key, value) = request.parts();
    let header = if id.is_some() { header.with_id() } else { header };
    let id = id.map(|id| id.bytes().to_vec()).unwrap_or_default();
    push_item(items, &[header.as_bytes(), &id, key, value]);
}

/// Returns the answers to a batch's items.
fn answers(reply: &Reply) -> Vec<Reply> {
    assert_eq!(reply.0, Status::Ok);
    let items = BatchItems::parse(&reply.2).expect("items");
    items
        .map(|item| Answer::parse(item).expect("an answer"))
        .map(|answer| (answer.status, answer.number, answer.body.to_vec()))
        .collect()
}

fn id(slot: u16, sequence: u64) -> OperationId {
    OperationId { client: 0xC11E, slot, sequence, resent: false }
}

fn start(dir: &Path) -> (Server, ByHand, u32) {
    let server = Server::start(&ServerOptions::alone(dir)).unwrap();
    let options = options_for(&server);
    let table = Client::connect(&options).unwrap().create_table("once").unwrap();
    let by_hand = ByHand::new(&server);
    (server, by_hand, table.0)
}

#[test]
fn an_operation_is_done_once_also_across_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut client, table) = start(dir.path());
    let add = Request::IncrementI64 { table, key: b"sum", delta: 5 };
    let write = Request::Write {
        table,
        key: b"key",
        value: b"value",
        condition: Condition::Absent,
        ttl: None,
    };
    let remove = Request::Remove { table, key: b"gone", condition: Condition::None };
    client.send(
        &Request::Write { table, key: b"gone", value: b"x", condition: Condition::None, ttl: None },
        None,
    );
    let operations = [(add, id(0, 1)), (write, id(1, 1)), (remove, id(2, 9))];
    let first: Vec<Reply> =
        operations.iter().map(|(request, id)| client.send(request, Some(*id))).collect();
    assert!(first.iter().all(|reply| reply.0 == Status::Ok), "{first:?}");
    assert_eq!(first[0].2, 5i64.to_le_bytes());
    let read = |client: &mut ByHand| client.send(&Request::Read { table, key: b"sum" }, None);
    assert_eq!(read(&mut client).2, 5i64.to_le_bytes());
    for resent in [false, true] {
        let sent = operations
            .iter()
            .map(|(request, id)| client.send(request, Some(OperationId { resent, ..*id })));
        assert_eq!(sent.collect::<Vec<_>>(), first);
    }
    server.stop().unwrap();
    let (server, mut client, _) = start(dir.path());
    let sent = operations.iter().map(|(request, id)| client.send(request, Some(*id)));
    assert_eq!(sent.collect::<Vec<_>>(), first, "as before the restart");
    assert_eq!(read(&mut client).2, 5i64.to_le_bytes());
    // The next operation in a slot is a new operation. It also tells the server that no client
    // waits for the slot's previous operation any more.
    assert_eq!(client.send(&add, Some(id(0, 2))).2, 10i64.to_le_bytes());
    assert_eq!(client.send(&add, Some(id(0, 1))).0, Status::Refused);
    assert_eq!(read(&mut client).2, 10i64.to_le_bytes());
    // Each request slot, each client and each table has sequence numbers of its own.
    assert_eq!(client.send(&add, Some(id(3, 1))).2, 15i64.to_le_bytes());
    assert_eq!(
        client.send(&add, Some(OperationId { client: 1, ..id(0, 1) })).2,
        20i64.to_le_bytes()
    );
    server.stop().unwrap();
}

#[test]
fn refusals_of_repeated_operations_are_final() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut client, table) = start(dir.path());
    let write = Request::Write {
        table,
        key: b"key",
        value: b"value",
        condition: Condition::Exists,
        ttl: None,
    };
    let (first, sent_again) = (id(0, 1), OperationId { resent: true, ..id(0, 1) });
    let refused = client.send(&write, Some(sent_again));
    assert_eq!(refused.0, Status::Conflict);
    client.send(
        &Request::Write {
            table,
            key: b"key",
            value: b"other",
            condition: Condition::None,
            ttl: None,
        },
        None,
    );
    assert_eq!(client.send(&write, Some(first)), refused, "what was sent first comes late");
    // A server records no refusal of an operation that was sent only once: it decides when it
    // executes the operation.
    let write = Request::Write {
        table,
        key: b"new",
        value: b"value",
        condition: Condition::Exists,
        ttl: None,
    };
    assert_eq!(client.send(&write, Some(id(1, 1))).0, Status::Conflict);
    client.send(
        &Request::Write {
            table,
            key: b"new",
            value: b"other",
            condition: Condition::None,
            ttl: None,
        },
        None,
    );
    assert_eq!(client.send(&write, Some(id(1, 1))).0, Status::Ok);
    let read = client.send(&Request::Read { table, key: b"key" }, None);
    assert_eq!(read.2, b"other");
    for (request, status) in [
        (Request::Remove { table, key: b"nothing", condition: Condition::None }, Status::NotFound),
        (Request::IncrementI64 { table, key: b"key", delta: 1 }, Status::NotANumber),
    ] {
        let id = OperationId { resent: true, ..id(2, u64::from(status as u8)) };
        assert_eq!(client.send(&request, Some(id)).0, status);
    }
    client.send(
        &Request::Write {
            table,
            key: b"nothing",
            value: b"x",
            condition: Condition::None,
            ttl: None,
        },
        None,
    );
    let remove = Request::Remove { table, key: b"nothing", condition: Condition::None };
    assert_eq!(client.send(&remove, Some(id(2, 1))).0, Status::Refused, "a later one was done");
    assert_eq!(
        client.send(&Request::Read { table, key: b"nothing" }, Some(id(3, 1))).0,
        Status::Malformed
    );
    server.stop().unwrap();
}

#[test]
fn each_operation_of_a_batch_is_done_once_also_across_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut client, table) = start(dir.path());
    let add = Request::IncrementI64 { table, key: b"sum", delta: 5 };
    let write = Request::Write {
        table,
        key: b"key",
        value: b"value",
        condition: Condition::Absent,
        ttl: None,
    };
    let mut items = Vec::new();
    push(&mut items, &add, Some(id(0, 1)));
    push(&mut items, &write, Some(id(1, 1)));
    // The second operation with an id is a repetition, also within a batch.
    push(&mut items, &add, Some(id(0, 1)));
    let batch = Request::Batch { items: BatchItems::parse(&items).unwrap() };
    let first = answers(&client.send(&batch, None));
    assert_eq!(first[0], first[2]);
    assert_eq!((first[0].0, first[1].0), (Status::Ok, Status::Ok));
    assert_eq!(answers(&client.send(&batch, None)), first);
    assert_eq!(client.send(&add, Some(id(0, 1))), first[0], "alone");
    server.stop().unwrap();
    let (server, mut client, _) = start(dir.path());
    assert_eq!(answers(&client.send(&batch, None)), first, "as before the restart");
    let mut items = Vec::new();
    push(&mut items, &add, Some(id(0, 2)));
    push(&mut items, &add, Some(id(0, 1)));
    push(&mut items, &Request::Read { table, key: b"sum" }, None);
    let batch = Request::Batch { items: BatchItems::parse(&items).unwrap() };
    let later = answers(&client.send(&batch, None));
    assert_eq!(later[0].2, 10i64.to_le_bytes());
    assert_eq!(later[1].0, Status::Refused);
    assert_eq!(later[2].2, 10i64.to_le_bytes());
    server.stop().unwrap();
}

#[test]
fn a_batch_with_bad_items_executes_the_others() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut client, table) = start(dir.path());
    let condition = Condition::None;
    let write = Request::Write { table, key: b"key", value: b"value", condition, ttl: None };
    let read = Request::Read { table, key: b"key" };
    let mut inner = Vec::new();
    push(&mut inner, &read, None);
    let inner = Request::Batch { items: BatchItems::parse(&inner).unwrap() };
    let mut items = Vec::new();
    push_item(&mut items, &[b"nonsense"]);
    push(&mut items, &write, None);
    for request in [
        inner,
        Request::Scan { table, after: None },
        Request::TableStats { table },
        Request::ServerStats,
        Request::ListTables,
    ] {
        push(&mut items, &request, None);
    }
    push(&mut items, &read, Some(id(0, 1)));
    push(&mut items, &Request::Read { table: table + 1, key: b"key" }, None);
    push(&mut items, &read, None);
    let batch = Request::Batch { items: BatchItems::parse(&items).unwrap() };
    let answers = answers(&client.send(&batch, None));
    let statuses: Vec<Status> = answers.iter().map(|answer| answer.0).collect();
    let mut expected = vec![Status::Malformed; 10];
    (expected[1], expected[8], expected[9]) = (Status::Ok, Status::UnknownTable, Status::Ok);
    assert_eq!(statuses, expected);
    assert_eq!(answers[9].2, b"value");
    server.stop().unwrap();
}

#[test]
fn a_batch_ends_where_its_answers_are_long_enough() {
    let dir = tempfile::tempdir().unwrap();
    let (server, mut client, table) = start(dir.path());
    let value = vec![b'v'; BATCH_ANSWER_BYTES / 4];
    client.send(
        &Request::Write {
            table,
            key: b"key",
            value: &value,
            condition: Condition::None,
            ttl: None,
        },
        None,
    );
    let mut items = Vec::new();
    for _ in 0..MAX_BATCH {
        push(&mut items, &Request::Read { table, key: b"key" }, None);
    }
    push_item(&mut items, &[b"one more"]);
    assert!(BatchItems::parse(&items).is_err());
    items.truncate(items.len() - 12);
    let batch = Request::Batch { items: BatchItems::parse(&items).unwrap() };
    let answers = answers(&client.send(&batch, None));
    assert_eq!(answers.len(), MAX_BATCH);
    let (sent, left) = answers.split_at(4);
    assert!(sent.iter().all(|answer| answer.0 == Status::Ok && answer.2 == value));
    assert!(left.iter().all(|answer| answer.0 == Status::Busy && answer.2.is_empty()));
    server.stop().unwrap();
}
