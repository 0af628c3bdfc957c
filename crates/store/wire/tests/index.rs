//! Indexes: which fields they find in values, and the order of their keys.

use proptest::prelude::*;
use sprat_wire::index::{
    Field, FieldSource, IndexDefinition, IndexError, IndexRecord, MAX_FIELD, MAX_INDEX_KEY,
    MAX_JSON, OrderStats, SortOrder, new_index, parse_new_index, push_escaped, split_index_keys,
    with_index_keys,
};
use sprat_wire::op::Records;
use sprat_wire::value::ValueType;
use sprat_wire::{MAX_KEY, MAX_VALUE};
use std::cmp::Ordering;

fn index(source: FieldSource, field_type: ValueType) -> IndexDefinition {
    IndexDefinition { source, field_type }
}

fn json(path: &str, field_type: ValueType) -> IndexDefinition {
    index(FieldSource::Json { path: path.to_owned() }, field_type)
}

#[test]
fn a_member_of_json_is_found_by_its_path() {
    let value = br#"{"name": "Ada", "age": 36, "home": {"city": "Lon\u0064on", "at": [1, 2]},
        "score": -1.5e3, "alive": false, "gone": null, "big": 18446744073709551615, "a.b": 1}"#;
    let bytes = |path| json(path, ValueType::Bytes).field(value);
    let integer = |path| json(path, ValueType::Integer).field(value);
    let double = |path| json(path, ValueType::Double).field(value);
    assert_eq!(bytes("name"), Some(Field::from("Ada")));
    assert_eq!(bytes("home.city"), Some(Field::from("London")));
    assert_eq!((integer("age"), double("age")), (Some(36.into()), Some(36.0.into())));
    assert_eq!((integer("score"), double("score")), (None, Some((-1500.0).into())));
    assert_eq!((integer("big"), double("big")), (None, Some(18_446_744_073_709_551_615.0.into())));
    for path in ["age", "home", "home.at", "alive", "gone", "none", "home.none", "name.x", "a.b"] {
        assert_eq!(bytes(path), None, "{path}");
    }
    for path in ["name", "home", "alive", "gone", "none"] {
        assert_eq!((integer(path), double(path)), (None, None), "{path}");
    }
    // The last one counts.
    let twice = br#"{"age": 1, "age": 2}"#;
    assert_eq!(json("age", ValueType::Integer).field(twice), Some(2.into()));
    for bad in ["", "{", "[1]", "36", r#"{"age": 36"#, r#"{"age": 36} x"#, r#"{"age": 36,}"#] {
        assert_eq!(json("age", ValueType::Integer).field(bad.as_bytes()), None, "{bad}");
    }
    // Other members may be as deep as they like.
    let deep = format!(r#"{{"a": {}1{}, "age": 36}}"#, "[".repeat(10_000), "]".repeat(10_000));
    assert_eq!(json("age", ValueType::Integer).field(deep.as_bytes()), Some(36.into()));
    assert_eq!(json("a", ValueType::Integer).field(deep.as_bytes()), None);
    assert_eq!(json("a.b", ValueType::Integer).field(deep.as_bytes()), None);
    let age = r#"{"age": 36}"#;
    let padded = |len: usize| [age, &" ".repeat(len - age.len())].concat();
    let by_age = json("age", ValueType::Integer);
    assert_eq!(by_age.field(padded(MAX_JSON).as_bytes()), Some(36.into()));
    assert_eq!(by_age.field(padded(MAX_JSON + 1).as_bytes()), None);
    let long = format!(r#"{{"name": "{}"}}"#, "x".repeat(MAX_FIELD));
    assert!(json("name", ValueType::Bytes).field(long.as_bytes()).is_some());
    let longer = format!(r#"{{"name": "{}"}}"#, "x".repeat(MAX_FIELD + 1));
    assert_eq!(json("name", ValueType::Bytes).field(longer.as_bytes()), None);
}

#[test]
fn bytes_at_an_offset_are_found() {
    let at = |at, length, field_type| index(FieldSource::Offset { at, length }, field_type);
    let mut value = b"tag!".to_vec();
    value.extend((-5_i64).to_le_bytes());
    value.extend(2.5_f64.to_le_bytes());
    assert_eq!(at(0, 3, ValueType::Bytes).field(&value), Some(Field::from("tag")));
    assert_eq!(at(4, 8, ValueType::Integer).field(&value), Some((-5).into()));
    assert_eq!(at(12, 8, ValueType::Double).field(&value), Some(2.5.into()));
    assert_eq!(at(13, 8, ValueType::Double).field(&value), None);
    assert_eq!(at(u32::MAX, u16::MAX, ValueType::Bytes).field(&value), None);
    assert_eq!(at(0, 8, ValueType::Double).field(&f64::NAN.to_le_bytes()), None);
}

#[test]
fn keys_in_front_of_a_value_are_found() {
    let front = |number| index(FieldSource::Front { number }, ValueType::Bytes);
    let value = with_index_keys(&[b"ada", b"", b"london"], b"the value");
    assert_eq!(front(0).field(&value), Some(Field::from("ada")));
    assert_eq!(front(1).field(&value), Some(Field::from("")));
    assert_eq!(front(2).field(&value), Some(Field::from("london")));
    assert_eq!(front(3).field(&value), None);
    let (keys, rest) = split_index_keys(&value).unwrap();
    assert_eq!((keys, rest), (vec![&b"ada"[..], b"", b"london"], &b"the value"[..]));
    for len in 0..value.len() - b"the value".len() {
        assert_eq!(front(0).field(&value[..len]), None, "{len} bytes");
    }
}

#[test]
fn definitions_that_find_nothing_are_refused() {
    let check = |source, field_type| index(source, field_type).check();
    let (bytes, integer) = (ValueType::Bytes, ValueType::Integer);
    for path in ["", ".", "a.", ".a", "a..b", &"x".repeat(256)] {
        assert_eq!(json(path, bytes).check(), Err(IndexError::Path), "{path}");
    }
    let offset = |at, length| FieldSource::Offset { at, length };
    let end = u32::try_from(MAX_VALUE).unwrap();
    assert_eq!(check(offset(end - 8, 8), integer), Ok(()));
    assert_eq!(check(offset(end - 7, 8), integer), Err(IndexError::Offset));
    assert_eq!(check(offset(u32::MAX, 8), bytes), Err(IndexError::Offset));
    assert_eq!(check(offset(0, 0), bytes), Err(IndexError::Offset));
    assert_eq!(check(offset(0, 1025), bytes), Err(IndexError::Offset));
    assert_eq!(check(offset(0, 4), integer), Err(IndexError::Number(4)));
    // Such a definition from outside is not parsed.
    let mut body = Vec::new();
    index(offset(0, 4), integer).push_to(&mut body);
    assert_eq!(IndexDefinition::read(&mut Records::new(&body)), None);
    assert!(new_index("name", &index(offset(0, 4), integer)).is_empty());
    let valid = json("a", bytes);
    assert!(new_index("", &valid).is_empty() && new_index(&"n".repeat(256), &valid).is_empty());
    let bytes = new_index("name", &valid);
    assert_eq!(parse_new_index(&bytes), Some(("name", valid)));
    for len in 0..bytes.len() {
        assert_eq!(parse_new_index(&bytes[..len]), None);
    }
    assert_eq!(parse_new_index(&[&bytes[..], b"x"].concat()), None);
}

fn field() -> impl Strategy<Value = Field<'static>> {
    let bytes = prop::collection::vec(prop_oneof![Just(0), Just(1), Just(255), any::<u8>()], 0..5);
    prop_oneof![
        bytes.prop_map(|bytes| Field::Bytes(bytes.into())),
        any::<i64>().prop_map(Field::Integer),
        (-3..3_i64).prop_map(Field::Integer),
        any::<f64>().prop_filter("a number", |number| !number.is_nan()).prop_map(Field::Double),
        (-3..3_i32).prop_map(|number| Field::Double(f64::from(number) / 2.0)),
    ]
}

fn definition() -> impl Strategy<Value = IndexDefinition> {
    let types =
        prop_oneof![Just(ValueType::Bytes), Just(ValueType::Integer), Just(ValueType::Double)];
    let sources = prop_oneof![
        (0..1000_u32).prop_map(|at| FieldSource::Offset { at, length: 8 }),
        "[a-z]{1,5}(\\.[a-zé]{1,5}){0,3}".prop_map(|path| FieldSource::Json { path }),
        any::<u8>().prop_map(|number| FieldSource::Front { number }),
    ];
    (sources, types).prop_map(|(source, field_type)| index(source, field_type))
}

proptest! {
    #[test]
    fn encoded_fields_are_in_the_order_of_the_fields(
        one in field(),
        other in field(),
        keys: [[u8; 2]; 2],
    ) {
        let order = match (&one, &other) {
            (Field::Bytes(one), Field::Bytes(other)) => one.cmp(other),
            (Field::Integer(one), Field::Integer(other)) => one.cmp(other),
            (Field::Double(one), Field::Double(other)) => one.partial_cmp(other).unwrap(),
            _ => return Ok(()),
        };
        let encoded = [one.encode(), other.encode()];
        prop_assert_eq!(encoded[0].cmp(&encoded[1]), order);
        // The objects' own keys decide if the fields are the same, and only then.
        let whole = [0, 1].map(|at| [&encoded[at][..], &keys[at]].concat());
        let expected = order.then(keys[0].cmp(&keys[1]));
        prop_assert_eq!(whole[0].cmp(&whole[1]), expected);
        if let (Field::Bytes(one), Field::Bytes(other)) = (&one, &other) {
            let mut begin = Vec::new();
            push_escaped(&mut begin, other);
            prop_assert_eq!(encoded[0].starts_with(&begin), one.starts_with(other));
        }
        if order != Ordering::Equal {
            prop_assert!(!encoded[0].starts_with(&encoded[1]));
        }
    }

    #[test]
    fn records_of_indexes_round_trip(
        definition in definition(),
        id in 1..u32::MAX,
        name in "[a-zé]{1,60}",
        numbers: [u64; 4],
    ) {
        let [objects, without_key, bytes, left] = numbers;
        let record = IndexRecord { id, name, definition: definition.clone() };
        let order = SortOrder { table: 3, index: id, definition: Some(definition) };
        let own = SortOrder { table: 4, index: 0, definition: None };
        let stats = OrderStats { index: id, objects, without_key, bytes, left };
        let mut body = Vec::new();
        record.push_to(&mut body);
        order.push_to(&mut body);
        own.push_to(&mut body);
        stats.push_to(&mut body);
        let mut records = Records::new(&body);
        prop_assert_eq!(IndexRecord::read(&mut records), Some(record));
        prop_assert_eq!(SortOrder::read(&mut records), Some(order));
        prop_assert_eq!(SortOrder::read(&mut records), Some(own));
        prop_assert_eq!(OrderStats::read(&mut records), Some(stats));
        prop_assert!(records.is_done());
    }

    #[test]
    fn members_of_json_are_those_that_others_find(
        value in "[\\[\\]{}\",:a0-9 .-]{0,40}|\\{\"a\":(\\{\"b\":)?[0-9\"a{}.-]{0,6}\\}?\\}",
    ) {
        let parsed: Option<serde_json::Value> = serde_json::from_str(&value).ok();
        for (path, pointer) in [("a", "/a"), ("a.b", "/a/b")] {
            let found = parsed.as_ref().filter(|value| value.is_object());
            let found = found.and_then(|value| value.pointer(pointer));
            let text = found.and_then(|found| found.as_str()).map(Field::from);
            prop_assert_eq!(json(path, ValueType::Bytes).field(value.as_bytes()), text);
            let integer = found.and_then(serde_json::Value::as_i64).map(Field::from);
            prop_assert_eq!(json(path, ValueType::Integer).field(value.as_bytes()), integer);
            let double = found.and_then(serde_json::Value::as_f64).map(Field::from);
            prop_assert_eq!(json(path, ValueType::Double).field(value.as_bytes()), double);
        }
    }
}

#[test]
fn the_longest_key_of_an_index_is_within_the_limit() {
    let field = vec![0; MAX_FIELD];
    let value = with_index_keys(&[&field], b"");
    let front = index(FieldSource::Front { number: 0 }, ValueType::Bytes);
    let key = front.key_of(&vec![b'k'; MAX_KEY], &value).unwrap();
    assert_eq!(key.len(), MAX_INDEX_KEY);
}
