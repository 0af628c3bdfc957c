//! Several nodes in one process: they share only the process, and a restart finds the data of all.

use crate::common::clients::client_of;
use sprat_client::{Client, Table};
use sprat_store::server::{Server, ServerOptions};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;

const MEMORY: u64 = 192 << 20;
const TABLES: [&str; 6] = ["a", "b", "c", "d", "e", "f"];

fn options(data: &Path, nodes: usize) -> ServerOptions {
    let alone = ServerOptions::alone(data);
    ServerOptions {
        listen: vec![alone.listen[0].clone(); nodes],
        memory: MEMORY,
        disk: 768 << 20,
        ..alone
    }
}

/// Returns the error with which a server refuses to start.
fn refusal(options: &ServerOptions) -> String {
    Server::start(options).err().expect("it is refused").to_string()
}

/// Returns the number of tables that each locator serves.
fn spread(client: &mut Client) -> BTreeMap<String, usize> {
    let mut served = BTreeMap::new();
    for table in client.list_tables().unwrap() {
        *served.entry(table.tablets[0].locator.clone()).or_default() += 1;
    }
    served
}

/// Creates the tables, with an object in each.
fn fill(client: &mut Client) {
    for name in TABLES {
        let table = client.create_table(name).unwrap();
        client.put(table, b"name", name.as_bytes()).unwrap();
    }
}

#[track_caller]
fn check(client: &mut Client) {
    for name in TABLES {
        let table: Table = client.table(name).unwrap();
        assert_eq!(
            client.get(table, b"name").unwrap().expect("it was acknowledged").value,
            name.as_bytes()
        );
    }
}

#[test]
fn tables_lie_on_all_nodes_and_are_there_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), 3);
    for life in 0..2 {
        let server = Server::start(&options).unwrap();
        assert_eq!(server.nodes.len(), 3);
        let mut client = client_of(&server);
        if life == 0 {
            fill(&mut client);
        }
        check(&mut client);
        let restored: u64 = server.nodes.iter().map(|node| node.restored.objects).sum();
        assert_eq!(restored, [0, TABLES.len() as u64][life]);
        let served = spread(&mut client);
        for node in &server.nodes {
            let locator = node.listen.to_string();
            assert_eq!(served[&locator], 2, "{served:?}");
            let counters = client.server_stats(&locator).unwrap();
            let memory =
                counters.iter().find(|counter| counter.name == "memory_bytes").unwrap().value;
            assert_eq!(memory, MEMORY / 3, "each has its part of the memory");
        }
        server.stop().unwrap();
    }
    for log in ["log.sprat", "node-2/log.sprat", "node-3/log.sprat"] {
        assert!(dir.path().join(log).exists(), "{log}");
    }
}

#[test]
fn a_directory_of_another_number_of_nodes_is_refused_and_untouched() {
    for (before, after) in [(1, 2), (2, 1), (3, 2)] {
        let dir = tempfile::tempdir().unwrap();
        Server::start(&options(dir.path(), before)).unwrap().stop().unwrap();
        let identity = || fs::read_to_string(dir.path().join("identity.toml")).unwrap();
        let untouched = identity();
        let error = refusal(&options(dir.path(), after));
        assert!(error.contains(&format!("--nodes {before}")), "{error}");
        assert_eq!(identity(), untouched);
        Server::start(&options(dir.path(), before)).unwrap().stop().unwrap();
    }
}

#[test]
fn a_node_without_its_directory_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), 2);
    let server = Server::start(&options).unwrap();
    fill(&mut client_of(&server));
    server.stop().unwrap();
    let (here, away) = (dir.path().join("node-2"), dir.path().join("elsewhere"));
    fs::rename(&here, &away).unwrap();
    let error = refusal(&options);
    assert!(error.contains("node-2") && error.contains("restore it"), "{error}");
    fs::rename(&away, &here).unwrap();
    let server = Server::start(&options).unwrap();
    check(&mut client_of(&server));
    server.stop().unwrap();
}

#[test]
fn too_small_a_disk_per_node_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let error = refusal(&ServerOptions { disk: 1 << 20, ..options(dir.path(), 2) });
    assert!(error.contains("give --disk") && error.contains("each of 2 nodes"), "{error}");
}

#[test]
fn metrics_are_labelled_by_node() {
    let dir = tempfile::tempdir().unwrap();
    let metrics = Some("127.0.0.1:0".parse().unwrap());
    let server = Server::start(&ServerOptions { metrics, ..options(dir.path(), 2) }).unwrap();
    fill(&mut client_of(&server));
    let mut stream = TcpStream::connect(server.metrics.unwrap()).unwrap();
    stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    for node in [1, 2] {
        assert!(text.contains(&format!("sprat_objects{{node=\"{node}\"}} 3\n")), "{text}");
    }
    assert_eq!(
        text.matches("# TYPE sprat_objects gauge").count(),
        1,
        "one TYPE line for both nodes"
    );
    server.stop().unwrap();
}

#[test]
fn an_interrupted_first_start_is_completed_by_the_next() {
    let dir = tempfile::tempdir().unwrap();
    let options = options(dir.path(), 2);
    Server::start(&options).unwrap().stop().unwrap();
    // The state after the process was killed when the first node had enlisted but the second had
    // not.
    let second = dir.path().join("node-2");
    fs::remove_file(second.join("log.sprat")).unwrap();
    fs::write(second.join("identity.toml"), "format = 1\ncluster = 0\nserver = 0\nseed = 7\n")
        .unwrap();
    let server = Server::start(&options).unwrap();
    assert_eq!(server.nodes.len(), 2);
    server.stop().unwrap();
}
