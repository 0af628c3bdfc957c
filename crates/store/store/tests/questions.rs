//! A server repeats its request to the coordinator before it has an answer.

use crate::common::ended;
use sprat_net::{Driver as _, Hub, HubOptions, Nanos};
use sprat_rpc::{Config, Endpoint};
use sprat_store::coordinator::{Catalog, Coordinator, MetadataMemory};
use sprat_store::node::Node;
use sprat_wire::op::{Answer, ClusterSeen, Request, Status};
use std::net::SocketAddr;
use std::time::Duration;
use zerocopy::IntoBytes as _;

use ended::Ended;

const STEP: Duration = Duration::from_micros(50);

/// Number of requests, each of which is sent while the previous one is unanswered: many more than a
/// session has slots.
const QUESTIONS: usize = 100;

/// The coordinator answers each request, even if a newer request has replaced it. Otherwise the
/// request's slot in the session would be lost, and after some pauses of the coordinator its
/// servers could send nothing more.
#[test]
fn a_question_that_a_newer_one_replaces_is_answered() {
    let hub = Hub::new(HubOptions::default());
    let address = |last: u8| SocketAddr::from(([10, 0, 0, last], 1));
    let config = Config::default();
    let coordinator = Coordinator::new(Catalog::open(MetadataMemory::default(), 1).unwrap());
    let mut node = Node::new(hub.port(address(1)).unwrap(), coordinator, &config, 1);
    let mut endpoint = Endpoint::new(&config, 2);
    let mut driver = hub.port(address(2)).unwrap();
    let mut now = Nanos(0);
    let session = endpoint.connect(now, address(1), driver.tx()).unwrap();
    let mut ended = Ended::default();
    let enlist = Request::Enlist { server: 0, cluster: 0, copies: 2, locator: "here", rack: "" };
    let mut calls = Vec::new();
    let mut answered = 0;
    for turn in 0..100_000 {
        now = now + STEP;
        hub.deliver_until(now);
        node.turn(now).unwrap();
        hub.deliver_until(now);
        driver
            .receive(&mut |tx, from, frame| endpoint.receive(now, from, frame, &mut ended, tx))
            .unwrap();
        endpoint.poll(now, &mut ended, driver.tx());
        if turn % 100 == 0 && calls.len() <= QUESTIONS {
            // The request names the current version, so the coordinator does not answer it at once.
            let known = node.service().catalog().version();
            let question = Request::Assignments { server: 1, known, seen: &ClusterSeen::default() };
            let (header, key, value) = if calls.is_empty() { &enlist } else { &question }.parts();
            let parts = [header.as_bytes(), key, value];
            calls.extend(endpoint.call(
                now,
                session,
                &parts,
                now + Duration::from_secs(100),
                driver.tx(),
            ));
        }
        endpoint.flush(driver.tx());
        for (_, result) in ended.results.drain() {
            let bytes = result.expect("an answer");
            assert_eq!(Answer::parse(&bytes).unwrap().status, Status::Ok);
            answered += 1;
        }
        if answered > QUESTIONS {
            return;
        }
    }
    panic!("of {} questions {answered} were answered", calls.len());
}
