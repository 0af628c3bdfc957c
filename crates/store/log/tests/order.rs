//! Ordered tables and indexes: what they hold is in the order of its keys, or of fields of its
//! values, whatever happened to it.

use crate::common::{Disk, chance};
use proptest::prelude::*;
use sprat_chance::Chance;
use sprat_log::{Config, Content, Durability, Log, MIN_MEMORY, Ref, SCAN_KEYS};
use sprat_wire::expiry::NEVER;
use sprat_wire::index::{Field, FieldSource, IndexDefinition, OWN_KEYS, SortOrder};
use sprat_wire::once::OperationId;
use sprat_wire::order::KeyRange;
use sprat_wire::tablet::{Range, Tablet};
use sprat_wire::transaction::{Participant, Plan, TransactionAction};
use sprat_wire::value::ValueType;
use std::collections::BTreeMap;
use std::ops::{Bound, RangeBounds as _};

const TABLE: u32 = 7;
const INDEX: u32 = 1;
const OTHER: u32 = 8;
const ALL: Bounds<'_> = (Bound::Unbounded, Bound::Unbounded);

type Bounds<'a> = (Bound<&'a [u8]>, Bound<&'a [u8]>);

fn config() -> Config {
    Config { seed: 3, ..Config::new(MIN_MEMORY, Durability::Tracked) }
}

/// The order of the table's keys, and an index of the first two bytes of its values.
fn orders() -> [SortOrder; 2] {
    let source = FieldSource::Offset { at: 0, length: 2 };
    let definition = IndexDefinition { source, field_type: ValueType::Bytes };
    [
        SortOrder { table: TABLE, index: OWN_KEYS, definition: None },
        SortOrder { table: TABLE, index: INDEX, definition: Some(definition) },
    ]
}

fn ordered() -> Log {
    let mut log = Log::new(config()).unwrap();
    log.set_orders(&orders());
    log
}

#[test]
fn a_field_changes_where_an_object_gets_another() {
    let mut log = ordered();
    log.put(TABLE, b"key", b"aa 1").unwrap();
    log.put(TABLE, b"key", b"aa 2").unwrap();
    log.put(OTHER, b"key", b"bb").unwrap();
    assert_eq!(log.fields_changed_at(), 0);
    for value in [&b"bb"[..], b"-", b"cc"] {
        log.put(TABLE, b"key", value).unwrap();
        assert_eq!(log.fields_changed_at(), log.position());
        log.put(TABLE, b"another", value).unwrap();
    }
}

#[test]
fn fields_may_have_changed_before_the_walk() {
    let mut log = Log::new(config()).unwrap();
    log.put(TABLE, b"key", b"aa").unwrap();
    log.put(TABLE, b"key", b"bb").unwrap();
    log.set_orders(&orders());
    while log.order_step() {}
    assert_eq!(log.fields_changed_at(), log.position());
}

/// Returns the keys and values of a range, page by page.
fn pages(
    log: &Log,
    index: u32,
    keys: Bounds<'_>,
    descending: bool,
    limits: (usize, usize),
) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut rows = Vec::new();
    let (mut last, mut more): (Vec<u8>, _) = (Vec::new(), true);
    let mut is_first = true;
    while more {
        let range = KeyRange { from: keys.0, to: keys.1, descending };
        let range = if is_first { range } else { range.after(&last) };
        let mut found: Vec<Ref> = Vec::new();
        let end = log.scan_order((TABLE, index), &range, |_| true, limits, &mut found);
        assert!(found.len() <= limits.1);
        let row = |found: &Ref| {
            let entry = log.entry(*found);
            (entry.key.to_vec(), entry.value.to_vec())
        };
        rows.extend(found.iter().map(row));
        more = end.is_some();
        last = end.map_or(Vec::new(), |end| log.key_in_order(index, end).unwrap().into_owned());
        is_first = false;
    }
    rows
}

fn keys(log: &Log, range: Bounds<'_>, descending: bool) -> Vec<Vec<u8>> {
    keys_of(log, OWN_KEYS, range, descending)
}

fn keys_of(log: &Log, index: u32, range: Bounds<'_>, descending: bool) -> Vec<Vec<u8>> {
    let rows = pages(log, index, range, descending, (usize::MAX, 100));
    rows.into_iter().map(|(key, _)| key).collect()
}

#[test]
fn a_range_has_its_keys_in_order() {
    let mut log = ordered();
    for key in ["b", "", "a", "ab", "b\0", "aa", "c"] {
        log.put(TABLE, key.as_bytes(), b"1").unwrap();
        log.put(OTHER, key.as_bytes(), b"2").unwrap();
    }
    let all: [&[u8]; 7] = [b"", b"a", b"aa", b"ab", b"b", b"b\0", b"c"];
    assert_eq!(keys(&log, ALL, false), all);
    let backwards: Vec<_> = all.into_iter().rev().collect();
    assert_eq!(keys(&log, ALL, true), backwards);
    let from_aa = (Bound::Included(&b"aa"[..]), Bound::Excluded(&b"b\0"[..]));
    assert_eq!(keys(&log, from_aa, false), [&b"aa"[..], b"ab", b"b"]);
    assert_eq!(keys(&log, from_aa, true), [&b"b"[..], b"ab", b"aa"]);
    let after_aa = (Bound::Excluded(&b"aa"[..]), Bound::Included(&b"b\0"[..]));
    assert_eq!(keys(&log, after_aa, false), [&b"ab"[..], b"b", b"b\0"]);
    for nothing in [
        (Bound::Included(&b"c"[..]), Bound::Included(&b"a"[..])),
        (Bound::Excluded(&b"c"[..]), Bound::Unbounded),
        (Bound::Excluded(&b"a"[..]), Bound::Excluded(&b"a"[..])),
        (Bound::Unbounded, Bound::Excluded(&b""[..])),
    ] {
        assert!(keys(&log, nothing, false).is_empty() && keys(&log, nothing, true).is_empty());
    }
    log.remove(TABLE, b"a").unwrap();
    log.put(TABLE, b"b", b"3").unwrap();
    assert_eq!(keys(&log, ALL, false), [&b""[..], b"aa", b"ab", b"b", b"b\0", b"c"]);
    let rows = pages(&log, OWN_KEYS, ALL, false, (1, 9));
    assert_eq!(rows[3], (b"b".to_vec(), b"3".to_vec()));
    log.check_invariants();
}

#[test]
fn one_call_visits_a_limited_number_of_keys() {
    let mut log = ordered();
    for key in 0..SCAN_KEYS + 10 {
        log.put(TABLE, format!("{key:08}").as_bytes(), b"").unwrap();
    }
    let mut found = Vec::new();
    let limits = (usize::MAX, usize::MAX);
    let order = (TABLE, OWN_KEYS);
    let last = log.scan_order(order, &KeyRange::ALL, |_| false, limits, &mut found).unwrap();
    assert!(found.is_empty());
    assert_eq!(log.entry(last).key, format!("{:08}", SCAN_KEYS - 1).as_bytes());
}

/// XXH3 of 16 bytes is the sum of its halves, each combined with bytes of a secret, if one of the
/// halves becomes zero. So these two keys have the same hash.
#[test]
fn keys_with_equal_hashes_are_all_in_the_order() {
    let seed = config().seed.wrapping_add(u64::from(TABLE).wrapping_mul(0x9E37_79B9_7F4A_7C15));
    let secret = [
        0x1f67_b3b7_a4a4_4072_u64,
        0x78e5_c0cc_4ee6_79cb,
        0x2172_ffcc_7dd0_5a82,
        0x8e24_43f7_7446_08b8,
    ];
    let flips =
        [(secret[0] ^ secret[1]).wrapping_add(seed), (secret[2] ^ secret[3]).wrapping_sub(seed)];
    let key = |halves: [u64; 2]| {
        [(halves[0] ^ flips[0]).to_le_bytes(), (halves[1] ^ flips[1]).to_le_bytes()].concat()
    };
    let mut twins = [key([0, 99]), key([99_u64.swap_bytes(), 0])];
    let mut log = ordered();
    assert_eq!(log.hash(TABLE, &twins[0]), log.hash(TABLE, &twins[1]));
    let between = log.hash(TABLE, b"another");
    assert_ne!(between, log.hash(TABLE, &twins[0]));
    for first in [0, 1] {
        log.put(TABLE, b"another", b"aa").unwrap();
        log.put(TABLE, &twins[first], b"").unwrap();
        log.put(TABLE, &twins[1 - first], b"aa").unwrap();
        let mut sorted = vec![b"another".to_vec(), twins[0].clone(), twins[1].clone()];
        sorted.sort();
        assert_eq!(keys(&log, ALL, false), sorted);
        sorted.reverse();
        assert_eq!(keys(&log, ALL, true), sorted);
        log.check_invariants();
        let mut with_field_aa = vec![b"another".to_vec(), twins[1 - first].clone()];
        with_field_aa.sort();
        assert_eq!(with_field(&log, b"aa"), with_field_aa);
        // One of them gets a field, and both get another.
        log.put(TABLE, &twins[first], b"bb").unwrap();
        log.put(TABLE, &twins[1 - first], b"bb").unwrap();
        log.put(TABLE, &twins[first], b"cc").unwrap();
        assert_eq!(with_field(&log, b"bb"), [twins[1 - first].clone()]);
        assert_eq!(with_field(&log, b"cc"), [twins[first].clone()]);
        log.check_invariants();
        log.remove(TABLE, &twins[0]).unwrap();
        log.check_invariants();
        log.put(TABLE, &twins[0], b"").unwrap();
        log.remove(TABLE, &twins[1]).unwrap();
        log.check_invariants();
        log.remove(TABLE, &twins[0]).unwrap();
        assert_eq!(keys(&log, ALL, false), [b"another"]);
        log.check_invariants();
    }
    // When they are there before the table is named, the walk finds both at once.
    for key in &twins {
        log.put(TABLE, key, b"").unwrap();
    }
    log.set_orders(&[]);
    log.set_orders(&orders());
    while log.order_step() {}
    twins.sort();
    assert_eq!(keys(&log, ALL, false).len(), 3);
    log.check_invariants();
}

#[test]
fn a_dropped_tablet_leaves_the_order() {
    let mut log = ordered();
    for key in 0..1000_u32 {
        log.put(TABLE, &key.to_be_bytes(), b"").unwrap();
    }
    let half = Range { first: 0, last: u64::MAX / 2 };
    log.drop_tablet(Tablet { table: TABLE, range: half });
    let kept = |key: &[u8]| !half.contains(log.hash(TABLE, key).reverse_bits());
    let expected: Vec<_> =
        (0..1000_u32).map(|key| key.to_be_bytes().to_vec()).filter(|key| kept(key)).collect();
    let rows = |log: &Log| {
        let mut found = Vec::new();
        let limits = (usize::MAX, usize::MAX);
        let is_kept = |position| !half.contains(position);
        log.scan_order((TABLE, OWN_KEYS), &KeyRange::ALL, is_kept, limits, &mut found);
        found.iter().map(|found| log.entry(*found).key.to_vec()).collect::<Vec<_>>()
    };
    assert_eq!(rows(&log), expected);
    while !log.clean(8).idle {}
    assert_eq!(keys(&log, ALL, false), expected);
    log.check_invariants();
    log.drop_table(TABLE);
    log.check_invariants();
    while !log.clean(8).idle {}
    log.check_invariants();
}

fn history(seed: u64) {
    let mut chance = chance(seed);
    let mut disk = Disk::default();
    let mut log = Log::new(config()).unwrap();
    let mut model: BTreeMap<Vec<u8>, Vec<u8>> = BTreeMap::new();
    let kind = chance.below(3);
    let key = |chance: &mut Chance| match kind {
        0 => format!("user:{:06}", chance.below(3000)).into_bytes(),
        1 => (0..chance.below(6)).map(|_| u8::try_from(chance.below(3)).unwrap()).collect(),
        _ => chance.draw().to_be_bytes()[..1 + chance.index(3)].to_vec(),
    };
    for step in 0..4000_u64 {
        let is_growing = step / 1000 % 2 == 0;
        let name = key(&mut chance);
        match chance.below(100) {
            0 if step % 7 == 0 => log.set_orders(&orders()[..chance.index(2)]),
            1..5 => log.set_orders(&orders()),
            5..15 => {
                log.order_step();
            }
            15..20 => {
                log.clean(2);
            }
            percent if (percent < 70) == is_growing => {
                // Every sixth value has no field; of the others, many have the same.
                let value = chance.draw().to_be_bytes().map(|byte| byte % 20);
                let value = &value[..value.len() * usize::from(chance.below(6) > 0)];
                let expires = if chance.below(20) == 0 { step + 10 } else { NEVER };
                let content = Content { expires, ..Content::bytes(value) };
                log.put_content(TABLE, &name, content, None).unwrap();
                model.insert(name, value.to_vec());
                if expires != NEVER {
                    log.set_time(expires);
                    while let Some(due) = log.due() {
                        model.remove(due.key);
                        log.expire_due().unwrap();
                    }
                }
            }
            _ => {
                let name = model.range(name.clone()..).next().map_or(name, |(key, _)| key.clone());
                assert_eq!(
                    log.remove(TABLE, &name).unwrap().is_some(),
                    model.remove(&name).is_some()
                );
            }
        }
        if step % 100 == 0 {
            disk.settle(&mut log);
            log.check_invariants();
        }
        let order = orders()[chance.index(2)].clone();
        if log.is_ordered(TABLE, order.index) && chance.below(10) == 0 {
            let limits = match chance.below(2) {
                0 => (usize::MAX, 1 + chance.index(40)),
                _ => (1 + chance.index(900), usize::MAX),
            };
            let mut expected = BTreeMap::new();
            for (key, value) in &model {
                let in_order = match &order.definition {
                    None => Some(key.clone()),
                    Some(definition) => definition.key_of(key, value),
                };
                expected.extend(in_order.map(|in_order| (in_order, (key.clone(), value.clone()))));
            }
            let (one, other) = (key(&mut chance), key(&mut chance));
            let mut bound = |default: Vec<u8>| {
                let key = expected.keys().nth(chance.index(expected.len() + 1));
                let key = key.cloned().unwrap_or(default);
                match chance.below(3) {
                    0 => Bound::Unbounded,
                    1 => Bound::Included(key),
                    _ => Bound::Excluded(key),
                }
            };
            let (from, to) = (bound(one), bound(other));
            let keys = (from.as_ref().map(Vec::as_slice), to.as_ref().map(Vec::as_slice));
            let within = expected.iter().filter(|(key, _)| keys.contains(&key[..]));
            let mut expected: Vec<_> = within.map(|(_, row)| row.clone()).collect();
            assert_eq!(pages(&log, order.index, keys, false, limits), expected);
            expected.reverse();
            assert_eq!(pages(&log, order.index, keys, true, limits), expected);
        }
    }
}

/// Returns what an index has of the objects with this field.
fn with_field(log: &Log, field: &[u8; 2]) -> Vec<Vec<u8>> {
    let from = Field::from(&field[..]).encode();
    let mut to = from.clone();
    *to.last_mut().unwrap() += 1;
    keys_of(log, INDEX, (Bound::Included(&from), Bound::Excluded(&to)), false)
}

#[test]
fn an_index_follows_the_values() {
    let mut log = ordered();
    let sizes = |log: &Log| {
        let stats = log.order_stats(TABLE).find(|stats| stats.index == INDEX).unwrap();
        (stats.objects, stats.without_key, stats.left)
    };
    for (key, value) in [("ada", "uk 1815"), ("grace", "us 1906"), ("alan", "uk 1912"), ("x", "?")]
    {
        log.put(TABLE, key.as_bytes(), value.as_bytes()).unwrap();
    }
    assert_eq!(with_field(&log, b"uk"), [&b"ada"[..], b"alan"]);
    assert_eq!(with_field(&log, b"us"), [b"grace"]);
    assert_eq!(sizes(&log), (3, 1, 0));
    log.put(TABLE, b"ada", b"uk 1852").unwrap();
    log.put(TABLE, b"alan", b"us 1936").unwrap();
    log.put(TABLE, b"x", b"uk").unwrap();
    log.put(TABLE, b"grace", b"").unwrap();
    assert_eq!(with_field(&log, b"uk"), [&b"ada"[..], b"x"]);
    assert_eq!(with_field(&log, b"us"), [b"alan"]);
    assert_eq!(sizes(&log), (3, 1, 0));
    log.check_invariants();
    log.remove(TABLE, b"x").unwrap();
    log.remove(TABLE, b"grace").unwrap();
    assert_eq!(with_field(&log, b"uk"), [b"ada"]);
    assert_eq!(sizes(&log), (2, 0, 0));
    // An index that is made later finds what is there.
    log.set_orders(&orders()[..1]);
    log.set_orders(&orders());
    assert_eq!(sizes(&log), (0, 0, 2));
    while log.order_step() {}
    assert_eq!(sizes(&log), (2, 0, 0));
    log.check_invariants();
}

/// A reader must not pass the place that an object may get, nor the one that it may leave.
#[test]
fn a_transaction_locks_the_old_and_the_new_place_of_an_object() {
    let mut log = ordered();
    for (key, value) in [(b"a", "uk"), (b"b", "us"), (b"c", "us")] {
        log.put(TABLE, key, value.as_bytes()).unwrap();
    }
    let mut prepare = |slot, key: &[u8], action| {
        let id = OperationId { client: 9, slot, sequence: 1, resent: false };
        let position = log.hash(TABLE, key).reverse_bits();
        let plan = Plan::encode(action, &[Participant { table: TABLE, position, id }]);
        log.prepare((TABLE, key), &id, &Plan::parse(&plan).unwrap()).unwrap();
    };
    prepare(0, b"a", TransactionAction::Write(b"fr", None));
    prepare(1, b"b", TransactionAction::Remove);
    prepare(2, b"c", TransactionAction::Check);
    prepare(3, b"d", TransactionAction::Write(b"de", None));
    let locked = |index| {
        let locked = log.locked_in_order(TABLE, index).unwrap();
        let mut keys: Vec<Vec<u8>> = locked.into_iter().map(|(_, key)| key.into_owned()).collect();
        keys.sort();
        keys
    };
    assert_eq!(locked(OWN_KEYS), [b"a", b"b", b"d"]);
    let key = |field, key| [&Field::from(field).encode()[..], key].concat();
    assert_eq!(locked(INDEX), [key("de", b"d"), key("fr", b"a"), key("uk", b"a"), key("us", b"b")]);
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn the_order_agrees_with_a_sorted_map(seed in any::<u64>()) {
        history(seed);
    }
}
