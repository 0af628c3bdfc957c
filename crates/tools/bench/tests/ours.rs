//! Loads on Sprat, whose server runs in this process.

use sprat_bench::ours::{Connection, Sockets, connect, drop_table};
use sprat_client::{Client, Condition, Mode, Options};
use sprat_measure::load::{LoadPlan, Workload, preload, run};
use sprat_measure::target::{LoadTarget, Wait};
use sprat_net::ticks;
use sprat_store::server::{Durability, Server, ServerOptions};
use sprat_testing::PATIENCE;
use sprat_wire::op::{Answer, Request, Status};
use std::time::Duration;

const MEMORY: u64 = 128 << 20;
const KEYS: u64 = 500;
const OPERATIONS: u64 = 3_000;

fn server(listen: &str) -> (Server, tempfile::TempDir) {
    let folder = tempfile::tempdir().expect("a folder");
    let options = ServerOptions {
        listen: vec![listen.into()],
        memory: MEMORY,
        disk: 3 * MEMORY,
        durability: Durability::None,
        timed: true,
        ..ServerOptions::alone(folder.path())
    };
    (Server::start(&options).expect("a server"), folder)
}

fn count_failures(target: &mut Connection, clients: usize, depth: usize, wait: Wait) -> u64 {
    let workload =
        Workload { read_share: 0.5, together: 1 + depth % 8, ..Workload::reads(KEYS, 100) };
    preload(target, &workload).expect("filled");
    let plan = LoadPlan {
        clients,
        depth,
        warm_up: Duration::ZERO,
        duration: Duration::from_secs(60),
        max_ops: Some(OPERATIONS),
        ..LoadPlan::one_client(workload, wait)
    };
    let measured = run(target, &plan).expect("a run");
    assert!(measured.latencies.count() >= OPERATIONS);
    measured.failures()
}

fn client_options(coordinator: String) -> Options {
    Options { coordinator, timeout: PATIENCE, ..Options::default() }
}

#[test]
fn every_way_to_connect_reads_what_it_wrote() {
    for listen in ["fast+udp:host=127.0.0.1,port=0", "tcp:host=127.0.0.1,port=0"] {
        let (server, _folder) = server(listen);
        let options = client_options(server.coordinator.to_string());
        for (connections, sockets, depth, wait) in [
            (1, Sockets::Each, 1, Wait::Spin),
            (1, Sockets::Each, 1, Wait::Sleep),
            (1, Sockets::Each, 512, Wait::Spin),
            (7, Sockets::Each, 1, Wait::Sleep),
            (7, Sockets::Each, 3, Wait::Spin),
            (7, Sockets::One, 3, Wait::Spin),
        ] {
            let mut target =
                connect(&options, connections, sockets, Mode::Sleep).expect("a connection");
            assert_eq!(target.connections(), connections);
            assert!(listen.starts_with(target.transport().split(',').next().expect("a name")));
            assert_eq!(
                count_failures(&mut target, connections, depth, wait),
                0,
                "{listen} {connections} {depth}"
            );
        }
        drop_table(&options).expect("the table dropped");
        assert!(drop_table(&options).is_err(), "there is nothing left to drop");
        server.stop().expect("an orderly end");
    }
}

#[test]
fn transactions_write_and_read_several_objects() {
    let (server, _folder) = server("fast+udp:host=127.0.0.1,port=0");
    let options = client_options(server.coordinator.to_string());
    let mut target = connect(&options, 1, Sockets::Each, Mode::Adaptive).expect("a connection");
    let alone = connect(&options, 1, Sockets::Each, Mode::Adaptive).expect("a connection");
    let mut client = Client::connect(&options).expect("a client");
    assert!(alone.across_servers(&mut client).is_err(), "there is one server");
    for workload in [Workload::writes(KEYS, 100), Workload::reads(KEYS, 100)] {
        preload(&mut target, &workload).expect("filled");
        let plan = LoadPlan {
            warm_up: Duration::ZERO,
            duration: Duration::from_secs(60),
            max_ops: Some(100),
            ..LoadPlan::one_client(workload.transactions(4), Wait::Sleep)
        };
        let measured = run(&mut target, &plan).expect("a run");
        assert_eq!(measured.failures(), 0);
        assert!(measured.latencies.count() >= 100);
    }
    server.stop().expect("an orderly end");
}

#[test]
fn a_key_that_is_missing_is_a_miss_and_no_error() {
    let (server, _folder) = server("fast+udp:host=127.0.0.1,port=0");
    let options = client_options(server.coordinator.to_string());
    let mut target = connect(&options, 1, Sockets::Each, Mode::Adaptive).expect("a connection");
    let plan = LoadPlan {
        warm_up: Duration::ZERO,
        duration: Duration::from_secs(60),
        max_ops: Some(100),
        ..LoadPlan::one_client(Workload::reads(KEYS, 100), Wait::Sleep)
    };
    let measured = run(&mut target, &plan).expect("a run");
    assert!(
        measured.misses >= 100 && measured.errors == 0,
        "{} misses, {} errors",
        measured.misses,
        measured.errors
    );
    server.stop().expect("an orderly end");
}

#[test]
fn a_request_is_stamped_where_it_passes_from_room_to_room() {
    for listen in ["fast+udp:host=127.0.0.1,port=0", "tcp:host=127.0.0.1,port=0"] {
        let (server, _folder) = server(listen);
        let mut client =
            Client::connect(&client_options(server.coordinator.to_string())).expect("a client");
        let table = client.create_table("t").expect("a table").0;
        let value = vec![7; 100_000];
        let put = Request::Write {
            table,
            key: b"k",
            value: &value,
            condition: Condition::None,
            ttl: None,
        };
        let get = Request::Read { table, key: b"k" };
        for (tag, request) in [(1, put), (2, get)] {
            let begun = ticks();
            client.core_mut().record_request_times(table).expect("a known table");
            let now = client.now();
            let core = client.core_mut();
            core.submit(now, tag, &request, now + Duration::from_secs(5)).expect("taken");
            let mut ended = 0;
            while ended == 0 {
                let now = client.now();
                let sink = &mut |_, answer: Result<Answer<'_>, _>| {
                    assert!(answer.is_ok_and(|answer| answer.status == Status::Ok));
                    ended = ticks();
                };
                client.core_mut().poll(now, sink).expect("a driver");
            }
            let passed = client.core_mut().request_times(table).expect("a known table");
            assert!(
                begun < passed.sent && passed.sent < passed.received && passed.received < ended,
                "{passed:?}"
            );
        }
        let locator = client.list_servers().expect("servers")[0].locator.clone();
        let counters = client.server_stats(&locator).expect("counters");
        let value = |name: &str| {
            counters.iter().find(|counter| counter.name == name).expect("a timed server").value
        };
        assert!(value("requests_timed_total") >= 2 && value("request_p50_ns") > 0);
        // The second request was timed in stages.
        assert!(value("request_rpc_p50_ns") > 0 && value("thread_ran_ns_total") > 0);
        server.stop().expect("an orderly end");
    }
}

#[test]
fn an_unreachable_server_is_an_error_in_time() {
    let free = std::net::TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("its address");
    let coordinator = format!("tcp:host=127.0.0.1,port={}", free.port());
    assert!(connect(&client_options(coordinator), 1, Sockets::Each, Mode::Sleep).is_err());
}
