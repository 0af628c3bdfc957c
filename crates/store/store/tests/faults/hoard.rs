//! Clients that take none of the replies to their requests must not keep the server from serving
//! other clients.

use crate::faults::world::{TABLE, World, address, master};
use sprat_disk::MemControl;
use sprat_net::{Driver as _, Nanos};
use sprat_rpc::{Config, Endpoint, NoHandler};
use sprat_store::backup::Durability;
use sprat_store::master::Master;
use sprat_wire::op::{Condition, Request, Status};
use zerocopy::IntoBytes as _;

/// Number of sessions of the client that takes no replies, and number of calls in each session.
/// Together they have more replies than the server may hold.
const SESSIONS: usize = 300;
const CALLS: usize = 32;

/// Bytes of a reply: more than fits in a frame, so that the server keeps the reply until the client
/// has taken all of it.
const LONG: usize = 9500;

fn figure(world: &mut World<Master<sprat_disk::MemDisk>>, name: &str) -> u64 {
    let counters = world.node.service_mut().counters();
    counters.iter().find(|(known, _)| *known == name).expect("a counter").1
}

#[test]
fn clients_that_take_no_answers_do_not_block_others() {
    let read = Request::Read { table: TABLE, key: b"long" };
    let scan = Request::Scan { table: TABLE, after: None };
    for (hoarded, counter) in [(&read, "values_pinned"), (&scan, "answers_made")] {
        let control = MemControl::new(1);
        let (master, _outbox) = master(&control, Durability::Buffered).expect("it opens");
        let mut world = World::new(master, Some(control.clone()));
        let value = vec![7; LONG];
        for (key, value) in [(&b"long"[..], &value[..]), (&b"short"[..], &b"1"[..])] {
            let put =
                Request::Write { table: TABLE, key, value, condition: Condition::None, ttl: None };
            assert_eq!(world.ask(&put).status, Status::Ok);
        }
        let mut driver = world.port(3);
        let mut endpoint = Endpoint::<()>::new(&Config::default(), 3);
        let connect = |_| endpoint.connect(Nanos(0), address(1), driver.tx()).expect("a session");
        let sessions: Vec<_> = (0..SESSIONS).map(connect).collect();
        endpoint.flush(driver.tx());
        world.turn();
        let now = world.now;
        driver
            .receive(&mut |tx, from, frame| endpoint.receive(now, from, frame, &mut NoHandler, tx))
            .expect("memory");
        let (header, key, value) = hoarded.parts();
        for &session in &sessions {
            for _ in 0..CALLS {
                let parts = [header.as_bytes(), key, value];
                endpoint.call(now, session, &parts, Nanos::NEVER, driver.tx()).expect("a slot");
            }
        }
        endpoint.flush(driver.tx());
        for _ in 0..200 {
            world.turn();
        }
        let held = figure(&mut world, counter);
        assert!(held > 4000, "the hoarder holds all replies that it may: {held}");
        assert!(figure(&mut world, "shares_refused_total") > 0);
        assert_eq!(
            figure(&mut world, "shares_scarce"),
            1,
            "the metrics show that replies are scarce"
        );
        for _ in 0..50 {
            assert_eq!(world.ask(&Request::Read { table: TABLE, key: b"short" }).body, b"1");
            assert_eq!(world.ask(&read).body.len(), LONG);
            assert_eq!(world.ask(&scan).status, Status::Ok);
            let put = Request::Write {
                table: TABLE,
                key: b"short",
                value: b"1",
                condition: Condition::None,
                ttl: None,
            };
            assert_eq!(world.ask(&put).status, Status::Ok);
        }
        // After a long silence the server closes the sessions and drops their replies.
        for _ in 0..120_000 {
            world.turn();
        }
        assert_eq!((figure(&mut world, counter), figure(&mut world, "shares_scarce")), (0, 0));
    }
}
