//! Measures one small call, both endpoints together, open and sealed, with warm caches and without
//! a driver or a network; and a handshake.

use std::hint::black_box;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use sprat_key::{Identity, Role, Root, Terms};
use sprat_net::{Nanos, Transmit};
use sprat_rpc::{
    CallFailure, CallId, Config, Credentials, Endpoint, Handler, Outcome, Repeat, Reply, RequestId,
    Response, SessionId,
};

/// Frames one after the other in one buffer, so that the bench measures endpoints and not
/// allocation.
struct Wire {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Transmit for Wire {
    fn mtu(&mut self, _: SocketAddr) -> usize {
        1500
    }

    fn reliable(&self) -> bool {
        false
    }

    fn send(&mut self, _: SocketAddr, parts: &[IoSlice<'_>]) {
        for part in parts {
            self.bytes.extend_from_slice(part);
        }
        self.ends.push(self.bytes.len());
    }

    fn flush(&mut self) {}
}

struct App {
    object: [u8; 100],
    answered: u64,
}

impl Handler for App {
    type Body = u64;

    fn request(&mut self, _: Nanos, _: RequestId, payload: &[u8]) -> Outcome<u64> {
        Outcome::Reply(Reply::new(&payload[..16], Repeat::Reexecute).with_body(1))
    }

    fn gather(&self, _: u64) -> &[u8] {
        &self.object
    }

    fn release(&mut self, _: u64) {}

    fn completed(&mut self, _: Nanos, _: CallId, result: Result<Response<'_>, CallFailure>) {
        self.answered += u64::from(result.unwrap().len() == 116);
    }
}

struct Node {
    endpoint: Endpoint<u64>,
    app: App,
    wire: Wire,
    address: SocketAddr,
}

fn node(seed: u64, identity: Option<&Arc<Identity>>) -> Node {
    let config = Config::default();
    let mut endpoint = Endpoint::new(&config, seed);
    if let Some(identity) = identity {
        let random = sprat_key::random().unwrap();
        endpoint = endpoint.secured(&config, Credentials::new(Arc::clone(identity), &random, 1000));
    }
    Node {
        endpoint,
        app: App { object: [7; 100], answered: 0 },
        wire: Wire { bytes: Vec::new(), ends: Vec::new() },
        address: SocketAddr::from(([10, 0, 0, u8::try_from(seed).unwrap()], 1)),
    }
}

fn carry(now: Nanos, from: &mut Node, to: &mut Node) {
    from.endpoint.poll(now, &mut from.app, &mut from.wire);
    from.endpoint.flush(&mut from.wire);
    let mut start = 0;
    for &end in &from.wire.ends {
        to.endpoint.receive(
            now,
            from.address,
            &from.wire.bytes[start..end],
            &mut to.app,
            &mut to.wire,
        );
        start = end;
    }
    from.wire.bytes.clear();
    from.wire.ends.clear();
}

fn round(now: Nanos, client: &mut Node, server: &mut Node, session: SessionId, calls: usize) {
    let key = [3; 46];
    for _ in 0..calls {
        let deadline = now + Duration::from_secs(10);
        client
            .endpoint
            .call(now, session, &[&key[..16], &key[16..]], deadline, &mut client.wire)
            .unwrap();
    }
    carry(now, client, server);
    carry(now, server, client);
}

fn identity() -> Arc<Identity> {
    let terms =
        Terms { role: Role::Server, name: "one".into(), grants: Vec::new(), valid: (0, 1 << 40) };
    Arc::new(Root::generate().unwrap().issue(&terms).unwrap())
}

/// A client and a server with a session, and the current time.
fn open(identity: Option<&Arc<Identity>>) -> (Node, Node, SessionId, u64) {
    let (mut client, mut server) = (node(1, identity), node(2, identity));
    let session = client.endpoint.connect(Nanos(0), server.address, &mut client.wire).unwrap();
    for now in 1..4 {
        carry(Nanos(now), &mut client, &mut server);
        carry(Nanos(now), &mut server, &mut client);
    }
    assert!(client.endpoint.is_open(session));
    (client, server, session, 1000)
}

fn small_call(criterion: &mut Criterion) {
    let identity = identity();
    let mut group = criterion.benchmark_group("small_call");
    for (name, identity) in [("", None), ("sealed_", Some(&identity))] {
        for calls in [1, 16] {
            let (mut client, mut server, session, mut now) = open(identity);
            group.throughput(Throughput::Elements(calls as u64));
            group.bench_function(format!("{name}in_flight_{calls}"), |bencher| {
                bencher.iter(|| {
                    now += 5_000;
                    round(Nanos(now), &mut client, &mut server, session, black_box(calls));
                });
            });
            assert!(client.app.answered > 0 && client.endpoint.counters().failed == 0);
        }
    }
    group.bench_function("handshake_of_both_ends", |bencher| {
        bencher.iter(|| open(black_box(Some(&identity))).3);
    });
    let (mut server, mut rubbish) = (node(2, Some(&identity)), [9; 512]);
    (rubbish[0], rubbish[1]) = (0xc1, 1);
    rubbish[2..4].fill(0);
    let stranger = SocketAddr::from(([10, 0, 0, 9], 1));
    group.bench_function("first_message_of_a_stranger", |bencher| {
        bencher.iter(|| {
            server.endpoint.receive(
                Nanos(5),
                stranger,
                black_box(&rubbish),
                &mut server.app,
                &mut server.wire,
            );
        });
    });
    assert!(server.wire.ends.is_empty() && server.endpoint.counters().strangers > 0);
    group.finish();
}

criterion_group!(benches, small_call);
criterion_main!(benches);
