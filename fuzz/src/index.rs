//! What an index finds in values, beside what serde_json reads, and new indexes.

use sprat_wire::index::{
    Field, FieldSource, IndexDefinition, MAX_FIELD, new_index, parse_new_index, split_index_keys,
    with_index_keys,
};
use sprat_wire::value::ValueType;

pub(crate) fn run(bytes: &[u8]) {
    let found = |source, field_type| {
        let field = IndexDefinition { source, field_type }.field(bytes);
        field.map(|field| (field.encode(), field.to_string()))
    };
    let json: Option<serde_json::Value> = serde_json::from_slice(bytes).ok();
    // serde_json reads values that are nested up to this depth, an index also deeper ones.
    let is_shallow = bytes.iter().filter(|byte| b"[{".contains(byte)).count() < 128;
    for (path, pointer) in [("a", "/a"), ("a.b", "/a/b")] {
        let member = json.as_ref().filter(|json| json.is_object());
        let member = member.and_then(|json| json.pointer(pointer));
        let text = member.and_then(|member| member.as_str()).filter(|text| text.len() <= MAX_FIELD);
        let fields = [
            (ValueType::Bytes, text.map(Field::from)),
            (ValueType::Integer, member.and_then(|member| member.as_i64()).map(Field::from)),
            (ValueType::Double, member.and_then(|member| member.as_f64()).map(Field::from)),
        ];
        for (field_type, field) in fields {
            let source = FieldSource::Json { path: path.to_owned() };
            let expected = field.map(|field| (field.encode(), field.to_string()));
            assert!(found(source, field_type) == expected || !is_shallow);
        }
    }
    found(FieldSource::Front { number: 1 }, ValueType::Double);
    found(FieldSource::Offset { at: 1, length: 8 }, ValueType::Integer);
    if let Some((keys, rest)) = split_index_keys(bytes) {
        assert_eq!(with_index_keys(&keys, rest), bytes);
    }
    if let Some((name, definition)) = parse_new_index(bytes) {
        assert_eq!(new_index(name, &definition), bytes);
    }
}
