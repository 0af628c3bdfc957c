//! Tests of real peers on the loopback interface, if they are installed, and of the echoes.

use std::time::{Duration, Instant};

use sprat_bench::echo::{self, Carrier};
use sprat_bench::peers::{Endpoint, Peer};
use sprat_bench::scenarios::{self, Lab, Mix};
use sprat_bench::system::{Durability, Memcached, Redis, Setup, System};
use sprat_measure::load::{LoadPlan, Measured, Workload, preload, run};
use sprat_measure::machine::Machine;
use sprat_measure::target::Wait;
use sprat_testing::PATIENCE;

const SYSTEMS: [(&dyn System, &str); 3] = [
    (&Redis { unix: false }, "redis-server"),
    (&Redis { unix: true }, "redis-server"),
    (&Memcached, "memcached"),
];

/// Returns the installed peers. The project's setup script installs all peers. If a peer is
/// missing, its tests only print that they did nothing.
fn installed() -> Vec<&'static dyn System> {
    let found = SYSTEMS.into_iter().filter(|(_, program)| {
        let known = std::process::Command::new(program).arg("--version").output().is_ok();
        if !known {
            eprintln!("{program} is not installed: not tested");
        }
        known
    });
    found.map(|(system, _)| system).collect()
}

fn is_alive(pid: u32) -> bool {
    std::path::Path::new(&format!("/proc/{pid}")).exists()
}

fn brief(workload: Workload, wait: Wait, ops: u64) -> LoadPlan {
    LoadPlan {
        warm_up: Duration::ZERO,
        duration: Duration::from_secs(20),
        max_ops: Some(ops),
        ..LoadPlan::one_client(workload, wait)
    }
}

fn assert_clean(measured: &Measured, ops: u64) {
    assert_eq!(measured.failures(), 0, "{} over {}", measured.target, measured.transport);
    assert!(measured.latencies.count() >= ops);
}

#[test]
fn values_of_every_size_are_read_and_misses_reported() {
    for system in installed() {
        let server = system.start(&Setup::new()).expect("started");
        for (connections, wait) in
            [(1, Wait::Sleep), (1, Wait::Spin), (5, Wait::Sleep), (5, Wait::Spin)]
        {
            let mut target = server.connect(connections).expect("connected");
            for bytes in [1, 100, 20_000, 1_000_000] {
                let workload = Workload::reads(20, bytes);
                preload(target.as_mut(), &workload).expect("filled");
                let plan = LoadPlan {
                    clients: connections,
                    depth: 3,
                    ..brief(workload.clone(), wait, 60)
                };
                assert_clean(&run(target.as_mut(), &plan).expect("read"), 60);
                let mixed = Workload { read_share: 0.5, ..workload };
                assert_clean(
                    &run(target.as_mut(), &LoadPlan { workload: mixed, ..plan }).expect("mixed"),
                    60,
                );
            }
            let together = Workload { together: 7, ..Workload::reads(20, 100) };
            preload(target.as_mut(), &together).expect("filled");
            assert_clean(&run(target.as_mut(), &brief(together, wait, 60)).expect("read"), 60);
            if system.name().starts_with("redis") {
                for workload in [Workload::reads(20, 100), Workload::writes(20, 100)] {
                    let plan = brief(workload.transactions(3), wait, 60);
                    assert_clean(&run(target.as_mut(), &plan).expect("transactions"), 60);
                }
            }
            let absent = Workload { key_bytes: 40, ..Workload::reads(20, 100) };
            let measured = run(target.as_mut(), &brief(absent, wait, 10)).expect("read");
            assert_eq!(measured.misses, measured.latencies.count());
        }
        let pid = server.pid();
        assert!(is_alive(pid));
        drop(server);
        assert!(!is_alive(pid), "{} outlived its handle", system.name());
    }
}

#[test]
fn a_synced_store_comes_back_after_a_kill() {
    for system in installed().into_iter().filter(|system| system.offers(Durability::Sync)) {
        let setup = Setup { durability: Durability::Sync, ..Setup::new() };
        let mut server = system.start(&setup).expect("started");
        let workload = Workload::reads(200, 100);
        preload(server.connect(1).expect("connected").as_mut(), &workload).expect("filled");
        let before = server.pid();
        server.restart().expect("back");
        assert_ne!(server.pid(), before);
        let mut target = server.connect(1).expect("connected");
        assert_clean(&run(target.as_mut(), &brief(workload, Wait::Sleep, 200)).expect("read"), 200);
    }
}

#[test]
fn a_dead_peer_is_an_error_not_a_hang() {
    for system in installed() {
        let server = system.start(&Setup::new()).expect("started");
        let mut target = server.connect(2).expect("connected");
        drop(server);
        assert!(run(target.as_mut(), &brief(Workload::reads(10, 100), Wait::Sleep, 10)).is_err());
    }
    let nobody: Peer = "redis://127.0.0.1:1".parse().expect("a URL");
    assert!(nobody.connect(1).is_err());
}

#[test]
fn memcached_does_not_pretend_to_be_durable() {
    let setup = Setup { durability: Durability::Sync, ..Setup::new() };
    assert!(Memcached.start(&setup).is_err());
}

#[test]
fn echoes_come_back_spinning_and_sleeping() {
    for carrier in [Carrier::Udp, Carrier::Tcp] {
        for wait in [Wait::Spin, Wait::Sleep] {
            let mut target = echo::target(carrier, wait, None, 160, 100).expect("started");
            target.set_active(true);
            for depth in [1, 8] {
                let plan = LoadPlan { depth, ..brief(Workload::reads(10, 100), wait, 200) };
                assert_clean(&run(target.as_mut(), &plan).expect("echoed"), 200);
            }
        }
    }
}

#[test]
fn scenarios_measure_everybody_they_are_given() {
    let systems = installed();
    let lab = Lab {
        rounds: 1,
        warm_up: Duration::from_millis(10),
        duration: Duration::from_millis(50),
        keys: 100,
        ..Lab::new()
    };
    let names: Vec<&str> = systems.iter().map(|system| system.name()).collect();
    let read = scenarios::read_latency(&lab, &systems, Wait::Sleep).expect("measured");
    assert!(read.get("echo udp").is_some() && read.get("echo tcp").is_some());
    assert!(names.iter().all(|name| read.get(name).is_some()));
    let many = scenarios::throughput(&lab, &systems, Mix::reads(10, 4)).expect("measured");
    assert_eq!(many.series.len(), names.len());
    let memory = scenarios::memory(&lab, &systems, 2000).expect("measured");
    assert!(memory.iter().all(|one| one.full_bytes > 2000 * 130));
    let restarts = scenarios::restart(&lab, &systems, 2000).expect("measured");
    assert!(restarts.iter().all(|one| one.lost == 0));
    let written = scenarios::durable_write(&lab, &systems, Durability::Sync, 3).expect("measured");
    assert!(written.series.iter().all(|series| series.failures() == 0));
    assert!(!written.to_string().contains("memcached"));
}

#[test]
fn urls_name_peers() {
    let parse = str::parse::<Peer>;
    assert_eq!(
        parse("redis://127.0.0.1:6379/").ok(),
        Some(Peer::Redis(Endpoint::Tcp("127.0.0.1:6379".parse().expect("one"))))
    );
    assert_eq!(
        parse("memcached://[::1]:11211").ok(),
        Some(Peer::Memcached(Endpoint::Tcp("[::1]:11211".parse().expect("one"))))
    );
    assert_eq!(
        parse("redis+unix:///run/r").ok(),
        Some(Peer::Redis(Endpoint::Unix("/run/r".into())))
    );
    for bad in [
        "",
        "redis",
        "redis://",
        "redis://nohost",
        "mysql://127.0.0.1:1",
        "redis+udp://127.0.0.1:1",
        "redis+unix://run/r",
    ] {
        assert!(parse(bad).is_err(), "{bad}");
    }
}

#[test]
fn the_machine_reports_other_busy_processes() {
    let mut busy =
        std::process::Command::new("sh").args(["-c", "while :; do :; done"]).spawn().expect("sh");
    // While others use all cores, it may get too little of one to be among the busiest.
    let begun = Instant::now();
    let machine = loop {
        let machine = Machine::describe();
        let is_there = machine.neighbours.iter().any(|neighbour| neighbour.pid == busy.id());
        if is_there || begun.elapsed() > PATIENCE {
            break is_there.then_some(machine);
        }
    };
    busy.kill().expect("ours");
    busy.wait().expect("ours");
    let machine = machine.expect("it is found");
    assert!(machine.cores > 0 && machine.memory_bytes > 1 << 20 && !machine.kernel.is_empty());
}
