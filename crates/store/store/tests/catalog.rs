//! The catalog survives restarts, and its ids are never used twice.

use proptest::prelude::*;
use sprat_store::coordinator::{
    Catalog, LoadReports, MAX_ALL_INDEXES, MAX_TABLES, Metadata, MetadataError, MetadataFile,
    MetadataMemory, OwnedTablet, Refusal,
};
use sprat_wire::index::{FieldSource, IndexDefinition, MAX_INDEXES};
use sprat_wire::op::{Status, TableOptions, TableRecord, push_counter};
use sprat_wire::tablet::{MAX_TABLETS, Range, Tablet};
use sprat_wire::value::ValueType;
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::rc::Rc;

const HERE: &str = "tcp:host=127.0.0.1,port=1";

/// Metadata that are kept when the catalog is dropped. A test can make their changes fail.
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
    fn a_catalog_matches_its_model(steps in prop::collection::vec(step(), 1..60)) {
        let shared = Shared::default();
        let mut catalog = Catalog::open(shared.clone(), 7).unwrap();
        let server = catalog.enlist(0, ("tcp:host=127.0.0.1,port=1", ""), 0).unwrap();
        let mut model: BTreeMap<String, u32> = BTreeMap::new();
        let mut used: BTreeSet<u32> = BTreeSet::new();
        let mut version = catalog.version();
        for step in steps {
            let failing = *shared.failing.borrow();
            match step {
                Step::Create(name) => {
                    let name = format!("table {name}");
                    match catalog.create(&name, TableOptions::of(1), &[server]) {
                        Ok(table) if model.contains_key(&name) => {
                            prop_assert_eq!(table.id, model[&name])
                        }
                        Ok(table) => {
                            prop_assert!(
                                !failing && used.insert(table.id),
                                "id {} is used again",
                                table.id
                            );
                            model.insert(name, table.id);
                        }
                        Err(refusal) => {
                            prop_assert!(failing && matches!(refusal, Refusal::Metadata(_)))
                        }
                    }
                }
                Step::Drop(name) => {
                    let name = format!("table {name}");
                    match catalog.drop_table(&name) {
                        Ok(dropped) => {
                            prop_assert_eq!(dropped.map(drop), model.remove(&name).map(drop))
                        }
                        Err(_) => prop_assert!(failing),
                    }
                }
                Step::Enlist(port) => {
                    let enlisted =
                        catalog.enlist(server, (&format!("tcp:host=127.0.0.1,port={port}"), ""), 0);
                    prop_assert!(failing || enlisted == Ok(server));
                }
                Step::Reopen => {
                    let Ok(again) = Catalog::open(shared.clone(), 8) else {
                        prop_assert!(failing);
                        continue;
                    };
                    prop_assert!(again.incarnation() > catalog.version());
                    prop_assert_eq!(again.cluster(), 7);
                    catalog = again;
                }
                Step::Failing(failing) => *shared.failing.borrow_mut() = failing,
            }
            prop_assert!(catalog.version() >= version);
            version = catalog.version();
            let known: BTreeMap<String, u32> =
                catalog.tables().map(|table| (table.name, table.id)).collect();
            prop_assert_eq!(&known, &model);
        }
    }
}

#[test]
fn a_table_needs_a_server_and_the_number_is_limited() {
    let mut catalog = Catalog::open(MetadataMemory::default(), 1).unwrap();
    assert_eq!(catalog.create("a", TableOptions::of(1), &[]), Err(Refusal::NoServer));
    for number in 0..MAX_TABLES {
        catalog.create(&format!("table {number}"), TableOptions::of(1), &[1]).unwrap();
    }
    assert!(matches!(
        catalog.create("one more", TableOptions::of(1), &[1]),
        Err(Refusal::Limit(_))
    ));
}

#[test]
fn indexes_survive_restarts_keep_their_numbers_and_are_limited() {
    let shared = Shared::default();
    let mut catalog = Catalog::open(shared.clone(), 1).unwrap();
    let definition = |number| IndexDefinition {
        source: FieldSource::Front { number },
        field_type: ValueType::Bytes,
    };
    let tables = MAX_ALL_INDEXES / MAX_INDEXES;
    let names = (0..tables).map(|table| format!("table {table}"));
    for table in names {
        catalog.create(&table, TableOptions::of(1), &[1]).unwrap();
        for number in 0..u8::try_from(MAX_INDEXES).unwrap() {
            let name = format!("index {number}");
            catalog.create_index(&table, &name, definition(number)).unwrap().unwrap();
        }
        let more = catalog.create_index(&table, "one more", definition(0));
        assert!(matches!(more, Err(Refusal::Limit(_))), "{more:?}");
    }
    catalog.create("another", TableOptions::of(1), &[1]).unwrap();
    let more = catalog.create_index("another", "one more", definition(0));
    assert!(matches!(more, Err(Refusal::Limit(_))), "{more:?}");
    catalog.drop_index("table 0", "index 3").unwrap().unwrap();
    let dropped = catalog.find_table("table 0").unwrap();
    drop(catalog);

    let mut catalog = Catalog::open(shared, 2).unwrap();
    assert_eq!(catalog.find_table("table 0"), Some(dropped));
    // The number of the dropped index is not used again.
    let made = catalog.create_index("table 0", "index 3", definition(3)).unwrap().unwrap();
    let numbers: Vec<u32> = made.indexes.iter().map(|index| index.id).collect();
    assert_eq!(numbers, (1..=17).filter(|&id| id != 4).collect::<Vec<_>>());
    assert_eq!(catalog.drop_index("table 0", "none"), Ok(Err(Status::NoSuchIndex)));
    assert_eq!(catalog.drop_index("none", "index 3"), Ok(Err(Status::NoSuchTable)));
}

#[test]
fn tables_go_to_the_server_with_the_fewest() {
    let mut catalog = Catalog::open(MetadataMemory::default(), 1).unwrap();
    let create = |n| {
        catalog.create(&format!("table {n}"), TableOptions::of(1), &[1, 2]).unwrap().tablets[0]
            .server
    };
    let served: Vec<u32> = (0..4).map(create).collect();
    assert_eq!(served, [1, 2, 1, 2]);
}

#[test]
fn a_table_is_spread_over_servers_with_replicated_logs() {
    let mut catalog = Catalog::open(MetadataMemory::default(), 1).unwrap();
    let enlist = |catalog: &mut Catalog<_>, copies| catalog.enlist(0, (HERE, ""), copies).unwrap();
    let alone = enlist(&mut catalog, 0);
    assert_eq!(catalog.create("a", TableOptions::of(0), &[alone]).unwrap().tablets.len(), 1);
    assert!(
        matches!(catalog.create("b", TableOptions::of(2), &[alone]), Err(Refusal::Limit(_))),
        "its log has no replicas"
    );
    let all = [alone, enlist(&mut catalog, 2), enlist(&mut catalog, 2), enlist(&mut catalog, 2)];
    let servers =
        |table: TableRecord| table.tablets.iter().map(|tablet| tablet.server).collect::<Vec<_>>();
    assert_eq!(servers(catalog.create("c", TableOptions::of(0), &all).unwrap()), [2, 3, 4]);
    assert_eq!(servers(catalog.create("d", TableOptions::of(5), &all).unwrap()), [2, 3, 4, 2, 3]);
    assert_eq!(
        servers(catalog.create("e", TableOptions::of(1), &all).unwrap()),
        [4],
        "server 4 has the fewest tablets"
    );
    assert_eq!(
        catalog.create("f", TableOptions::of(5000), &all).unwrap().tablets.len(),
        MAX_TABLETS
    );
}

proptest! {
    /// Checks samples of positions: each position belongs to the server that took it over last.
    #[test]
    fn take_over_moves_ranges_to_the_new_owner(
        count in 1_u32..9,
        steps in prop::collection::vec(
            (2_u32..6, 2_u32..6, prop::collection::vec((any::<u64>(), any::<u64>()), 0..4)),
            0..20,
        ),
    ) {
        let shared = Shared::default();
        let mut catalog = Catalog::open(shared.clone(), 7).unwrap();
        let servers: Vec<u32> = (0..5).map(|_| catalog.enlist(0, (HERE, ""), 1).unwrap()).collect();
        let table = catalog.create("t", TableOptions::of(count), &servers).unwrap();
        // Each server has a table of its own, so no server loses all its tablets and is removed.
        for &server in &servers {
            catalog.create(&format!("of {server}"), TableOptions::of(1), &[server]).unwrap();
        }
        let samples: Vec<u64> = Range::ALL.parts(97).iter().map(|range| range.last).collect();
        let mut model: Vec<(u32, u64)> =
            samples.iter().map(|&at| (table.at(at).server, 0)).collect();
        for (since, (gone, by, edges)) in (1_u64..).zip(steps) {
            let range =
                |(one, other): (u64, u64)| Range { first: one.min(other), last: one.max(other) };
            let taken: Vec<Tablet> = edges
                .into_iter()
                .map(range)
                .map(|range| Tablet { table: table.id, range })
                .collect();
            catalog.take_over(gone, &taken, by, since).unwrap();
            for (&at, owner) in samples.iter().zip(&mut model) {
                if owner.0 == gone && taken.iter().any(|tablet| tablet.range.contains(at)) {
                    *owner = (by, since);
                }
            }
            if since % 3 == 0 {
                catalog = Catalog::open(shared.clone(), 7).unwrap();
            }
            let all: Vec<_> =
                servers.iter().flat_map(|&server| catalog.tablets_of(server)).collect();
            let owner = |at| {
                let mut has = all.iter().filter(|owned| {
                    owned.tablet.table == table.id && owned.tablet.range.contains(at)
                });
                let owned = has.next().expect("a server has it");
                assert!(has.next().is_none(), "two have it");
                (owned.server, owned.since)
            };
            let now: Vec<_> = samples.iter().map(|&at| owner(at)).collect();
            prop_assert_eq!(&now, &model);
        }
    }
}

/// Returns the row of counters in an older format, in which rows had no checksums.
fn old_counters() -> (String, Option<Vec<u8>>) {
    let mut row = Vec::new();
    for (name, number) in [("cluster", 42), ("next_table", 4), ("next_server", 10), ("version", 17)]
    {
        push_counter(&mut row, name, number);
    }
    ("counters".into(), Some(row))
}

/// Reads a table's row that was written before tables had tablets, with and without `since`.
#[test]
fn rows_from_before_there_were_tablets_are_read() {
    let row = |since: Option<u64>| {
        let mut row = [&3_u32.to_le_bytes()[..], &9_u32.to_le_bytes(), b"\x05users\x00"].concat();
        since.into_iter().for_each(|since| push_counter(&mut row, "since", since));
        row
    };
    for (row, since) in [(row(None), 0), (row(Some(6)), 6)] {
        let mut metadata = MetadataMemory::default();
        metadata.apply(&[old_counters(), ("table/users".into(), Some(row))]).unwrap();
        let catalog = Catalog::open(metadata, 1).unwrap();
        assert_eq!((catalog.cluster(), catalog.next_table()), (42, 4));
        let owned = catalog.tablets_of(9);
        assert_eq!(owned, [OwnedTablet { tablet: Tablet::whole(3), server: 9, since }]);
        assert_eq!(catalog.find_table("users").unwrap().tablets.len(), 1);
        let copy = Catalog::<MetadataMemory>::from_copy(&catalog.copy()).unwrap();
        assert_eq!(
            copy.find_table("users"),
            catalog.find_table("users"),
            "a copy has rows as they are now"
        );
    }
}

#[test]
fn a_metadata_file_is_durable_and_has_one_owner() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("coordinator.redb");
    let mut catalog = Catalog::open(MetadataFile::open(&path).unwrap(), 3).unwrap();
    let server = catalog.enlist(0, ("tcp:host=127.0.0.1,port=1", ""), 0).unwrap();
    let table = catalog.create("users", TableOptions::of(1), &[server]).unwrap();
    let refused = MetadataFile::open(&path).err().expect("in use").to_string();
    assert!(refused.contains("another sprat is running"), "{refused}");
    drop(catalog);
    let catalog = Catalog::open(MetadataFile::open(&path).unwrap(), 4).unwrap();
    assert_eq!(catalog.find_table("users"), Some(table));
    assert_eq!(catalog.cluster(), 3);
}

/// A process was killed while it created the file: the next start creates it again.
#[test]
fn a_file_has_its_name_only_when_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    let (path, half) =
        (dir.path().join("coordinator.redb"), dir.path().join("coordinator.redb.new"));
    fs::write(&half, [0; 4096]).unwrap();
    drop(Catalog::open(MetadataFile::open(&path).unwrap(), 3).unwrap());
    assert!(!half.exists());
    assert_eq!(Catalog::open(MetadataFile::open(&path).unwrap(), 4).unwrap().cluster(), 3);
}

#[test]
fn rows_of_a_newer_program_are_refused() {
    let mut metadata = MetadataMemory::default();
    metadata.apply(&[old_counters(), ("tablet/1".into(), Some(vec![1, 2, 3]))]).unwrap();
    let error = Catalog::open(metadata, 1).err().expect("refused");
    assert!(error.contains("tablet/1"), "{error}");
}

/// Returns the rows of a catalog with two tables, and the tables.
fn some_rows() -> (MetadataMemory, Vec<TableRecord>) {
    let shared = Shared::default();
    let (mut catalog, _) = three_servers(&shared);
    catalog.create("precious", TableOptions::of(1), &[2]).unwrap();
    let tables = catalog.tables().collect();
    drop(catalog);
    let metadata = shared.memory.borrow().clone();
    (metadata, tables)
}

#[test]
fn every_bit_of_every_row_is_checked() {
    let (metadata, _) = some_rows();
    let mut trials = 0;
    for (key, row) in metadata.load().unwrap() {
        for bit in 0..row.len() * 8 {
            let mut flipped = row.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let mut damaged = metadata.clone();
            damaged.apply(&[(key.clone(), Some(flipped))]).unwrap();
            let error = Catalog::open(damaged, 1)
                .err()
                .unwrap_or_else(|| panic!("bit {bit} of {key:?} is not noticed"));
            assert!(error.contains(&key) || error.contains("counters"), "{error}");
            trials += 1;
        }
    }
    assert!(trials > 1000, "{trials}");
}

#[test]
fn missing_outdated_and_renamed_rows_are_detected() {
    let (metadata, _) = some_rows();
    let rows = metadata.load().unwrap();
    let (older, _) = {
        let shared =
            Shared { memory: Rc::new(RefCell::new(metadata.clone())), ..Shared::default() };
        let mut catalog = Catalog::open(shared.clone(), 1).unwrap();
        catalog.drain(1, true).unwrap();
        (shared.memory.borrow().clone(), ())
    };
    for (key, row) in &rows {
        let refused = |changes: &[(String, Option<Vec<u8>>)], metadata: &MetadataMemory| {
            let mut damaged = metadata.clone();
            damaged.apply(changes).unwrap();
            Catalog::open(damaged, 1).err()
        };
        let missing = refused(&[(key.clone(), None)], &metadata);
        assert!(missing.is_some(), "{key:?} is missing");
        let renamed =
            refused(&[(key.clone(), None), (format!("{key}x"), Some(row.clone()))], &metadata);
        assert!(renamed.is_some(), "{key:?} has another key");
        if older.load().unwrap()[key] != *row {
            let older = refused(&[(key.clone(), Some(row.clone()))], &older);
            assert!(older.is_some(), "{key:?} is older than the others");
        }
    }
}

#[test]
fn rows_from_before_there_were_checksums_are_sealed_by_the_next_change() {
    let mut row = [&3_u32.to_le_bytes()[..], &9_u32.to_le_bytes(), b"\x05users\x00"].concat();
    push_counter(&mut row, "since", 6);
    let shared = Shared::default();
    let table = ("table/users".to_owned(), Some(row));
    shared.memory.borrow_mut().apply(&[old_counters(), table.clone()]).unwrap();
    let catalog = Catalog::open_standalone(shared.clone(), 1, 1).unwrap();
    let before: Vec<TableRecord> = catalog.tables().collect();
    assert_eq!(
        shared.memory.borrow().load().unwrap()["table/users"],
        table.1.unwrap(),
        "nothing is written yet"
    );
    drop(catalog);
    let catalog = Catalog::open(shared.clone(), 1).unwrap();
    assert_eq!(catalog.tables().collect::<Vec<_>>(), before);
    let mut sealed = shared.memory.borrow().clone();
    let mut row = sealed.load().unwrap()["table/users"].clone();
    row[0] ^= 1;
    sealed.apply(&[("table/users".into(), Some(row))]).unwrap();
    assert!(Catalog::open(sealed, 1).err().unwrap().contains("table/users"));
    assert_eq!(Catalog::open(shared, 1).unwrap().tables().collect::<Vec<_>>(), before);
}

#[test]
fn a_catalog_is_rebuilt_from_a_copy() {
    let (metadata, tables) = some_rows();
    let catalog = Catalog::open(metadata, 1).unwrap();
    let bytes = catalog.copy();
    let copy = Catalog::<MetadataMemory>::from_copy(&bytes).unwrap();
    assert_eq!((copy.version(), copy.cluster()), (catalog.version(), catalog.cluster()));
    for bit in 0..bytes.len() * 8 {
        let mut damaged = bytes.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(Catalog::<MetadataMemory>::from_copy(&damaged).is_err(), "bit {bit}");
    }
    for len in 0..bytes.len() {
        assert!(Catalog::<MetadataMemory>::from_copy(&bytes[..len]).is_err(), "{len} bytes");
    }
    let rebuild =
        |metadata| Catalog::<MetadataMemory>::from_copy(&bytes).unwrap().rebuild(metadata);
    let mut again = rebuild(MetadataMemory::default()).unwrap();
    assert_eq!(again.tables().collect::<Vec<_>>(), tables);
    assert_eq!(again.servers().collect::<Vec<_>>(), catalog.servers().collect::<Vec<_>>());
    assert!(again.version() > catalog.version() + 1000);
    let new = again.create("new", TableOptions::of(1), &[1]).unwrap().id;
    assert!(
        new > catalog.next_table() + 1000,
        "an id that the lost coordinator gave out is not given again"
    );
    let full = Catalog::open(MetadataMemory::default(), 1).unwrap();
    let mut rows = MetadataMemory::default();
    rows.apply(&[("table/x".into(), Some(vec![1]))]).unwrap();
    drop(full);
    assert!(rebuild(rows).is_err(), "metadata that have rows are left alone");
}

/// Returns a catalog of three servers, and a table with four tablets, on servers 1, 2, 3 and 1.
fn three_servers(shared: &Shared) -> (Catalog<Shared>, u32) {
    let mut catalog = Catalog::open(shared.clone(), 7).unwrap();
    for _ in 0..3 {
        catalog.enlist(0, (HERE, ""), 2).unwrap();
    }
    let table = catalog.create("table", TableOptions::of(4), &[1, 2, 3]).unwrap().id;
    (catalog, table)
}

fn servers(catalog: &Catalog<Shared>) -> Vec<u32> {
    catalog.find_table("table").unwrap().tablets.iter().map(|tablet| tablet.server).collect()
}

#[test]
fn a_moving_tablet_keeps_its_owner_until_it_is_handed_over() {
    let shared = Shared::default();
    let (mut catalog, table) = three_servers(&shared);
    assert_eq!(servers(&catalog), [1, 2, 3, 1]);
    let [first, second, ..] = Range::ALL.parts(4)[..] else { unreachable!() };
    let tablet = Tablet { table, range: first };
    let id = catalog.begin_move(tablet, 2).unwrap();
    assert_eq!(catalog.begin_move(tablet, 2), Ok(id), "the same move again");
    assert!(catalog.begin_move(tablet, 3).is_err(), "a tablet has one move at a time");
    assert!(
        catalog.begin_move(Tablet { table, range: second }, 2).is_err(),
        "server 2 has this tablet"
    );
    let two = Range { first: first.first, last: second.last };
    assert!(
        catalog.begin_move(Tablet { table, range: two }, 3).is_err(),
        "this range is on two servers"
    );
    assert_eq!(servers(&catalog), [1, 2, 3, 1]);
    // The next leader continues the move.
    drop(catalog);
    let mut catalog = Catalog::open(shared.clone(), 8).unwrap();
    let order = catalog.find_move(id).unwrap();
    assert_eq!((order.tablet, order.from, order.to), (tablet, 1, 2));
    *shared.failing.borrow_mut() = true;
    assert!(catalog.hand_over(id, 5).is_err());
    assert_eq!(servers(&catalog), [1, 2, 3, 1]);
    *shared.failing.borrow_mut() = false;
    catalog.hand_over(id, 5).unwrap();
    assert_eq!(servers(&catalog), [2, 2, 3, 1]);
    assert!(catalog.tablets_of(2).contains(&OwnedTablet { tablet, server: 2, since: 5 }));
    // A part of a tablet becomes a tablet of its own.
    let middle = Range { first: second.first + 10, last: second.last - 10 };
    let part = catalog.begin_move(Tablet { table, range: middle }, 3).unwrap();
    assert_ne!(part, id);
    catalog.hand_over(part, 9).unwrap();
    let catalog = Catalog::open(shared, 8).unwrap();
    assert_eq!(servers(&catalog), [2, 2, 3, 2, 3, 1]);
    assert_eq!(catalog.moves().count(), 0);
}

/// A tablet that is being recovered must not be moved.
#[test]
fn a_move_ends_with_either_server_or_its_table() {
    for ended_by in ["the giver", "the taker", "a new life", "the table", "itself"] {
        let shared = Shared::default();
        let (mut catalog, table) = three_servers(&shared);
        let id = catalog.begin_move(Tablet { table, range: Range::ALL.parts(4)[0] }, 2).unwrap();
        match ended_by {
            "the giver" => catalog.mark_dead(1).unwrap(),
            "the taker" => catalog.mark_dead(2).unwrap(),
            "a new life" => drop(catalog.enlist(2, (HERE, ""), 2).unwrap()),
            "the table" => drop(catalog.drop_table("table").unwrap()),
            _ => catalog.end_move(id).unwrap(),
        }
        assert_eq!(catalog.find_move(id), None, "{ended_by}");
        assert_eq!(Catalog::open(shared, 8).unwrap().moves().count(), 0, "{ended_by}");
    }
}

/// Carries out moves until none is left; returns their number.
fn settle(catalog: &mut Catalog<Shared>, alive: &[u32]) -> usize {
    for moves in 0..100 {
        let loads = LoadReports::default();
        let balanced =
            || catalog.next_balanced(alive, &loads).map(|planned| (planned.tablet, planned.to));
        let next = catalog.next_drained(alive).or_else(balanced);
        let Some((tablet, to)) = next else { return moves };
        let id = catalog.begin_move(tablet, to).unwrap();
        catalog.hand_over(id, 1).unwrap();
    }
    panic!("it never ends: {:?}", catalog.find_table("table"));
}

#[test]
fn a_drained_server_is_emptied_and_gets_no_tablets() {
    let shared = Shared::default();
    let (mut catalog, _) = three_servers(&shared);
    catalog.drain(1, true).unwrap();
    assert_eq!(settle(&mut catalog, &[1, 2, 3]), 2);
    assert_eq!(servers(&catalog), [2, 2, 3, 3]);
    let tablets = catalog.create("another", TableOptions::of(4), &[1, 2, 3]).unwrap().tablets;
    assert!(tablets.iter().all(|tablet| tablet.server != 1), "{tablets:?}");
    let mut catalog = Catalog::open(shared, 8).unwrap();
    assert_eq!(settle(&mut catalog, &[1, 2, 3]), 0, "the catalog still has server 1 drained");
    catalog.drain(1, false).unwrap();
    assert_eq!(settle(&mut catalog, &[1, 2, 3]), 2);
    assert_eq!(catalog.tablets_of(1).len(), 2);
    for (server, why) in [(9, "no server has the id 9"), (0, "no server has the id 0")] {
        assert!(catalog.drain(server, true).is_err(), "{why}");
    }
    let own_log = catalog.enlist(0, (HERE, ""), 0).unwrap();
    assert!(catalog.drain(own_log, true).is_err(), "its tables cannot be elsewhere");
    assert_eq!(catalog.drain(2, true), Ok(()));
    assert_eq!(catalog.next_drained(&[2]), None, "no server can take the tablet");
}

#[test]
fn a_new_server_gets_tablets() {
    let shared = Shared::default();
    let (mut catalog, _) = three_servers(&shared);
    assert_eq!(settle(&mut catalog, &[1, 2, 3]), 0, "the tablets are spread evenly");
    let fourth = catalog.enlist(0, (HERE, ""), 2).unwrap();
    assert_eq!(settle(&mut catalog, &[1, 2, 3, fourth]), 1);
    assert_eq!(catalog.tablets_of(fourth).len(), 1);
    // If no server has two tablets, the catalog divides a tablet, but not that of a table that was
    // created with one tablet.
    let fifth = catalog.enlist(0, (HERE, ""), 2).unwrap();
    assert_eq!(settle(&mut catalog, &[1, 2, 3, fourth, fifth]), 1);
    assert_eq!(catalog.tablet_count(), 5);
    let shared = Shared::default();
    let mut catalog = Catalog::open(shared, 7).unwrap();
    let pair =
        [catalog.enlist(0, (HERE, ""), 2).unwrap(), catalog.enlist(0, (HERE, ""), 2).unwrap()];
    catalog.create("whole", TableOptions::of(1), &pair).unwrap();
    assert_eq!(settle(&mut catalog, &pair), 0);
}
