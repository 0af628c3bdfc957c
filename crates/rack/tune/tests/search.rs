//! Tunes simulated racks. Changes that help are kept, other changes are undone, and undoing works
//! after any failure.

use proptest::prelude::*;
use sprat_tune::{
    Candidate, Change, Class, Journal, Measured, Overlay, Subject, TrialState, TuneError,
    TuneEvent, run, undo,
};
use std::collections::BTreeMap;

/// A rack whose latency is a product of factors of its settings.
#[derive(Clone, Debug, PartialEq)]
struct World {
    files: BTreeMap<String, String>,
    overlay: Overlay,
}

struct Rack<'a> {
    world: &'a mut World,
    /// Factor of a setting, `path = value`, on latency.
    factors: &'a BTreeMap<String, f64>,
    /// Factors by which measurements err, one for each measurement. After the last factor, the
    /// first is used again.
    noise: Vec<f64>,
    measured: usize,
    /// Number of calls after which everything fails.
    fails_after: usize,
    calls: usize,
    /// Number of measurements after which tuning is asked to stop.
    stops_at: usize,
    /// Each measurement after the first since the instances started multiplies latency by this
    /// factor, because instances get faster while they run.
    warmth: f64,
    /// Measurements since instances started.
    age: i32,
}

impl<'a> Rack<'a> {
    fn new(world: &'a mut World, factors: &'a BTreeMap<String, f64>) -> Self {
        Self {
            world,
            factors,
            noise: vec![1.0],
            measured: 0,
            fails_after: usize::MAX,
            calls: 0,
            stops_at: usize::MAX,
            warmth: 1.0,
            age: 0,
        }
    }

    fn call(&mut self) -> Result<(), String> {
        self.calls += 1;
        if self.calls > self.fails_after { Err("it is gone".to_owned()) } else { Ok(()) }
    }
}

impl Subject for Rack<'_> {
    fn present(&mut self, change: &Change) -> Result<Change, String> {
        self.call()?;
        Ok(match change {
            Change::Host { host, path, .. } => Change::Host {
                host: host.clone(),
                path: path.clone(),
                value: self.world.files[path].clone(),
            },
            Change::Instances(_) => Change::Instances(self.world.overlay.clone()),
            Change::Table { .. } => return Err("no tables here".to_owned()),
        })
    }

    fn apply(&mut self, changes: &[Change]) -> Result<(), String> {
        for change in changes {
            self.call()?;
            match change {
                Change::Host { value, .. } if value == "refused" => {
                    return Err("refused".to_owned());
                }
                Change::Host { path, value, .. } => {
                    _ = self.world.files.insert(path.clone(), value.clone())
                }
                Change::Instances(overlay) => (self.world.overlay, self.age) = (overlay.clone(), 0),
                Change::Table { .. } => return Err("no tables here".to_owned()),
            }
        }
        Ok(())
    }

    fn restart_instances(&mut self) -> Result<(), String> {
        self.age = 0;
        self.call()
    }

    fn measure(&mut self) -> Result<Measured, String> {
        self.call()?;
        let heap = self.world.overlay.heap_mib.map(|heap| format!("heap = {heap}"));
        let all =
            self.world.files.iter().map(|(path, value)| format!("{path} = {value}")).chain(heap);
        let score: f64 = all.filter_map(|setting| self.factors.get(&setting)).product();
        self.measured += 1;
        self.age += 1;
        let score =
            score * self.noise[self.measured % self.noise.len()] * self.warmth.powi(self.age - 1);
        Ok(Measured { score, ..Measured::default() })
    }

    fn stopped(&self) -> bool {
        self.measured >= self.stops_at
    }

    fn notify(&mut self, _: &TuneEvent<'_>) {}
}

fn host(number: usize, class: Class, value: &str) -> Candidate {
    let change = Change::Host {
        host: "c0-n1".to_owned(),
        path: format!("/sys/{number}"),
        value: value.to_owned(),
    };
    Candidate {
        class,
        proposed: value.to_owned(),
        present: "old".to_owned(),
        why: "",
        changes: vec![change],
    }
}

fn heap(heap: u64) -> Candidate {
    let overlay = Overlay { heap_mib: Some(heap), ..Overlay::default() };
    let changes = vec![Change::Instances(overlay)];
    Candidate {
        class: Class::Collector,
        proposed: heap.to_string(),
        present: String::new(),
        why: "",
        changes,
    }
}

fn world(files: usize) -> World {
    let files = (0..files).map(|number| (format!("/sys/{number}"), "old".to_owned())).collect();
    World { files, overlay: Overlay::default() }
}

fn states(journal: &Journal) -> Vec<TrialState> {
    journal.entries.iter().map(|entry| entry.state.clone()).collect()
}

#[test]
fn changes_that_help_are_kept_and_others_undone() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = Journal::open(folder.path()).expect("none yet");
    let before = world(3);
    let mut now = before.clone();
    let factors =
        [("/sys/0 = new", 0.5), ("/sys/1 = new", 0.98), ("heap = 512", 0.4), ("heap = 1024", 0.9)]
            .map(|(setting, factor)| (setting.to_owned(), factor))
            .into();
    let all = [
        heap(512),
        heap(1024),
        host(0, Class::ReadAhead, "new"),
        host(1, Class::Scheduler, "new"),
        host(1, Class::Network, "new"),
        host(2, Class::Limits, "refused"),
    ];
    run(&mut Rack::new(&mut now, &factors), &mut journal, &all).expect("it runs");
    let refused = TrialState::Failed("refused".to_owned());
    // An improvement of 2 % is noise: a change that must help is undone, and a change that must
    // only not hurt is kept.
    assert_eq!(
        states(&journal),
        [
            TrialState::Kept,
            TrialState::Undone,
            TrialState::Kept,
            TrialState::Undone,
            TrialState::Kept,
            refused
        ]
    );
    assert_eq!(now.overlay.heap_mib, Some(512));
    assert_eq!(now.files.values().collect::<Vec<_>>(), ["new", "new", "old"]);
    let (first, last) =
        (journal.before.expect("measured").score, journal.after.expect("measured").score);
    assert!((first / last - 1.0 / (0.4 * 0.5 * 0.98)).abs() < 1e-9, "{first} {last}");

    let mut again = Journal::open(folder.path()).expect("it was written down");
    assert_eq!(again, journal);
    undo(&mut Rack::new(&mut now, &factors), &mut again).expect("the way back");
    assert_eq!((now, again.entries.len()), (before, 0));
}

#[test]
fn noise_is_no_improvement() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = Journal::open(folder.path()).expect("none yet");
    let mut now = world(1);
    let factors = [("/sys/0 = new".to_owned(), 0.85)].into();
    let mut rack = Rack::new(&mut now, &factors);
    rack.noise = vec![1.0, 1.3];
    run(&mut rack, &mut journal, &[host(0, Class::ReadAhead, "new")]).expect("it runs");
    assert!(journal.margin > 0.29, "{}", journal.margin);
    assert_eq!(states(&journal), [TrialState::Undone]);
}

/// Instances are slow just after their start. This must count neither against a change that
/// restarts them, nor in favour of a change that does not.
#[test]
fn warm_instances_are_not_taken_for_faster() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = Journal::open(folder.path()).expect("none yet");
    let mut now = world(2);
    let factors = [("heap = 512".to_owned(), 0.7), ("/sys/1 = new".to_owned(), 0.7)].into();
    let mut rack = Rack::new(&mut now, &factors);
    rack.warmth = 0.5;
    let all =
        [host(0, Class::ReadAhead, "new"), heap(256), heap(512), host(1, Class::ReadAhead, "new")];
    run(&mut rack, &mut journal, &all).expect("it runs");
    assert_eq!(
        states(&journal),
        [TrialState::Undone, TrialState::Undone, TrialState::Kept, TrialState::Kept]
    );
    let (first, last) =
        (journal.before.expect("measured").score, journal.after.expect("measured").score);
    assert!((last / first - 0.49).abs() < 1e-9, "{first} {last}");
}

#[test]
fn an_interrupted_candidate_is_undone() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut journal = Journal::open(folder.path()).expect("none yet");
    let mut now = world(2);
    let factors = [("/sys/0 = new".to_owned(), 0.5), ("/sys/1 = new".to_owned(), 0.5)].into();
    let mut rack = Rack::new(&mut now, &factors);
    rack.stops_at = 4; // two measurements before, one of the first change, one of the second
    let all = [0, 1].map(|number| host(number, Class::ReadAhead, "new"));
    run(&mut rack, &mut journal, &all).expect("it ends");
    assert_eq!(states(&journal), [TrialState::Kept, TrialState::Undone]);
    assert_eq!(now.files.values().collect::<Vec<_>>(), ["new", "old"]);
}

proptest! {
    /// After a failure at any call, the journal has what a later run or an undo needs.
    #[test]
    fn undo_works_after_a_failure_at_any_call(
        helps in proptest::collection::vec(proptest::bool::ANY, 1..6),
        heaps in proptest::collection::vec(1_u64..5, 0..3),
        fails_after in 0_usize..60,
        goes_on in proptest::bool::ANY,
    ) {
        let folder = tempfile::tempdir().expect("a folder");
        let before = world(helps.len());
        let mut now = before.clone();
        let factor = |(at, helps): (usize, &bool)| {
            (format!("/sys/{at} = new"), if *helps { 0.5 } else { 2.0 })
        };
        let factors = helps.iter().enumerate().map(factor).collect();
        let mut all: Vec<_> = heaps.iter().map(|size| heap(*size)).collect();
        all.extend((0..helps.len()).map(|at| host(at, Class::ReadAhead, "new")));
        let mut rack = Rack::new(&mut now, &factors);
        rack.fails_after = fails_after;
        let mut journal = Journal::open(folder.path()).expect("none yet");
        let ended = run(&mut rack, &mut journal, &all);
        let known = matches!(ended, Ok(()) | Err(TuneError::Subject { .. }));
        prop_assert!(known);
        drop(journal);
        let mut journal = Journal::open(folder.path()).expect("it was written down");
        if goes_on {
            run(&mut Rack::new(&mut now, &factors), &mut journal, &all).expect(
                "nothing fails any \
                more",
            );
            prop_assert!(!states(&journal).contains(&TrialState::Trying));
            let expected: Vec<_> =
                helps.iter().map(|helps| if *helps { "new" } else { "old" }).collect();
            prop_assert_eq!(now.files.values().collect::<Vec<_>>(), expected);
        }
        undo(&mut Rack::new(&mut now, &factors), &mut journal).expect("the way back");
        prop_assert_eq!(now, before);
    }
}
