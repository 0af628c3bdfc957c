//! The elements of collections: they are counted and found in order, whatever happened to them, and
//! the log records which collections are gone.

use crate::common::{Disk, chance};
use proptest::prelude::*;
use sprat_log::{Config, Content, Durability, Log, MIN_MEMORY};
use sprat_wire::elements::{CollectionId, CollectionKind, ELEMENTS, sort_key};
use sprat_wire::entry::HEADER_BYTES;
use sprat_wire::order::KeyRange;
use sprat_wire::tablet::{Range, Tablet};
use sprat_wire::value::ValueType;
use std::collections::BTreeMap;
use std::ops::Bound;

const TABLE: u32 = 7;

fn config() -> Config {
    Config { seed: 3, ..Config::new(MIN_MEMORY, Durability::Tracked) }
}

/// The elements in the order of the log: by sort key, the key and the value.
type Model = BTreeMap<Vec<u8>, (Vec<u8>, Vec<u8>)>;

fn collections() -> Vec<CollectionId> {
    let id = |kind, position: u64, number| CollectionId::new(kind, position << 48, number);
    let ids = [
        id(CollectionKind::Hash, 0, 0),
        id(CollectionKind::SortedSet, 0, 1),
        id(CollectionKind::Set, 0x8000, 0),
        id(CollectionKind::SortedSet, 0xffff, 9),
    ];
    ids.map(|id| id.expect("small numbers")).to_vec()
}

fn range_of(from: &[u8], to: &[u8], descending: bool) -> KeyRange<'static> {
    let (from, to) = (Vec::leak(from.to_vec()), Vec::leak(to.to_vec()));
    KeyRange { from: Bound::Included(from), to: Bound::Excluded(to), descending }
}

/// Compares a part of a range with the model.
fn compare(log: &Log, model: &Model, range: &KeyRange<'_>, (skip, limit): (usize, usize)) {
    let expected: Vec<&Vec<u8>> = match range.is_empty() {
        true => Vec::new(),
        false => {
            let all = model.range::<[u8], _>((range.from, range.to));
            all.map(|(_, (key, _))| key).collect()
        }
    };
    assert_eq!(log.count_elements(TABLE, range), expected.len());
    let ordered: Vec<_> = match range.descending {
        false => expected,
        true => expected.into_iter().rev().collect(),
    };
    let expected: Vec<_> = ordered.into_iter().skip(skip).take(limit).collect();
    let mut found = Vec::new();
    log.scan_elements(TABLE, range, skip, limit, &mut found);
    let found: Vec<_> = found.iter().map(|at| log.entry(*at).key.to_vec()).collect();
    assert_eq!(found.iter().collect::<Vec<_>>(), expected);
}

fn history(seed: u64) {
    let mut chance = chance(seed);
    let mut log = Log::new(config()).unwrap();
    let mut disk = Disk::default();
    let mut model = Model::new();
    let mut keys: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let ids = collections();
    let names = 1 << chance.below(13);
    for _ in 0..4000 {
        let id = ids[chance.index(ids.len())];
        let name = chance.below(names).to_string();
        let key = if chance.one_in(50) { id.owner().to_vec() } else { id.element(name.as_bytes()) };
        if let Some(sorted) = keys.remove(&key) {
            model.remove(&sorted);
        }
        if chance.one_in(3) {
            log.remove(TABLE | ELEMENTS, &key).unwrap();
        } else {
            #[expect(clippy::cast_precision_loss, reason = "small numbers")]
            let score = chance.below(100) as f64 - 50.0;
            let value = score.to_le_bytes();
            log.put(TABLE | ELEMENTS, &key, &value).unwrap();
            let sorted = sort_key(&key, &value).expect("an element").into_owned();
            keys.insert(key.clone(), sorted.clone());
            model.insert(sorted, (key, value.to_vec()));
        }
        disk.settle(&mut log);
        if chance.one_in(100) {
            let id = ids[chance.index(ids.len())];
            let [first, end] = id.range();
            let skip = chance.index(model.len() + 1);
            let limit = [0, 1, 10, 10_000][chance.index(4)];
            compare(&log, &model, &range_of(&first, &end, chance.one_in(2)), (skip, limit));
            let mut ends = [0, 1].map(|_| {
                let at = chance.index(model.len() + 1);
                model.keys().nth(at).cloned().unwrap_or_default()
            });
            ends.sort();
            compare(&log, &model, &range_of(&ends[0], &ends[1], chance.one_in(2)), (skip, limit));
            compare(&log, &model, &KeyRange::ALL, (skip, limit));
        }
    }
    log.check_invariants();
    let mut log = disk.restore(config(), None);
    while log.order_step() {}
    assert!(log.has_elements_in_order(TABLE));
    compare(&log, &model, &KeyRange::ALL, (0, usize::MAX));
    // Those at places in the lower half of all positions go with their tablet.
    let lower = Tablet { table: TABLE, range: Range::ALL.parts(2)[0] };
    log.drop_tablet(lower);
    while !log.clean(8).idle {}
    model.retain(|sorted, _| sorted[0] >= 0x80);
    compare(&log, &model, &KeyRange::ALL, (0, usize::MAX));
    log.check_invariants();
    log.drop_table(TABLE);
    while !log.clean(8).idle {}
    assert_eq!((log.stats().elements, log.count_elements(TABLE, &KeyRange::ALL)), (0, 0));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn elements_agree_with_a_sorted_map(seed in any::<u64>()) {
        history(seed);
    }
}

/// Keys of elements with the same hash are made as in the test of orders.
#[test]
fn elements_with_equal_hashes_are_counted_and_found() {
    let table = TABLE | ELEMENTS;
    let secret = [
        0x1f67_b3b7_a4a4_4072_u64,
        0x78e5_c0cc_4ee6_79cb,
        0x2172_ffcc_7dd0_5a82,
        0x8e24_43f7_7446_08b8,
    ];
    let twins = |seed: u64| {
        let seed = seed.wrapping_add(u64::from(table).wrapping_mul(0x9E37_79B9_7F4A_7C15));
        let flips = [
            (secret[0] ^ secret[1]).wrapping_add(seed),
            (secret[2] ^ secret[3]).wrapping_sub(seed),
        ];
        let key = |halves: [u64; 2]| {
            [(halves[0] ^ flips[0]).to_le_bytes(), (halves[1] ^ flips[1]).to_le_bytes()].concat()
        };
        let half = 99_u64 << 8;
        [key([0, half]), key([half.swap_bytes(), 0])]
    };
    let are_elements =
        |twins: &[Vec<u8>; 2]| twins.iter().all(|key| CollectionId::of(key).is_some());
    let mut seeds = (0..256).map(|high| high << 56);
    let seed = seeds.find(|seed| are_elements(&twins(*seed))).expect("one in 64");
    let twins = twins(seed);
    let mut log = Log::new(Config { seed, ..config() }).unwrap();
    assert_eq!(log.hash(table, &twins[0]), log.hash(table, &twins[1]));
    let mut model = Model::new();
    let others = collections().into_iter().map(|id| id.element(b"other"));
    for key in twins.iter().cloned().chain(others) {
        let value = 1.5_f64.to_le_bytes();
        log.put(table, &key, &value).unwrap();
        let sorted = sort_key(&key, &value).expect("an element").into_owned();
        model.insert(sorted, (key, value.to_vec()));
    }
    let both_ways = |log: &Log, model: &Model| {
        for descending in [false, true] {
            for skip in 0..4 {
                compare(log, model, &KeyRange { descending, ..KeyRange::ALL }, (skip, 3));
            }
        }
        log.check_invariants();
    };
    both_ways(&log, &model);
    for twin in &twins {
        log.remove(table, twin).unwrap();
        model.retain(|_, (key, _)| key != twin);
        both_ways(&log, &model);
    }
}

#[test]
fn ids_are_new_and_heads_that_go_are_recorded() {
    let mut log = Log::new(config()).unwrap();
    let head = |id: CollectionId| Content {
        value_type: ValueType::Collection,
        ..Content::bytes(Box::leak(Box::new(id.bytes())))
    };
    let first = log.new_collection(TABLE, b"key", CollectionKind::Hash).expect("a number");
    log.put(TABLE | ELEMENTS, &first.owner(), b"key").unwrap();
    log.put_content(TABLE, b"key", head(first), None).unwrap();
    log.put_content(TABLE, b"key", head(first), None).unwrap();
    assert_eq!(log.take_gone_collection(), None, "it is still the same");
    let second = log.new_collection(TABLE, b"key", CollectionKind::Set).expect("a number");
    assert_eq!((first.number(), second.number()), (0, 1));
    log.put_content(TABLE, b"key", head(second), None).unwrap();
    assert_eq!(log.take_gone_collection(), Some((TABLE, first.owner())));
    log.put(TABLE, b"key", b"text").unwrap();
    assert_eq!(log.take_gone_collection(), Some((TABLE, second.owner())));
    let content = Content { expires: 50, ..head(second) };
    log.put_content(TABLE, b"expiring", content, None).unwrap();
    log.set_time(60);
    assert!(log.expire_due().unwrap());
    assert_eq!(log.take_gone_collection(), Some((TABLE, second.owner())));
    log.put_content(TABLE, b"key", head(second), None).unwrap();
    log.remove(TABLE, b"key").unwrap();
    assert_eq!(log.take_gone_collection(), Some((TABLE, second.owner())));
    assert_eq!((log.take_gone_collection(), log.forgot_gone_collections()), (None, false));
}

#[test]
fn an_object_that_is_no_collection_takes_no_byte_more() {
    let mut log = Log::new(config()).unwrap();
    let before = log.stats().object_bytes;
    log.put(TABLE, b"key", b"value").unwrap();
    assert_eq!(log.stats().object_bytes - before, (HEADER_BYTES + 3 + 5) as u64);
}
