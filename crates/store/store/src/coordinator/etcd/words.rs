//! etcd's language, as its gateway has it: JSON, with bytes in base64 and numbers of 64 bits as
//! text.

use super::Row;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

fn bytes(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// The question for one key.
pub(super) fn one(key: &str) -> Value {
    json!({ "key": bytes(key) })
}

/// The question for all keys that begin with `prefix`, which ends with a slash.
pub(super) fn all(prefix: &str) -> Value {
    let head = prefix.strip_suffix('/').expect("a prefix ends with a slash");
    // The byte behind a slash is a zero's.
    json!({ "key": bytes(prefix), "range_end": bytes(format!("{head}0")) })
}

/// Changes, to be made if a key was last written in this revision; in none, if it is zero.
pub(super) fn transaction(
    (key, written): (&str, u64),
    changes: &[(String, Option<Vec<u8>>)],
) -> Value {
    let change = |(key, value): &(String, Option<Vec<u8>>)| match value {
        Some(value) => json!({ "request_put": { "key": bytes(key), "value": bytes(value) } }),
        None => json!({ "request_delete_range": { "key": bytes(key) } }),
    };
    let compare = json!({ "key": bytes(key), "target": "MOD", "result": "EQUAL", "mod_revision": written.to_string() });
    json!({ "compare": [compare], "success": changes.iter().map(change).collect::<Vec<_>>() })
}

/// The rows of an answer; `None` when it makes no sense.
pub(super) fn rows(answer: &Value) -> Option<Vec<Row>> {
    let header = answer.get("header")?;
    number(header.get("revision"))?;
    let Some(rows) = answer.get("kvs") else { return Some(Vec::new()) };
    let row = |row: &Value| {
        let key = String::from_utf8(decode(row.get("key")?)?).ok()?;
        // What is empty is left out.
        let value = row.get("value").map_or(Some(Vec::new()), decode)?;
        Some(Row { key, value, written: number(row.get("mod_revision"))? })
    };
    rows.as_array()?.iter().map(row).collect()
}

/// What came of a transaction: its revision, or `None` if the condition did not hold; `None` around
/// it when the answer makes no sense.
pub(super) fn outcome(answer: &Value) -> Option<Option<u64>> {
    let revision = number(answer.get("header")?.get("revision"))?;
    // What is false is left out.
    let done = answer.get("succeeded").map_or(Some(false), Value::as_bool)?;
    Some(done.then_some(revision))
}

fn decode(value: &Value) -> Option<Vec<u8>> {
    STANDARD.decode(value.as_str()?).ok()
}

fn number(value: Option<&Value>) -> Option<u64> {
    value?.as_str()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_empty_or_false() {
        let header = json!({ "revision": "7" });
        assert_eq!(rows(&json!({ "header": header })).map(|rows| rows.len()), Some(0));
        let row = json!({ "key": bytes("k"), "mod_revision": "5" });
        let rows = rows(&json!({ "header": header, "kvs": [row] })).unwrap();
        assert_eq!((rows[0].key.as_str(), rows[0].value.len(), rows[0].written), ("k", 0, 5));
        assert_eq!(outcome(&json!({ "header": header })), Some(None));
        assert_eq!(outcome(&json!({ "header": header, "succeeded": true })), Some(Some(7)));
    }

    #[test]
    fn what_makes_no_sense_is_no_answer() {
        for answer in [
            json!(null),
            json!({}),
            json!({ "header": {} }),
            json!({ "header": { "revision": 7 } }),
        ] {
            assert!(rows(&answer).is_none() && outcome(&answer).is_none(), "{answer}");
        }
        let header = json!({ "revision": "7" });
        for row in
            [json!({}), json!({ "key": "!", "mod_revision": "5" }), json!({ "key": bytes("k") })]
        {
            assert!(rows(&json!({ "header": header, "kvs": [row] })).is_none());
        }
        assert!(outcome(&json!({ "header": header, "succeeded": "yes" })).is_none());
    }

    #[test]
    fn a_prefix_ends_before_its_next_neighbour() {
        assert_eq!(all("/a/"), json!({ "key": bytes("/a/"), "range_end": bytes("/a0") }));
    }
}
