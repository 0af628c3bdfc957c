//! Encodes requests for etcd's JSON gateway and decodes its responses: bytes are in base64, and
//! 64-bit numbers are text.

use super::Row;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

fn bytes(bytes: impl AsRef<[u8]>) -> String {
    STANDARD.encode(bytes)
}

/// Returns a range request for one key.
pub(super) fn one(key: &str) -> Value {
    json!({ "key": bytes(key) })
}

/// Returns a range request for all keys that begin with `prefix`, which must end with a slash.
pub(super) fn all(prefix: &str) -> Value {
    let head = prefix.strip_suffix('/').expect("a prefix ends with a slash");
    // '0' is the byte after '/'.
    json!({ "key": bytes(prefix), "range_end": bytes(format!("{head}0")) })
}

/// Returns a transaction that makes `changes` if `key` was last written at `mod_revision`; zero
/// means that the key must not exist.
pub(super) fn transaction(
    (key, mod_revision): (&str, u64),
    changes: &[(String, Option<Vec<u8>>)],
) -> Value {
    let change = |(key, value): &(String, Option<Vec<u8>>)| match value {
        Some(value) => json!({ "request_put": { "key": bytes(key), "value": bytes(value) } }),
        None => json!({ "request_delete_range": { "key": bytes(key) } }),
    };
    let compare = json!({
        "key": bytes(key), "target": "MOD", "result": "EQUAL",
        "mod_revision": mod_revision.to_string(),
    });
    json!({ "compare": [compare], "success": changes.iter().map(change).collect::<Vec<_>>() })
}

/// Decodes the rows of a range response; `None` if it is malformed.
pub(super) fn rows(response: &Value) -> Option<Vec<Row>> {
    let header = response.get("header")?;
    number(header.get("revision"))?;
    let Some(rows) = response.get("kvs") else { return Some(Vec::new()) };
    let row = |row: &Value| {
        let key = String::from_utf8(decode(row.get("key")?)?).ok()?;
        // The gateway leaves out empty values.
        let value = row.get("value").map_or(Some(Vec::new()), decode)?;
        Some(Row { key, value, mod_revision: number(row.get("mod_revision"))? })
    };
    rows.as_array()?.iter().map(row).collect()
}

/// Decodes the outcome of a transaction: its revision, or `Some(None)` if the condition did not
/// hold. `None` if the response is malformed.
pub(super) fn outcome(response: &Value) -> Option<Option<u64>> {
    let revision = number(response.get("header")?.get("revision"))?;
    // The gateway leaves out `false`.
    let succeeded = response.get("succeeded").map_or(Some(false), Value::as_bool)?;
    Some(succeeded.then_some(revision))
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
    fn missing_fields_are_empty_or_false() {
        let header = json!({ "revision": "7" });
        assert_eq!(rows(&json!({ "header": header })).map(|rows| rows.len()), Some(0));
        let row = json!({ "key": bytes("k"), "mod_revision": "5" });
        let rows = rows(&json!({ "header": header, "kvs": [row] })).unwrap();
        assert_eq!((rows[0].key.as_str(), rows[0].value.len(), rows[0].mod_revision), ("k", 0, 5));
        assert_eq!(outcome(&json!({ "header": header })), Some(None));
        assert_eq!(outcome(&json!({ "header": header, "succeeded": true })), Some(Some(7)));
    }

    #[test]
    fn malformed_responses_are_refused() {
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
    fn a_prefix_range_ends_before_the_next_key() {
        assert_eq!(all("/a/"), json!({ "key": bytes("/a/"), "range_end": bytes("/a0") }));
    }
}
