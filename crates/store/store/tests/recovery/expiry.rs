//! An object expires while its tablet is being recovered. An older version of it, which does not
//! expire, is read later: it must not come back.

use crate::recovery::segment::{GONE, Segment};
use crate::recovery::world::{SHORT_FRAME, TABLE, World};
use sprat_wire::entry::Kind;
use sprat_wire::op::{RecoveryOrder, Request, Status};
use sprat_wire::tablet::Tablet;
use std::time::Duration;

/// Time until the newer version expires, from the start of the servers' clocks. The recovery reads
/// that version earlier: as soon as the dead server's lease at the backups is over.
const EXPIRES: Duration = Duration::from_secs(1);

#[test]
fn an_older_version_of_an_expired_object_does_not_come_back() {
    let mut world = World::new(4, 1, 1);
    world.assign(1, &[], &[]);
    let mut first = Segment::begin(1);
    first.push((Kind::Object, TABLE, 1), b"key", &[b'o'; 2 * SHORT_FRAME]);
    first.keep(&mut world, 3, 1, true);
    let mut head = Segment::begin(2);
    let expires = EXPIRES.as_millis().try_into().expect("soon");
    head.push_expiring((TABLE, 2), b"key", b"newer", expires);
    head.keep(&mut world, 2, 2, false);
    let whole = Tablet::whole(TABLE);
    let tablets = vec![(whole, 0)];
    let order = RecoveryOrder { id: 1, master: GONE, min_open: 2, askers: 1, tablets };
    // The older version arrives when the newer one has expired.
    world.slow_down(3, EXPIRES);
    world.assign(1, &[], &[order]);
    world.recovered(1).expect("all is there");
    world.assign(1, &[whole], &[]);
    let read = Request::Read { table: TABLE, key: b"key" };
    assert_eq!(world.ask(1, &read, None), Err(Status::NotFound));
}
