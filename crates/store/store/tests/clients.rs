//! Clients of a real server: futures, servers that stop and come back, a coordinator in another
//! process.

use crate::common::clients::{client_of, options_for};
use sprat_client::{AsyncClient, Client, Condition, Error, Options, TableOptions};
use sprat_store::server::{Guard, Server, ServerOptions};
use sprat_wire::tablet::Range;
use std::path::Path;
use std::time::Duration;

fn options(data: &Path, listen: &str) -> ServerOptions {
    ServerOptions { listen: vec![listen.into()], ..ServerOptions::alone(data) }
}

#[expect(clippy::disallowed_methods, reason = "a test's thread is no node")]
fn pause(millis: u64) {
    std::thread::sleep(Duration::from_millis(millis));
}

#[test]
fn futures_end_on_any_executor() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&options(dir.path(), "fast+udp:host=127.0.0.1,port=0")).unwrap();
    let client = AsyncClient::connect(&options_for(&server)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let table = client.create_table("async").await.unwrap();
        let writes: Vec<_> = (0..500u32)
            .map(|number| client.put_if(table, &number.to_le_bytes(), b"value", Condition::Absent))
            .collect();
        for write in writes {
            write.await.unwrap();
        }
        assert_eq!(client.get(table, &7u32.to_le_bytes()).await.unwrap().unwrap().value, b"value");
        let (mut rows, mut after) = (0, None);
        loop {
            let page = client.scan(table, after).await.unwrap();
            rows += page.rows.len();
            assert!(rows <= 500, "no object comes twice");
            after = page.next;
            if after.is_none() {
                break;
            }
        }
        assert_eq!(rows, 500, "a scan of several pages returns every object");
        let conflict = client.put_if(table, &7u32.to_le_bytes(), b"again", Condition::Absent).await;
        assert!(matches!(conflict, Err(Error::Conflict { current: Some(_) })));
        assert_eq!(client.get(table, b"nobody").await.unwrap(), None);
        assert_eq!(client.increment_i64(table, b"count", 3).await.unwrap().0, 3);
        assert!(client.remove(table, b"count").await.unwrap().is_some());
        assert_eq!(client.get(table, &vec![0; 70_000]).await, Err(Error::KeyTooLarge(70_000)));
        assert!(matches!(client.table("none").await, Err(Error::NoSuchTable(_))));
        let long = "x".repeat(70_000);
        assert_eq!(client.create_table(&long).await, Err(Error::BadTableName(long)));
        assert_eq!(
            client.put(table, b"k", &vec![0; (1 << 20) + 1]).await,
            Err(Error::ValueTooLarge((1 << 20) + 1))
        );
        let shared = client.clone();
        drop(client);
        assert!(shared.get(table, b"count").await.unwrap().is_none(), "a clone is enough");
    });
    server.stop().unwrap();
}

#[test]
fn futures_administer_a_cluster_too() {
    let dir = tempfile::tempdir().unwrap();
    let server = Server::start(&options(dir.path(), "fast+udp:host=127.0.0.1,port=0")).unwrap();
    let client = AsyncClient::connect(&options_for(&server)).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    runtime.block_on(async {
        let table = client.create_table_with("async", TableOptions::of(1)).await.unwrap();
        let several = client.create_table_with("several", TableOptions::of(2)).await;
        assert!(matches!(several, Err(Error::Refused { .. })), "no replicas: {several:?}");
        assert_eq!(client.increment_f64(table, b"sum", 0.5).await.unwrap().0, 0.5);
        let version = client.put(table, b"key", b"value").await.unwrap();
        let page = client.scan(table, None).await.unwrap();
        assert_eq!((page.rows.len(), page.next), (2, None));
        assert_eq!(client.table_stats(table).await.unwrap().objects, 2);
        let stale = client.remove_if(table, b"key", Condition::Version(version + 1)).await;
        assert_eq!(stale, Err(Error::Conflict { current: Some(version) }));

        let tables = client.list_tables().await.unwrap();
        assert_eq!(tables.iter().map(|table| &table.name[..]).collect::<Vec<_>>(), ["async"]);
        let servers = client.list_servers().await.unwrap();
        assert_eq!(servers.len(), 1);
        let counters = client.server_stats(&servers[0].locator).await.unwrap();
        assert!(!counters.is_empty());
        let nowhere = client.server_stats("smoke:host=127.0.0.1").await;
        assert!(matches!(nowhere, Err(Error::Endpoint(_))), "{nowhere:?}");
        assert_eq!(client.leader().await.unwrap(), (0, String::new()), "there is only one");
        assert_eq!(client.coordinator_leads().await.unwrap(), (true, 0));
        let to_itself = client.move_tablet(table, Range::ALL, servers[0].id).await;
        assert!(matches!(to_itself, Err(Error::Refused { .. })), "{to_itself:?}");
        let drained = client.drain(servers[0].id, true).await;
        assert!(matches!(drained, Err(Error::Refused { .. })), "{drained:?}");
        client.drop_table("async").await.unwrap();
        assert_eq!(client.get(table, b"key").await, Err(Error::TableDropped(table.0)));
        assert_eq!(client.table_stats(table).await, Err(Error::TableDropped(table.0)));
    });
    server.stop().unwrap();
}

#[test]
fn a_client_outlives_its_server() {
    for transport in ["fast+udp", "tcp"] {
        let dir = tempfile::tempdir().unwrap();
        let mut options = options(dir.path(), &format!("{transport}:host=127.0.0.1,port=0"));
        let server = Server::start(&options).unwrap();
        // Use the same ports again, as after a restart of the machine.
        options.coordinator = server.coordinator.to_string();
        options.listen = vec![server.nodes[0].listen.to_string()];
        let mut client = client_of(&server);
        let table = client.create_table("lasting").unwrap();
        let version = client.put(table, b"key", b"value").unwrap();
        server.stop().unwrap();

        for coordinator in
            [options.coordinator.clone(), format!("{},{}", options.coordinator, options.listen[0])]
        {
            // The timeout is longer than this test may take, because the refusal must come at once.
            let timeout = Duration::from_secs(3600);
            let mut hasty =
                Client::connect(&Options { coordinator, timeout, ..reach_at(&options) }).unwrap();
            for _ in 0..2 {
                let refused = hasty.table("lasting");
                assert!(
                    matches!(refused, Err(Error::ConnectionRefused(_))),
                    "no process listens: {refused:?}"
                );
            }
        }
        let patient =
            Options { timeout: Duration::from_millis(300), patient: true, ..reach_at(&options) };
        let mut patient = Client::connect(&patient).unwrap();
        assert!(
            matches!(patient.table("lasting"), Err(Error::Timeout { .. })),
            "a server may start there"
        );

        let restart = std::thread::spawn(move || {
            pause(300);
            Server::start(&options).unwrap()
        });
        let object = client.get(table, b"key").unwrap().expect("still there");
        assert_eq!((object.version, object.value), (version, b"value".to_vec()));
        assert!(client.put(table, b"key", b"newer").unwrap() > version);
        restart.join().unwrap().stop().unwrap();
    }
}

fn reach_at(options: &ServerOptions) -> Options {
    Options { coordinator: options.coordinator.clone(), ..Options::default() }
}

#[test]
fn a_coordinator_may_run_elsewhere_and_come_back() {
    let (home, data) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let coordinator =
        Server::start_coordinator("tcp:host=127.0.0.1,port=0", home.path(), &Guard::default())
            .unwrap();
    let at = coordinator.coordinator.to_string();
    let mut alone = client_of(&coordinator);
    assert!(
        matches!(alone.create_table("early"), Err(Error::NoServer(_))),
        "no server has enlisted"
    );

    let options = ServerOptions {
        coordinator: at.clone(),
        embedded: false,
        ..options(data.path(), "fast+udp:host=127.0.0.1,port=0")
    };
    let server = Server::start(&options).unwrap();
    let mut client = client_of(&coordinator);
    let table = client.create_table("late").unwrap();
    client.put(table, b"key", b"value").unwrap();
    let before = client.get(table, b"key");
    assert!(matches!(client.server_stats(&at), Ok(counters) if !counters.is_empty()));
    let wrong = client
        .submit(&sprat_wire::op::Request::Enlist {
            server: 9,
            cluster: 5,
            copies: 0,
            locator: "tcp:x",
            rack: "",
        })
        .unwrap();
    assert!(
        matches!(client.wait(wrong, |_| ()), Err(Error::Refused { .. })),
        "another cluster's server"
    );

    // Objects are served while the coordinator is away; tables can be created when it is back.
    coordinator.stop().unwrap();
    assert_eq!(client.get(table, b"key"), before);
    let coordinator = Server::start_coordinator(&at, home.path(), &Guard::default()).unwrap();
    let second = loop {
        match client.create_table("later") {
            Err(Error::NoServer(_)) => pause(20), // it has yet to enlist again
            made => break made.unwrap(),
        }
    };
    client.put(second, b"key", b"value").unwrap();
    server.stop().unwrap();
    coordinator.stop().unwrap();
}
