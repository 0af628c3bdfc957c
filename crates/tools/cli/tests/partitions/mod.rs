//! Tests a cluster of real processes whose network fails; each process has its own machine. Cables
//! are pulled, packets pass in one direction only, two servers cannot reach each other, or a server
//! is stopped while requests wait for it. No acknowledged change may be lost or count twice, and no
//! read may return an older value than was acknowledged before the read began.

mod cluster;
mod load;
mod network;

use crate::support;
use cluster::{COORDINATOR, Cluster, SERVERS, machine};
use load::{pause, under_load};
use rustix::process::{Signal, kill_process};
use sprat_client::Error;
use sprat_testing::{until, until_stopped};
use sprat_wire::op::Request;
use std::time::Duration;
use support::{ServerProcess, alone};

#[test]
fn a_master_whose_cable_is_pulled_is_replaced_and_rejoins() {
    let _alone = alone();
    let Some(cluster) = Cluster::start("cable") else { return };
    let raised = under_load(&cluster.clients, |load| {
        assert!(cluster.clients.tablets(0) > 0, "it is a master");
        load.gap();
        cluster.network.plug(machine(0), false);
        pause(Duration::from_secs(2));
        assert_eq!(cluster.clients.tablets(0), 0, "others have taken over what it had");
        let before = load.raised();
        until("changes go on without it", || load.raised() > before + 10);
        eprintln!("longest time without a change, a cable pulled: {:?}", load.gap());
        cluster.network.plug(machine(0), true);
        let rejoined = until("the server starts again", || {
            cluster.clients.counter(0, "declared_dead_total") == Some(1)
        });
        pause(Duration::from_secs(1));
        eprintln!(
            "begun anew after {rejoined:?}; longest time without a change since: {:?}",
            load.gap()
        );
    });
    assert_replicas_are_whole(cluster, 0, raised);
}

#[test]
fn a_master_that_the_coordinator_cannot_hear_is_replaced() {
    let _alone = alone();
    let Some(cluster) = Cluster::start("oneway") else { return };
    let raised = under_load(&cluster.clients, |load| {
        // The server's requests are lost; answers to the server would arrive.
        load.gap();
        cluster.network.cut(machine(0), COORDINATOR, true);
        pause(Duration::from_millis(1500));
        assert_eq!(cluster.clients.tablets(0), 0, "others have taken over what it had");
        cluster.network.cut(machine(0), COORDINATOR, false);
        until("the server starts again", || {
            cluster.clients.counter(0, "declared_dead_total") == Some(1)
        });
        eprintln!("longest time without a change, questions lost: {:?}", load.gap());
        // The server's requests arrive, but the answers to it are lost. It has no lease and answers
        // no client, whether or not it is declared dead.
        cluster.network.cut(COORDINATOR, machine(1), true);
        pause(Duration::from_millis(1500));
        cluster.network.cut(COORDINATOR, machine(1), false);
        let before = load.raised();
        until("changes go on", || load.raised() > before + 10);
        pause(Duration::from_secs(1));
        eprintln!("longest time without a change, answers lost: {:?}", load.gap());
    });
    assert_replicas_are_whole(cluster, 0, raised);
}

#[test]
fn two_servers_that_lose_each_other_do_without() {
    let _alone = alone();
    let Some(cluster) = Cluster::start("pair") else { return };
    under_load(&cluster.clients, |load| {
        load.gap();
        let cut = |cut| {
            cluster.network.cut(machine(0), machine(1), cut);
            cluster.network.cut(machine(1), machine(0), cut);
        };
        cut(true);
        pause(Duration::from_secs(2));
        let before = load.raised();
        until("changes go on", || load.raised() > before + 10);
        eprintln!("longest time without a change, two servers apart: {:?}", load.gap());
        cut(false);
        pause(Duration::from_secs(1));
        eprintln!("longest time without a change since: {:?}", load.gap());
    });
    for server in 0..SERVERS {
        assert_eq!(
            cluster.clients.counter(server, "declared_dead_total"),
            Some(0),
            "the coordinator heard all of them"
        );
    }
}

/// A client that still takes the stopped server for the master sends reads after another client's
/// change was acknowledged. The reads wait at the server when it continues, with an expired lease.
#[test]
fn requests_waiting_for_a_stopped_master_get_no_old_answers() {
    const READERS: usize = 4;
    const READS: usize = 8;
    let _alone = alone();
    let Some(cluster) = Cluster::start("stopped") else { return };
    let (clients, servers) =
        (&cluster.clients, cluster.servers.iter().map(ServerProcess::pid).collect::<Vec<_>>());
    clients.on(|| {
        let (mut writer, tables) = clients.client();
        let mut deaths = [0; SERVERS];
        let keys: Vec<[u8; 8]> = (0..32u64).map(u64::to_le_bytes).collect();
        for (round, victim) in (1..).zip([0, 1, 0]) {
            for (&table, key) in
                tables.iter().flat_map(|table| keys.iter().map(move |key| (table, key)))
            {
                assert_eq!(
                    writer.increment_i64(table, key, 1).expect("it is answered").0,
                    2 * round - 1
                );
            }
            // Each reader caches the masters of all keys.
            let mut readers: Vec<_> = (0..READERS).map(|_| clients.client().0).collect();
            for reader in &mut readers {
                for (&table, key) in
                    tables.iter().flat_map(|table| keys.iter().map(move |key| (table, key)))
                {
                    reader.get(table, key).expect("it is answered").expect("it is there");
                }
            }
            kill_process(servers[victim], Signal::STOP).expect("it runs");
            until_stopped(servers[victim].as_raw_nonzero().get().cast_unsigned());
            for (&table, key) in
                tables.iter().flat_map(|table| keys.iter().map(move |key| (table, key)))
            {
                assert_eq!(
                    writer.increment_i64(table, key, 1).expect("others take over").0,
                    2 * round
                );
            }
            let mut tickets = Vec::new();
            for reader in &mut readers {
                let keys = keys.iter().take(READS);
                for (&table, key) in
                    keys.flat_map(|key| tables.iter().map(move |table| (table, key)))
                {
                    tickets.push(
                        reader
                            .submit(&Request::Read { table: table.0, key })
                            .expect("there is room"),
                    );
                }
            }
            let each = tickets.len() / readers.len();
            kill_process(servers[victim], Signal::CONT).expect("it runs");
            let mut answered = 0;
            for (reader, tickets) in readers.iter_mut().zip(tickets.chunks(each)) {
                for &ticket in tickets {
                    match reader.wait(ticket, |answer| answer.body.to_vec()) {
                        Ok(value) => {
                            let value = i64::from_le_bytes(value.try_into().expect("8 B"));
                            assert_eq!(value, 2 * round, "told before it was asked for");
                            answered += 1;
                        }
                        Err(Error::Timeout { .. } | Error::Recovering { .. }) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            }
            assert!(answered > 0, "somebody answers");
            deaths[victim] += 1;
            until("the server starts again", || {
                clients.counter(victim, "declared_dead_total") == Some(deaths[victim])
            });
            pause(Duration::from_millis(500));
        }
    });
}

/// Checks that a server that rejoined keeps replicas for the others. Another server, which never
/// failed, is killed for good, and all objects are recovered.
fn assert_replicas_are_whole(mut cluster: Cluster, rejoined: usize, raised: u64) {
    until("every segment has its replicas", || {
        (0..SERVERS).all(|server| cluster.clients.counter(server, "segments_short") == Some(0))
    });
    cluster.servers[(rejoined + 2) % SERVERS].kill();
    let clients = &cluster.clients;
    clients.on(|| {
        let (mut client, tables) = clients.client();
        for table in tables {
            let sum = client.increment_i64(table, b"counter", 0).expect("it is brought back").0;
            assert!(sum.cast_unsigned() >= raised, "{sum}, {raised} were told");
        }
    });
}
