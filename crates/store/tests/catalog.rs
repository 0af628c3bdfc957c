//! What a coordinator knows survives it, and its ids are never used twice.

use proptest::prelude::*;
use sprat_store::coordinator::{
    Catalog, MAX_TABLES, Metadata, MetadataError, MetadataFile, MetadataMemory, Owned, Refusal,
};
use sprat_wire::op::{TableRecord, push_counter};
use sprat_wire::tablet::{MAX_TABLETS, Range, Tablet};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

const HERE: &str = "tcp:host=127.0.0.1,port=1";

/// Metadata that outlive the catalog, and fail when told to.
#[derive(Clone, Default)]
struct Shared {
    memory: Rc<RefCell<MetadataMemory>>,
    failing: Rc<RefCell<bool>>,
}

impl Metadata for Shared {
    fn load(&self) -> Result<BTreeMap<String, Vec<u8>>, MetadataError> {
        self.memory.borrow().load()
    }

    fn apply(&mut self, changes: &[(String, Option<Vec<u8>>)]) -> Result<(), MetadataError> {
        if *self.failing.borrow() {
            return Err(MetadataError::new("test", "the disk is full"));
        }
        self.memory.borrow_mut().apply(changes)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Create(u8),
    Drop(u8),
    Enlist(u8),
    Reopen,
    Failing(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0u8..8).prop_map(Step::Create),
        3 => (0u8..8).prop_map(Step::Drop),
        1 => (0u8..4).prop_map(Step::Enlist),
        2 => Just(Step::Reopen),
        1 => any::<bool>().prop_map(Step::Failing),
    ]
}

proptest! {
    #[test]
    fn a_catalog_is_what_was_done_to_it(steps in prop::collection::vec(step(), 1..60)) {
        let shared = Shared::default();
        let mut catalog = Catalog::open(shared.clone(), 7).unwrap();
        let server = catalog.enlist(0, "tcp:host=127.0.0.1,port=1", 0).unwrap();
        let mut model: BTreeMap<String, u32> = BTreeMap::new();
        let mut used: BTreeSet<u32> = BTreeSet::new();
        let mut version = catalog.version();
        for step in steps {
            let failing = *shared.failing.borrow();
            match step {
                Step::Create(name) => {
                    let name = format!("table {name}");
                    match catalog.create(&name, 1, &[server]) {
                        Ok(table) if model.contains_key(&name) => prop_assert_eq!(table.id, model[&name]),
                        Ok(table) => {
                            prop_assert!(!failing && used.insert(table.id), "id {} is used again", table.id);
                            model.insert(name, table.id);
                        }
                        Err(refusal) => prop_assert!(failing && matches!(refusal, Refusal::Metadata(_))),
                    }
                }
                Step::Drop(name) => {
                    let name = format!("table {name}");
                    match catalog.drop_table(&name) {
                        Ok(dropped) => prop_assert_eq!(dropped.map(drop), model.remove(&name).map(drop)),
                        Err(_) => prop_assert!(failing),
                    }
                }
                Step::Enlist(port) => {
                    let enlisted = catalog.enlist(server, &format!("tcp:host=127.0.0.1,port={port}"), 0);
                    prop_assert!(failing || enlisted == Ok(server));
                }
                Step::Reopen => {
                    let Ok(again) = Catalog::open(shared.clone(), 8) else {
                        prop_assert!(failing);
                        continue;
                    };
                    prop_assert!(again.begun() > catalog.version());
                    prop_assert_eq!(again.cluster(), 7);
                    catalog = again;
                }
                Step::Failing(failing) => *shared.failing.borrow_mut() = failing,
            }
            prop_assert!(catalog.version() >= version);
            version = catalog.version();
            let known: BTreeMap<String, u32> = catalog.tables().map(|table| (table.name, table.id)).collect();
            prop_assert_eq!(&known, &model);
        }
    }
}

#[test]
fn a_table_needs_a_server_and_there_is_a_limit() {
    let mut catalog = Catalog::open(MetadataMemory::default(), 1).unwrap();
    assert_eq!(catalog.create("a", 1, &[]), Err(Refusal::NoServer));
    for number in 0..MAX_TABLES {
        catalog.create(&format!("table {number}"), 1, &[1]).unwrap();
    }
    assert!(matches!(catalog.create("one more", 1, &[1]), Err(Refusal::Limit(_))));
}

#[test]
fn tables_go_to_whom_serves_the_fewest() {
    let mut catalog = Catalog::open(MetadataMemory::default(), 1).unwrap();
    let create = |n| catalog.create(&format!("table {n}"), 1, &[1, 2]).unwrap().tablets[0].server;
    let served: Vec<u32> = (0..4).map(create).collect();
    assert_eq!(served, [1, 2, 1, 2]);
}

#[test]
fn a_table_is_spread_over_servers_whose_log_others_keep() {
    let mut catalog = Catalog::open(MetadataMemory::default(), 1).unwrap();
    let enlist = |catalog: &mut Catalog<_>, copies| catalog.enlist(0, HERE, copies).unwrap();
    let alone = enlist(&mut catalog, 0);
    assert_eq!(catalog.create("a", 0, &[alone]).unwrap().tablets.len(), 1);
    assert!(matches!(catalog.create("b", 2, &[alone]), Err(Refusal::Limit(_))), "its log is its own");
    let all = [alone, enlist(&mut catalog, 2), enlist(&mut catalog, 2), enlist(&mut catalog, 2)];
    let servers = |table: TableRecord| table.tablets.iter().map(|tablet| tablet.server).collect::<Vec<_>>();
    assert_eq!(servers(catalog.create("c", 0, &all).unwrap()), [2, 3, 4]);
    assert_eq!(servers(catalog.create("d", 5, &all).unwrap()), [2, 3, 4, 2, 3]);
    assert_eq!(servers(catalog.create("e", 1, &all).unwrap()), [4], "it has the fewest");
    assert_eq!(catalog.create("f", 5000, &all).unwrap().tablets.len(), MAX_TABLETS);
}

proptest! {
    /// By samples of positions: each is with whoever took it last, as long as it was taken from whoever had it.
    #[test]
    fn tablets_are_with_whom_took_them(
        count in 1_usize..9,
        steps in prop::collection::vec((2_u32..6, 2_u32..6, prop::collection::vec((any::<u64>(), any::<u64>()), 0..4)), 0..20),
    ) {
        let shared = Shared::default();
        let mut catalog = Catalog::open(shared.clone(), 7).unwrap();
        let servers: Vec<u32> = (0..5).map(|_| catalog.enlist(0, HERE, 1).unwrap()).collect();
        let table = catalog.create("t", count, &servers).unwrap();
        // Of nobody who takes or is taken from, so that no server is forgotten.
        for &server in &servers {
            catalog.create(&format!("of {server}"), 1, &[server]).unwrap();
        }
        let samples: Vec<u64> = Range::ALL.parts(97).iter().map(|range| range.last).collect();
        let mut model: Vec<(u32, u64)> = samples.iter().map(|&at| (table.at(at).server, 0)).collect();
        for (since, (gone, by, edges)) in (1_u64..).zip(steps) {
            let range = |(one, other): (u64, u64)| Range { first: one.min(other), last: one.max(other) };
            let taken: Vec<Tablet> = edges.into_iter().map(range).map(|range| Tablet { table: table.id, range }).collect();
            catalog.take_over(gone, &taken, by, since).unwrap();
            for (&at, owner) in samples.iter().zip(&mut model) {
                if owner.0 == gone && taken.iter().any(|tablet| tablet.range.contains(at)) {
                    *owner = (by, since);
                }
            }
            if since % 3 == 0 {
                catalog = Catalog::open(shared.clone(), 7).unwrap();
            }
            let all: Vec<_> = servers.iter().flat_map(|&server| catalog.tablets_of(server)).collect();
            let owner = |at| {
                let mut has = all.iter().filter(|owned| owned.tablet.table == table.id && owned.tablet.range.contains(at));
                let owned = has.next().expect("somebody has it");
                assert!(has.next().is_none(), "two have it");
                (owned.server, owned.since)
            };
            let now: Vec<_> = samples.iter().map(|&at| owner(at)).collect();
            prop_assert_eq!(&now, &model);
        }
    }
}

/// A table's row as it was before there were tablets, with and without `since`.
#[test]
fn rows_from_before_there_were_tablets_are_read() {
    let row = |since: Option<u64>| {
        let mut row = [&3_u32.to_le_bytes()[..], &9_u32.to_le_bytes(), b"\x05users\x00"].concat();
        since.into_iter().for_each(|since| push_counter(&mut row, "since", since));
        row
    };
    for (row, since) in [(row(None), 0), (row(Some(6)), 6)] {
        let mut metadata = MetadataMemory::default();
        metadata.apply(&[("table/users".into(), Some(row))]).unwrap();
        let catalog = Catalog::open(metadata, 1).unwrap();
        let owned = catalog.tablets_of(9);
        assert_eq!(owned, [Owned { tablet: Tablet::whole(3), server: 9, since }]);
        assert_eq!(catalog.find("users").unwrap().tablets.len(), 1);
    }
}

#[test]
fn a_file_keeps_it_and_takes_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("coordinator.redb");
    let mut catalog = Catalog::open(MetadataFile::open(&path).unwrap(), 3).unwrap();
    let server = catalog.enlist(0, "tcp:host=127.0.0.1,port=1", 0).unwrap();
    let table = catalog.create("users", 1, &[server]).unwrap();
    let refused = MetadataFile::open(&path).err().expect("in use").to_string();
    assert!(refused.contains("another sprat is running"), "{refused}");
    drop(catalog);
    let catalog = Catalog::open(MetadataFile::open(&path).unwrap(), 4).unwrap();
    assert_eq!(catalog.find("users"), Some(table));
    assert_eq!(catalog.cluster(), 3);
}

#[test]
fn rows_of_a_newer_program_are_refused() {
    let mut metadata = MetadataMemory::default();
    metadata.apply(&[("tablet/1".into(), Some(vec![1, 2, 3]))]).unwrap();
    let error = Catalog::open(metadata, 1).err().expect("refused");
    assert!(error.contains("tablet/1"), "{error}");
}
