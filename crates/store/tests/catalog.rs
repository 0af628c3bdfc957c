//! What a coordinator knows survives it, and its ids are never used twice.

use proptest::prelude::*;
use sprat_store::coordinator::{Catalog, MAX_TABLES, Metadata, MetadataError, MetadataFile, MetadataMemory, Refusal};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

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
                    match catalog.create(&name, &[server]) {
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
                        Ok(dropped) => prop_assert_eq!(dropped.map(|owned| owned.id), model.remove(&name)),
                        Err(_) => prop_assert!(failing),
                    }
                }
                Step::Enlist(port) => {
                    let enlisted = catalog.enlist(server, &format!("tcp:host=127.0.0.1,port={port}"), 0);
                    prop_assert!(failing || enlisted == Ok(server));
                }
                Step::Reopen => {
                    let again = Catalog::open(shared.clone(), 8).unwrap();
                    prop_assert_eq!(again.version(), catalog.version());
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
    assert_eq!(catalog.create("a", &[]), Err(Refusal::NoServer));
    for number in 0..MAX_TABLES {
        catalog.create(&format!("table {number}"), &[1]).unwrap();
    }
    assert!(matches!(catalog.create("one more", &[1]), Err(Refusal::Limit(_))));
}

#[test]
fn tables_go_to_whom_serves_the_fewest() {
    let mut catalog = Catalog::open(MetadataMemory::default(), 1).unwrap();
    let served: Vec<u32> = (0..4).map(|n| catalog.create(&format!("table {n}"), &[1, 2]).unwrap().server).collect();
    assert_eq!(served, [1, 2, 1, 2]);
}

#[test]
fn a_file_keeps_it_and_takes_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("coordinator.redb");
    let mut catalog = Catalog::open(MetadataFile::open(&path).unwrap(), 3).unwrap();
    let server = catalog.enlist(0, "tcp:host=127.0.0.1,port=1", 0).unwrap();
    let table = catalog.create("users", &[server]).unwrap();
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
