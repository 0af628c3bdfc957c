//! Tests changes that are refused, and plans. Neither needs a server.

use sprat_plan::Spec;
use sprat_provision::{Members, RingState};
use sprat_rack::hosts;
use sprat_ring::{
    Deployment, Ended, Event, Location, Machines, Removal, Watcher, add, remove, replace, rolling,
};
use std::io;
use std::path::Path;

/// A watcher for calls that reach no server, and so report no events.
struct Silent;

impl Watcher for Silent {
    fn event(&mut self, event: Event<'_>) -> io::Result<()> {
        panic!("no step was expected: {event:?}")
    }

    fn is_stopped(&mut self) -> bool {
        false
    }
}

/// Makes six servers with two instances of Cassandra each. `remembered` sets which of the instances
/// are on the ring. Their addresses are in the loopback network, so that a test that connects by
/// mistake does not leave this machine.
fn rack(folder: &Path, remembered: impl FnOnce(&mut Members)) -> Deployment {
    let ready = sprat_plan::racks::ready("cassandra-6").expect("an example of the crate");
    let mut spec = Spec::from_toml(ready.toml).expect("an example of the crate");
    spec.addresses.v4 = "127.77.0.0/16".parse().expect("a network");
    let location =
        Location { folder: folder.to_owned(), machines: Machines::Servers, ansible: None };
    let deployment = Deployment::open("cassandra-6", spec.clone(), &location).unwrap();
    let mut members = Members::founding(&hosts(&deployment.plan));
    remembered(&mut members);
    members.write(&deployment.folder).unwrap();
    Deployment::open("cassandra-6", spec, &location).unwrap()
}

fn removal(name: &str) -> Removal<'_> {
    Removal { name, gone: false, purge: false, check: false }
}

#[test]
fn a_check_of_newcomers_gives_their_tokens_and_shares_and_writes_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let mut rack = rack(folder.path(), |members| drop(members.instances.remove("c0-n6-i2")));
    let before = std::fs::read(folder.path().join("members.json")).unwrap();
    let Ended::Done(added) = add(&mut rack, &[], Path::new("nowhere"), true, &mut Silent).unwrap()
    else {
        panic!("nothing stopped it")
    };
    let [newcomer] = &added.joined[..] else { panic!("one was missing: {added:?}") };
    assert_eq!(newcomer.name, "c0-n6-i2");
    assert!(!newcomer.tokens.is_empty());
    assert!((0.05..0.12).contains(&newcomer.share), "about a twelfth: {}", newcomer.share);
    assert_eq!(std::fs::read(folder.path().join("members.json")).unwrap(), before);
}

#[test]
fn names_that_no_server_or_instance_has_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let mut rack = rack(folder.path(), |_| {});
    let names = ["c9-n9".to_owned()];
    let error = add(&mut rack, &names, Path::new("nowhere"), true, &mut Silent).unwrap_err();
    assert!(
        error.to_string().starts_with("c9-n9: the description has no such server or instance"),
        "{error}"
    );
    let error = remove(&mut rack, removal("c0-n"), &mut Silent).unwrap_err();
    assert!(
        error.to_string().starts_with("c0-n: the ring has no such server or instance"),
        "{error}"
    );
}

#[test]
fn an_instance_that_has_left_is_not_removed_again() {
    let folder = tempfile::tempdir().unwrap();
    let mut rack = rack(folder.path(), |members| {
        for name in ["c0-n6-i1", "c0-n6-i2"] {
            members.instances.remove(name);
            members.away.insert(name.to_owned());
        }
    });
    for name in ["c0-n6", "c0-n6-i1"] {
        let Ended::Done(removed) = remove(&mut rack, removal(name), &mut Silent).unwrap() else {
            panic!("nothing stopped it")
        };
        assert_eq!((removed.left.len(), removed.stay), (0, 10), "{name}");
    }
}

#[test]
fn a_change_that_is_half_done_keeps_others_from_beginning() {
    let folder = tempfile::tempdir().unwrap();
    let set =
        |members: &mut Members, state| members.instances.get_mut("c0-n2-i1").unwrap().state = state;
    let mut leaving = rack(folder.path(), |members| set(members, RingState::Leaving));
    let jars = Path::new("nowhere");
    for error in [
        add(&mut leaving, &[], jars, false, &mut Silent).unwrap_err(),
        replace(&leaving, "c0-n1-i1", jars, &mut Silent).unwrap_err(),
        rolling(&leaving, sprat_ring::Rolling::Config, jars, &[], false, &mut Silent).unwrap_err(),
        leaving.up(jars, false, None, &mut Silent).unwrap_err(),
        remove(&mut leaving, removal("c0-n1"), &mut Silent).unwrap_err(),
    ] {
        assert!(error.to_string().starts_with("c0-n2-i1 is leaving"), "{error}");
    }
    let mut joining = rack(folder.path(), |members| set(members, RingState::Joining));
    let error = remove(&mut joining, removal("c0-n1"), &mut Silent).unwrap_err();
    assert!(
        error.to_string().starts_with("c0-n2-i1 is joining: continue with `sprat rack add` of it"),
        "{error}"
    );
}

/// Without this check, the list that was read before would overwrite what another process has
/// written since.
#[test]
fn a_rack_that_has_changed_since_it_was_opened_cannot_be_locked() {
    let folder = tempfile::tempdir().unwrap();
    let stale = rack(folder.path(), |_| {});
    drop(stale.lock().unwrap());
    let fresh = rack(folder.path(), |members| drop(members.instances.remove("c0-n6-i1")));
    let error = stale.lock().unwrap_err();
    assert!(error.to_string().contains("another run has just changed the ring"), "{error}");
    let _held = fresh.lock().unwrap();
    let error = fresh.lock().unwrap_err();
    assert!(error.to_string().contains("another run is changing this rack"), "{error}");
}
