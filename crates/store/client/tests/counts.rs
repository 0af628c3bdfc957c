//! Counts of tables whose tablets are with several servers, move, and come back.

use crate::world::{LIVELY, OTHER, PATIENCE, SILENT, World};
use sprat_client::Error;
use sprat_wire::op::{Answer, Records, Request, Status};
use std::time::Duration;

/// Objects and bytes of a count, or why there is none.
type Counted = Result<(u64, u64), Error>;

impl World {
    /// Begins to count table 0.
    fn begin_count(&mut self, tag: u64, patience: Duration) {
        let request = Request::TableStats { table: 0 };
        self.core.submit(self.now, tag, &request, self.now + patience).expect("a known table");
    }

    /// Runs the world until at least one count has ended, for at most `limit`. Returns the counts
    /// that have ended, with their tags.
    fn run(&mut self, limit: Duration) -> Vec<(u64, Counted)> {
        let until = self.now + limit;
        let mut ended = Vec::new();
        while ended.is_empty() && self.now < until {
            self.step();
            let sink = &mut |tag, answer: Result<Answer<'_>, Error>| {
                let count = |answer: Answer<'_>| {
                    assert_eq!(answer.status, Status::Ok);
                    (answer.number, Records::new(answer.body).named("bytes").expect("bytes"))
                };
                ended.push((tag, answer.map(count)));
            };
            self.core.poll(self.now, sink).expect("the driver works");
        }
        ended
    }

    fn count(&mut self) -> Counted {
        self.begin_count(1, PATIENCE);
        let mut ended = self.run(2 * PATIENCE);
        assert_eq!((ended.len(), self.core.pending()), (1, 0));
        ended.remove(0).1
    }
}

#[test]
fn a_count_is_the_sum_of_all_servers_each_asked_once() {
    let mut world = World::new();
    world.place(&[LIVELY, OTHER, LIVELY]);
    assert_eq!(world.count(), Ok((7, 700)));
}

#[test]
fn what_was_moved_since_the_client_last_asked_is_counted() {
    let mut world = World::new();
    world.place(&[LIVELY]);
    assert_eq!(world.count(), Ok((3, 300)));
    // The first server still has a tablet, and reports no error for the tablet that it gave away.
    world.place(&[LIVELY, OTHER]);
    assert_eq!(world.count(), Ok((7, 700)));
}

#[test]
fn a_count_begins_again_when_a_tablet_moves_or_its_server_fails() {
    let mut world = World::new();
    world.place(&[LIVELY, SILENT]);
    world.begin_count(1, PATIENCE);
    assert_eq!(world.run(Duration::from_millis(200)), [], "one server is silent");
    world.place(&[LIVELY, 0]);
    assert_eq!(world.run(Duration::from_millis(600)), [], "a tablet has no server");
    world.place(&[OTHER]);
    assert_eq!(world.run(Duration::from_millis(100)), [(1, Ok((4, 400)))]);
    assert_eq!(world.core.pending(), 0);
}

#[test]
fn a_count_ends_at_its_deadline_and_says_what_it_lacks() {
    let mut world = World::new();
    world.place(&[LIVELY, SILENT]);
    let silent = "10.0.0.1:2".to_owned();
    assert_eq!(world.count(), Err(Error::Timeout { server: silent, waited: PATIENCE }));
    world.place(&[LIVELY, 0]);
    assert_eq!(world.count(), Err(Error::Recovering { table: 0, waited: PATIENCE }));
}

#[test]
fn counts_at_the_same_time_do_not_mix() {
    let mut world = World::new();
    world.place(&[LIVELY, OTHER]);
    (1..=64).for_each(|tag| world.begin_count(tag, PATIENCE));
    let request = Request::TableStats { table: 0 };
    let another = world.core.submit(world.now, 65, &request, world.now + PATIENCE);
    assert_eq!(another, Err(Error::TooManyPending(64)));
    let mut ended = Vec::new();
    while world.core.pending() > 0 {
        ended.extend(world.run(PATIENCE));
    }
    ended.sort_unstable_by_key(|&(tag, _)| tag);
    assert_eq!(ended, (1..=64).map(|tag| (tag, Ok((7, 700)))).collect::<Vec<_>>());
}
