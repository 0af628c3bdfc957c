//! Batches at a real server, by both clients.

use crate::common::clients::{client_of, options_for};
use sprat_client::{
    AsyncClient, BATCH_WINDOW, Batch, BatchResult, Condition, Error, Number, Table,
};
use sprat_store::server::{Server, ServerOptions};
use std::path::Path;

const LISTEN: &str = "fast+udp:host=127.0.0.1,port=0";

fn serve(data: &Path, nodes: usize) -> Server {
    let listen = vec![LISTEN.to_owned(); nodes];
    Server::start(&ServerOptions { listen, ..ServerOptions::alone(data) }).expect("a server")
}

/// Returns a batch of one operation of each kind, on objects that the table must have already: `a`,
/// `b` and the number 3 in `n`.
fn mixed(table: Table, long: &[u8]) -> Batch<'_> {
    let mut batch = Batch::new();
    batch
        .put(table, b"new", b"1")
        .get(table, b"a")
        .put_if(table, b"a", b"2", Condition::Absent)
        .get(table, b"none")
        .get(table, long)
        .increment_i64(table, b"n", 4)
        .increment_f64(table, b"a", 0.5)
        .remove(table, b"b")
        .remove(table, b"none");
    batch
}

fn check_mixed(results: &[Result<BatchResult, Error>]) {
    assert!(matches!(&results[0], Ok(BatchResult::Written { .. })), "{results:?}");
    assert!(
        matches!(&results[1], Ok(BatchResult::Read(Some(object))) if object.value == b"first"),
        "{results:?}"
    );
    assert!(matches!(&results[2], Err(Error::Conflict { current: Some(_) })), "{results:?}");
    assert_eq!(results[3], Ok(BatchResult::Read(None)));
    assert_eq!(results[4], Err(Error::KeyTooLarge(70_000)));
    let Ok(BatchResult::Sum { sum, .. }) = results[5] else { panic!("{results:?}") };
    assert_eq!(sum, Number::Integer(7));
    assert!(matches!(&results[6], Err(Error::NotANumber(_))), "{results:?}");
    assert!(matches!(&results[7], Ok(BatchResult::Removed(Some(_)))), "{results:?}");
    assert_eq!(results[8], Ok(BatchResult::Removed(None)));
}

/// Returns a batch that writes what [`mixed`] needs.
fn prepare(table: Table) -> Batch<'static> {
    let mut batch = Batch::new();
    batch.put(table, b"a", b"first").put(table, b"b", b"2").increment_i64(table, b"n", 3);
    batch
}

#[test]
fn each_operation_of_a_batch_has_its_own_result() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = serve(dir.path(), 1);
    let long = vec![0; 70_000];
    let mut client = client_of(&server);
    let table = client.create_table("blocking").expect("a table");
    assert!(client.batch(&prepare(table)).iter().all(Result::is_ok));
    check_mixed(&client.batch(&mixed(table, &long)));
    assert!(client.batch(&Batch::new()).is_empty());
    let client = AsyncClient::connect(&options_for(&server)).expect("a client");
    let runtime = tokio::runtime::Builder::new_current_thread().build().expect("a runtime");
    runtime.block_on(async {
        let table = client.create_table("asynchronous").await.expect("a table");
        let prepared = client.batch(&prepare(table)).await.expect("results");
        assert!(prepared.iter().all(Result::is_ok));
        check_mixed(&client.batch(&mixed(table, &long)).await.expect("results"));
        assert_eq!(client.batch(&Batch::new()).await, Ok(Vec::new()));
        let mut batch = Batch::new();
        for _ in 0..=BATCH_WINDOW {
            batch.get(table, b"a");
        }
        assert_eq!(client.batch(&batch).await, Err(Error::TooManyPending(BATCH_WINDOW)));
    });
}

/// A request carries 1,024 operations at most, a response little more than 1 MiB.
#[test]
fn batches_beyond_the_limits_of_a_message_are_divided() {
    let dir = tempfile::tempdir().expect("a folder");
    let server = serve(dir.path(), 3);
    let mut client = client_of(&server);
    let tables: Vec<Table> =
        (0..4).map(|number| client.create_table(&format!("t{number}")).expect("a table")).collect();
    let keys: Vec<String> = (0..6000).map(|number| format!("key{number}")).collect();
    let mut batch = Batch::new();
    for (number, key) in keys.iter().enumerate() {
        batch.put(tables[number % 4], key.as_bytes(), key.as_bytes());
    }
    assert!(client.batch(&batch).iter().all(Result::is_ok));
    let mut batch = Batch::new();
    for (number, key) in keys.iter().enumerate() {
        batch.get(tables[number % 4], key.as_bytes());
    }
    for (key, result) in keys.iter().zip(client.batch(&batch)) {
        let Ok(BatchResult::Read(Some(object))) = result else { panic!("{key}: {result:?}") };
        assert_eq!(object.value, key.as_bytes());
    }
    let large = vec![7; 300_000];
    let mut batch = Batch::new();
    for key in &keys[..40] {
        batch.put(tables[0], key.as_bytes(), &large);
    }
    assert!(client.batch(&batch).iter().all(Result::is_ok));
    let mut batch = Batch::new();
    for key in &keys[..40] {
        batch.get(tables[0], key.as_bytes());
    }
    for result in client.batch(&batch) {
        let Ok(BatchResult::Read(Some(object))) = result else { panic!("{result:?}") };
        assert_eq!(object.value, large);
    }
}
