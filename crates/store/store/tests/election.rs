//! Elections in virtual time: several coordinators over one register, modelled in a few lines.

use sprat_net::Nanos;
use sprat_store::coordinator::election::{
    Election, ElectionAction, HEARTBEAT, LEADER_LEASE, LeaderRecord, PING, PingReply, SETTLE,
    SILENCE, TAKEOVER_GRACE,
};
use sprat_store::coordinator::{DRIFT, LEASE};
use std::time::Duration;

const STEP: Duration = Duration::from_millis(1);

/// Models etcd.
#[derive(Default)]
struct Register {
    revision: u64,
    leader: Option<LeaderRecord>,
}

struct Candidate {
    election: Election,
    down: bool,
    paused: bool,
    /// Whether the candidate cannot reach the register.
    blind: bool,
    /// Whether the candidate cannot reach the other coordinators.
    deaf: bool,
}

struct World {
    now: Nanos,
    register: Register,
    all: Vec<Candidate>,
}

impl World {
    fn new(count: usize) -> Self {
        let one = |index: usize| Candidate {
            election: Election::new(index as u64 + 1, format!("tcp:host=10.0.0.{index},port=1")),
            down: false,
            paused: false,
            blind: false,
            deaf: false,
        };
        Self { now: Nanos(0), register: Register::default(), all: (0..count).map(one).collect() }
    }

    fn valid(&self, index: usize) -> bool {
        self.now < self.all[index].election.valid_until()
    }

    /// Returns the coordinators that may act as leaders now.
    fn leaders(&self) -> Vec<usize> {
        (0..self.all.len()).filter(|&index| !self.all[index].down && self.valid(index)).collect()
    }

    fn step(&mut self, index: usize) {
        if self.all[index].down || self.all[index].paused {
            return;
        }
        let now = self.now;
        let blind = self.all[index].blind;
        match self.all[index].election.next(now) {
            ElectionAction::Read => {
                let found = (!blind).then(|| self.register.leader.clone());
                self.all[index].election.read(now, now, found);
            }
            ElectionAction::Claim { over } => {
                let (life, locator) = self.all[index].election.identity();
                let (life, locator) = (life, locator.to_owned());
                let fits = self.register.leader.as_ref().map_or(0, |leader| leader.term) == over;
                let outcome = (!blind).then(|| {
                    fits.then(|| {
                        self.register.revision += 1;
                        let term = self.register.revision;
                        self.register.leader = Some(LeaderRecord { term, life, locator });
                        term
                    })
                });
                self.all[index].election.claimed(now, now, outcome);
            }
            ElectionAction::Ping { locator } => {
                let at =
                    self.all.iter().position(|one| one.election.identity().1 == locator).unwrap();
                let heard = !self.all[at].down
                    && !self.all[at].paused
                    && !self.all[at].deaf
                    && !self.all[index].deaf;
                let term = self.all[at].election.term().filter(|_| self.valid(at));
                let reply =
                    heard.then(|| PingReply { leads: term.is_some(), term: term.unwrap_or(0) });
                self.all[index].election.pinged(now, reply);
            }
            ElectionAction::WaitUntil(until) => assert!(until > now, "a wait that is over"),
        }
    }

    /// Lets time pass. Each coordinator takes at most one action a millisecond.
    fn run(&mut self, lasts: Duration) {
        let until = self.now + lasts;
        while self.now < until {
            self.now = self.now + STEP;
            (0..self.all.len()).for_each(|index| self.step(index));
        }
    }
}

#[test]
fn one_leader_is_elected_and_stays() {
    let mut world = World::new(3);
    world.run(Duration::from_millis(10));
    assert_eq!(world.leaders(), [0]);
    world.run(Duration::from_secs(60));
    assert_eq!((world.leaders(), world.register.revision), (vec![0], 1));
    assert_eq!(world.all[2].election.leader().unwrap().term, 1);
}

#[test]
fn a_silent_leader_is_replaced_within_a_fraction_of_a_lease() {
    let mut world = World::new(3);
    world.run(Duration::from_secs(1));
    world.all[0].down = true;
    world.run(SILENCE + PING + 3 * STEP);
    assert_eq!(
        (world.leaders(), world.register.revision),
        (vec![1], 2),
        "one server leads, after one claim"
    );
    assert!(SILENCE + PING + 3 * STEP < LEASE / 3);
    // The old leader restarts as a follower.
    world.all[0].down = false;
    world.all[0].election = Election::new(9, "tcp:host=10.0.0.0,port=1".into());
    world.run(Duration::from_secs(20));
    assert_eq!((world.leaders(), world.register.revision), (vec![1], 2));
}

#[test]
fn a_suspended_leader_learns_that_it_was_deposed() {
    let mut world = World::new(2);
    world.run(Duration::from_secs(1));
    world.all[0].paused = true;
    world.run(Duration::from_millis(300));
    assert_eq!(world.register.revision, 2);
    // For some time both coordinators may act as leaders. `TAKEOVER_GRACE` covers that time.
    assert!(world.valid(0) && world.valid(1));
    world.all[0].paused = false;
    world.run(HEARTBEAT + STEP);
    assert_eq!(world.leaders(), [1]);
    world.run(Duration::from_secs(20));
    assert_eq!((world.leaders(), world.register.revision), (vec![1], 2));
}

#[test]
fn takeover_grace_outlasts_the_leases_of_the_deposed_leader() {
    let mut world = World::new(2);
    world.run(Duration::from_secs(1));
    (world.all[0].blind, world.all[0].deaf) = (true, true);
    let taken = loop {
        world.run(STEP);
        if world.all[1].election.term().is_some() {
            break world.now;
        }
    };
    while world.valid(0) {
        world.run(STEP);
    }
    let last = world.now.since(taken);
    assert!(
        last > LEADER_LEASE - HEARTBEAT - Duration::from_millis(200),
        "it was valid for long: {last:?}"
    );
    // The last lease that the old leader can grant ends before the new leader declares any server
    // dead, even if the clocks of the two leaders differ in speed.
    assert!(last + LEASE + (last + LEASE) / DRIFT < TAKEOVER_GRACE);
}

#[test]
fn a_leader_without_the_register_leads_until_its_lease_ends() {
    let mut world = World::new(2);
    world.run(Duration::from_secs(1));
    world.all.iter_mut().for_each(|one| one.blind = true);
    world.run(LEADER_LEASE - HEARTBEAT - Duration::from_millis(200));
    assert_eq!(world.leaders(), [0], "a short silence of etcd's is not noticed");
    world.run(Duration::from_secs(5));
    assert!(world.leaders().is_empty(), "none can know that it leads");
    world.all.iter_mut().for_each(|one| one.blind = false);
    world.run(Duration::from_secs(1));
    assert_eq!(world.leaders().len(), 1);
}

#[test]
fn a_leader_that_alone_lost_the_register_is_replaced() {
    let mut world = World::new(2);
    world.run(Duration::from_secs(1));
    world.all[0].blind = true;
    world.run(LEADER_LEASE + SILENCE + Duration::from_millis(100));
    assert_eq!(world.leaders(), [1], "the old leader no longer claims to lead");
}

#[test]
fn a_leader_that_reads_metadata_is_replaced_only_after_settle() {
    let mut world = World::new(2);
    world.run(Duration::from_secs(1));
    let mut follower = Election::new(7, "tcp:host=10.0.0.7,port=1".into());
    let reply = |leads| Some(PingReply { leads, term: if leads { 1 } else { 0 } });
    let mut now = world.now;
    follower.read(now, now, Some(world.register.leader.clone()));
    let begun = now;
    let replaced = loop {
        match follower.next(now) {
            ElectionAction::Ping { .. } => follower.pinged(now, reply(false)),
            ElectionAction::Claim { over } => break (over, now.since(begun)),
            ElectionAction::WaitUntil(_) => {}
            ElectionAction::Read => panic!("it was read"),
        }
        now = now + STEP;
    };
    assert_eq!(replaced.0, 1);
    assert!(replaced.1 >= SETTLE && replaced.1 < SETTLE + 2 * SILENCE, "{replaced:?}");
}

#[test]
fn a_suspended_follower_does_not_take_over() {
    let mut world = World::new(2);
    world.run(Duration::from_secs(1));
    world.all[1].paused = true;
    world.run(Duration::from_secs(1));
    world.all[1].paused = false;
    world.run(Duration::from_secs(1));
    assert_eq!((world.leaders(), world.register.revision), (vec![0], 1));
}

#[test]
fn takeovers_become_rarer_when_pings_are_lost() {
    let mut world = World::new(2);
    world.run(Duration::from_secs(1));
    world.all[1].deaf = true;
    world.run(Duration::from_secs(10));
    let first = world.register.revision;
    world.run(Duration::from_secs(60));
    let later = (world.register.revision - first) / 6;
    assert!(first < 15 && later <= 7, "{first} changes in the first 10 s, then {later} in each");
    world.all[1].deaf = false;
    world.run(Duration::from_secs(20));
    let calm = world.register.revision;
    world.run(Duration::from_secs(60));
    assert_eq!(world.register.revision, calm);
}

#[test]
fn a_claim_with_unknown_outcome_is_repeated() {
    let mut election = Election::new(5, "tcp:host=10.0.0.5,port=1".into());
    let mut now = Nanos(0);
    assert_eq!(election.next(now), ElectionAction::Read);
    election.read(now, now, Some(None));
    assert_eq!(election.next(now), ElectionAction::Claim { over: 0 });
    election.claimed(now, now, None);
    assert!(
        matches!(election.next(now), ElectionAction::WaitUntil(_))
            && election.valid_until() == Nanos(0)
    );
    now = now + Duration::from_secs(1);
    assert_eq!(election.next(now), ElectionAction::Read);
    // The claim whose outcome was unknown had been executed. The coordinator claims another term,
    // to fence the changes that were under way in this one.
    let leader = LeaderRecord { term: 4, life: 5, locator: "tcp:host=10.0.0.5,port=1".into() };
    election.read(now, now, Some(Some(leader)));
    assert_eq!((election.term(), election.next(now)), (None, ElectionAction::Claim { over: 4 }));
    election.claimed(now, now, Some(Some(6)));
    assert_eq!(election.term(), Some(6));
    election.resigned(now, 5);
    assert_eq!(election.term(), Some(6), "another term was resigned");
    election.resigned(now, 6);
    assert_eq!((election.term(), election.next(now)), (None, ElectionAction::Read));
}

#[test]
fn a_lease_counts_from_when_the_read_was_sent() {
    let mut election = Election::new(5, "tcp:host=10.0.0.5,port=1".into());
    let (sent, answered) = (Nanos(0), Nanos(0) + Duration::from_millis(900));
    election.read(sent, sent, Some(None));
    election.claimed(sent, answered, Some(Some(1)));
    assert_eq!(election.valid_until(), sent + (LEADER_LEASE - LEADER_LEASE / DRIFT));
    let leader = LeaderRecord { term: 1, life: 5, locator: "tcp:host=10.0.0.5,port=1".into() };
    let (asked, later) = (answered + HEARTBEAT, answered + HEARTBEAT + Duration::from_millis(900));
    assert_eq!(election.next(asked), ElectionAction::Read);
    election.read(asked, later, Some(Some(leader)));
    assert_eq!(election.valid_until(), asked + (LEADER_LEASE - LEADER_LEASE / DRIFT));
}

#[test]
fn a_leader_that_has_to_confirm_reads_the_register_at_once() {
    let mut election = Election::new(5, "tcp:host=10.0.0.5,port=1".into());
    let now = Nanos(0);
    election.read(now, now, Some(None));
    election.claimed(now, now, Some(Some(1)));
    assert_eq!(election.next(now), ElectionAction::WaitUntil(now + HEARTBEAT));
    let now = now + Duration::from_millis(1);
    election.confirm();
    assert_eq!(election.next(now), ElectionAction::Read);
    election.read(now, now, None);
    let ElectionAction::WaitUntil(again) = election.next(now) else { panic!("it does not wait") };
    assert_eq!(election.next(again), ElectionAction::Read, "the register did not answer");
    let leader = LeaderRecord { term: 1, life: 5, locator: "tcp:host=10.0.0.5,port=1".into() };
    election.read(again, again, Some(Some(leader)));
    assert_eq!(election.next(again), ElectionAction::WaitUntil(again + HEARTBEAT));
}

#[test]
fn a_leader_record_round_trips() {
    let value = LeaderRecord::encode(0xfeed, "tcp:host=::1,port=2");
    let leader = LeaderRecord { term: 3, life: 0xfeed, locator: "tcp:host=::1,port=2".into() };
    assert_eq!(LeaderRecord::parse(3, &value), Some(leader));
    for nonsense in [&b""[..], b"feed", b"nobody here", b"\xff\xff 1"] {
        assert_eq!(LeaderRecord::parse(3, nonsense), None);
    }
    assert_eq!(LeaderRecord::parse(0, &value), None, "what was never written has no term");
}
