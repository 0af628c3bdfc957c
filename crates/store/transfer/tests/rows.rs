//! CSV and JSONL: rows come back byte for byte, pairs from any table, bad input is named.

use crate::table;
use proptest::collection::{btree_map, btree_set, vec};
use proptest::prelude::*;
use sprat_transfer::{
    CSV_HEADER_KEY, Column, CsvExport, CsvImport, CsvSink, CsvSource, CsvValue, Error,
    ItemSource as _, JsonlExport, JsonlImport, JsonlSink, JsonlSource, JsonlValue, LargePolicy,
    OmitReason, Omitted, RowError,
};
use sprat_wire::MAX_VALUE;
use table::Table;

fn import_csv(bytes: &[u8], how: CsvImport) -> Result<Table, Error> {
    Table::import(&mut CsvSource::new(bytes, "t.csv", None, how))
}

fn import_jsonl(bytes: &[u8], how: JsonlImport) -> Result<Table, Error> {
    Table::import(&mut JsonlSource::new(bytes, "t.jsonl", None, how))
}

fn export_csv(table: &mut Table, how: CsvExport) -> (Vec<u8>, Omitted) {
    let mut sink = CsvSink::new(Vec::new(), "out", how).unwrap();
    table.export(&mut sink).unwrap();
    sink.finish().unwrap()
}

fn export_jsonl(table: &mut Table, how: JsonlExport) -> (Vec<u8>, Omitted) {
    let mut sink = JsonlSink::new(Vec::new(), "out", how);
    table.export(&mut sink).unwrap();
    sink.finish().unwrap()
}

fn export_rows(table: &mut Table) -> Vec<u8> {
    let header = table.get(CSV_HEADER_KEY).map(<[u8]>::to_vec);
    let (bytes, omitted) = export_csv(table, CsvExport::Rows { header, delimiter: b',' });
    assert_eq!(omitted.count(), 0);
    bytes
}

fn column(name: &str) -> Column {
    Column::Name(name.to_owned())
}

fn field(name: &str) -> JsonlValue {
    JsonlValue::Field(name.to_owned())
}

fn lines(key: &str) -> JsonlImport {
    JsonlImport { key: key.to_owned(), value: JsonlValue::Line, large: LargePolicy::Refuse }
}

fn row_error(result: Result<Table, Error>) -> (u64, RowError) {
    match result {
        Err(Error::Row { line, error, .. }) => (line, error),
        Err(other) => panic!("{other}"),
        Ok(_) => panic!("imported"),
    }
}

/// Texts with many of the characters that CSV and JSON treat specially.
fn text() -> impl Strategy<Value = String> {
    "[a-z\", \n\r\t;é\u{1}\u{1F41F}\\\\]{0,12}"
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    /// The `csv` crate writes a file. The import must read the same fields, and the export must
    /// return the same file.
    #[test]
    fn csv_rows_come_back_byte_for_byte(
        keys in btree_set(text(), 1..20),
        cells in vec((text(), text()), 20),
        crlf: bool,
        always: bool,
    ) {
        let terminator = if crlf { csv::Terminator::CRLF } else { csv::Terminator::Any(b'\n') };
        let style = if always { csv::QuoteStyle::Always } else { csv::QuoteStyle::Necessary };
        let mut writer =
            csv::WriterBuilder::new().terminator(terminator).quote_style(style).from_writer(vec![]);
        writer.write_record(["before", "the key", "after"]).unwrap();
        for (key, (before, after)) in keys.iter().zip(&cells) {
            writer.write_record([before, key, after]).unwrap();
        }
        let file = writer.into_inner().unwrap();

        let mut table = import_csv(&file, CsvImport::rows(column("the key"))).unwrap();
        let expected: Vec<_> = keys.iter().map(String::as_bytes).collect();
        let got: Vec<_> = table.items[1..].iter().map(|item| &item.key[..]).collect();
        prop_assert_eq!(got, expected);
        prop_assert_eq!(export_rows(&mut table), file.clone());

        let how = CsvImport {
            value: CsvValue::Column(column("after")),
            keep_header: false,
            ..CsvImport::rows(column("the key"))
        };
        let values = import_csv(&file, how).unwrap();
        let got: Vec<_> = values.items.iter().map(|item| &item.value[..]).collect();
        let expected: Vec<_> =
            cells[..keys.len()].iter().map(|(_, after)| after.as_bytes()).collect();
        prop_assert_eq!(got, expected);
    }

    /// An import of any bytes ends, and the export of its items is imported as the same items.
    #[test]
    fn any_bytes_are_rows_or_an_error(
        bytes in prop_oneof![
            vec(any::<u8>(), 0..200),
            "[ab\",\n\r]{0,60}".prop_map(String::into_bytes),
        ],
    ) {
        let how = CsvImport { header: false, ..CsvImport::rows(Column::Index(0)) };
        if let Ok(mut table) = import_csv(&bytes, how.clone()) {
            let out = export_rows(&mut table);
            prop_assert!(out.len() <= bytes.len() + 1);
            let again = import_csv(&out, how).unwrap();
            prop_assert_eq!(again.items, table.items);
        }
        let _ = import_jsonl(&bytes, JsonlImport::pairs());
        let _ = import_csv(&bytes, CsvImport::pairs());
    }

    #[test]
    fn any_table_comes_back_from_pairs(
        items in btree_map(
            prop_oneof![vec(any::<u8>(), 0..20), text().prop_map(String::into_bytes)],
            prop_oneof![vec(any::<u8>(), 0..40), text().prop_map(String::into_bytes)],
            0..12,
        ),
    ) {
        let mut table = Table::of(items);
        let (file, omitted) = export_csv(&mut table, CsvExport::Pairs { delimiter: b',' });
        prop_assert_eq!(omitted.count(), 0);
        prop_assert_eq!(&import_csv(&file, CsvImport::pairs()).unwrap().items, &table.items);
        prop_assert!(std::str::from_utf8(&file).is_ok());

        let (file, omitted) = export_csv(&mut table, CsvExport::Pairs { delimiter: b'\t' });
        prop_assert_eq!(omitted.count(), 0);
        let tabs = CsvImport { delimiter: b'\t', ..CsvImport::pairs() };
        prop_assert_eq!(&import_csv(&file, tabs).unwrap().items, &table.items);

        let (file, omitted) = export_jsonl(&mut table, JsonlExport::Pairs);
        prop_assert_eq!(omitted.count(), 0);
        prop_assert_eq!(&import_jsonl(&file, JsonlImport::pairs()).unwrap().items, &table.items);
        prop_assert!(std::str::from_utf8(&file).is_ok());
    }

    #[test]
    fn jsonl_lines_come_back_byte_for_byte(
        keys in btree_set(text(), 0..20),
        extra in text(),
        spaces in " {0,3}",
        crlf: bool,
    ) {
        let end = if crlf { "\r\n" } else { "\n" };
        let json = |text: &str| serde_json::to_string(text).unwrap();
        let file: String = keys
            .iter()
            .map(|key| {
                format!(
                    "{{{spaces}\"x\":[1.50,{}],\"id\" :{}}}{spaces}{end}",
                    json(&extra),
                    json(key)
                )
            })
            .collect();
        let mut table = import_jsonl(file.as_bytes(), lines("id")).unwrap();
        prop_assert_eq!(table.keys(), keys.into_iter().collect::<Vec<_>>());
        let (out, omitted) = export_jsonl(&mut table, JsonlExport::Lines);
        prop_assert_eq!(omitted.count(), 0);
        prop_assert_eq!(out, file.into_bytes());
    }
}

#[test]
fn a_csv_header_is_kept_with_its_byte_order_mark_and_found_without() {
    let file = "\u{feff}id;name\r\n1;\"a;\nb\"\r\n\r\n2;c".as_bytes();
    let how = CsvImport { delimiter: b';', ..CsvImport::rows(column("id")) };
    let mut table = import_csv(file, how).unwrap();
    assert_eq!(table.get(CSV_HEADER_KEY), Some("\u{feff}id;name\r".as_bytes()));
    assert_eq!(table.get(b"1"), Some(&b"1;\"a;\nb\"\r"[..]));
    assert_eq!(table.items.len(), 3, "the blank row is skipped");
    let header = table.get(CSV_HEADER_KEY).map(<[u8]>::to_vec);
    let (out, _) = export_csv(&mut table, CsvExport::Rows { header, delimiter: b';' });
    assert_eq!(out, "\u{feff}id;name\r\n1;\"a;\nb\"\r\n2;c\n".as_bytes());
}

#[test]
fn an_empty_file_is_an_empty_table() {
    assert!(import_csv(b"", CsvImport::rows(column("id"))).unwrap().items.is_empty());
    assert!(import_jsonl(b"\n\r\n", lines("id")).unwrap().items.is_empty());
}

#[test]
fn pairs_need_no_encoding_and_no_header() {
    let table = |file: &str, how| import_csv(file.as_bytes(), how).unwrap();
    for file in [
        "key,value\na,1\n",
        "value,note,key\n1,x,a\n",
        "\u{feff}key,value,encoding\na,MQ==,value\n",
    ] {
        assert_eq!(table(file, CsvImport::pairs()).get(b"a"), Some(&b"1"[..]), "{file:?}");
    }
    let headless = table("a,1\nkey,value\n", CsvImport::headless_pairs());
    assert_eq!((headless.get(b"a"), headless.get(b"key")), (Some(&b"1"[..]), Some(&b"value"[..])));
    for (file, missing) in [("key,val\na,1\n", "value"), ("a,value\na,1\n", "key")] {
        let (line, fault) = row_error(import_csv(file.as_bytes(), CsvImport::pairs()));
        assert!(
            matches!((line, fault), (1, RowError::NoField(name)) if name == missing),
            "{file:?}"
        );
    }
}

#[test]
fn bad_csv_is_named_by_line_and_fault() {
    let rows = || CsvImport::rows(column("id"));
    let (line, error) = row_error(import_csv(b"a,b\n", rows()));
    assert!(matches!((line, error), (1, RowError::NoField(name)) if name == "id"));
    let open = b"id,x\n1,\"a\nb\"\n2,\"open\n3,c\n";
    assert!(matches!(row_error(import_csv(open, rows())), (4, RowError::Unclosed)));
    let how = CsvImport { header: false, ..CsvImport::rows(Column::Index(1)) };
    assert!(matches!(row_error(import_csv(b"a,b\n\nc\n", how)), (3, RowError::NoField(_))));
    let pairs = |row: &str| {
        row_error(import_csv(format!("key,value,encoding\n{row}\n").as_bytes(), CsvImport::pairs()))
    };
    assert!(matches!(pairs("a,b,rot13"), (2, RowError::Encoding(_))));
    assert!(matches!(pairs("a,!,value"), (2, RowError::Base64(_))));
    assert!(matches!(pairs("!,b,both"), (2, RowError::Base64(_))));
    // An unquoted comma in a value: the part after it would be lost.
    assert!(matches!(pairs("a,b,,c"), (2, RowError::Fields { found: 4, first: 3 })));
    let headless = |file: &[u8]| row_error(import_csv(file, CsvImport::headless_pairs()));
    assert!(matches!(headless(b"a,b\n\nc,d,e\n"), (3, RowError::Fields { found: 3, first: 2 })));
    assert!(matches!(headless(b"a,b,c\nd,e\n"), (2, RowError::Fields { found: 2, first: 3 })));
    let long = format!("id\n{}\n", "k".repeat(65_536));
    assert!(matches!(
        row_error(import_csv(long.as_bytes(), rows())),
        (2, RowError::LongKey(65_536))
    ));
}

#[test]
fn bad_jsonl_is_named_by_line_and_fault() {
    let bad = |line: &str, how: JsonlImport| {
        row_error(import_jsonl(format!("{{\"id\":\"ok\",\"v\":1}}\n{line}\n").as_bytes(), how))
    };
    assert!(matches!(bad("{\"ID\":1}", lines("id")), (2, RowError::NoField(_))));
    assert!(matches!(bad("{\"id\":null}", lines("id")), (2, RowError::KeyType)));
    assert!(matches!(bad("{\"id\":1,\"id\":2}", lines("id")), (2, RowError::Twice(_))));
    assert!(matches!(bad("[1]", lines("id")), (2, RowError::Json(_))));
    assert!(matches!(bad("{\"id\":1} {}", lines("id")), (2, RowError::Json(_))));
    let fields = || JsonlImport { value: field("v"), ..lines("id") };
    assert!(matches!(bad("{\"id\":1}", fields()), (2, RowError::NoField(name)) if name == "v"));
    assert!(matches!(
        bad("{\"id\":1,\"v\":1,\"v_base64\":\"\"}", fields()),
        (2, RowError::Twice(_))
    ));
    assert!(matches!(bad("{\"id\":1,\"v_base64\":\"!\"}", fields()), (2, RowError::Base64(_))));
}

#[test]
fn jsonl_fields_are_text_or_json_as_it_stands() {
    let file = b"{\"id\":1.50,\"v\":\"\\u0041\\n\"}\n{\"id\":\"b\",\"v\":{ \"x\": [1, 2.0] }}\n";
    let table = import_jsonl(file, JsonlImport { value: field("v"), ..lines("id") }).unwrap();
    assert_eq!(table.get(b"1.50"), Some(&b"A\n"[..]));
    assert_eq!(table.get(b"b"), Some(&b"{ \"x\": [1, 2.0] }"[..]));
}

#[test]
fn long_rows_are_refused_by_line_or_skipped_by_name() {
    let long = "x".repeat(MAX_VALUE);
    let exact = "y".repeat(MAX_VALUE - 2);
    let file = format!("id,v\n1,\"a\n{long}\"\n2,{exact}\n3,c\n");
    let rows = CsvImport::rows(column("id"));
    let (line, refused) = row_error(import_csv(file.as_bytes(), rows.clone()));
    assert!(
        matches!((line, refused), (2, RowError::Large(bytes)) if bytes == MAX_VALUE as u64 + 6)
    );

    let how = CsvImport { large: LargePolicy::Skip, keep_header: false, ..rows };
    let mut source = CsvSource::new(file.as_bytes(), "t.csv", Some(file.len() as u64), how);
    let table = Table::import(&mut source).unwrap();
    assert_eq!(table.keys(), ["2", "3"]);
    assert_eq!(source.omitted().named(), [("t.csv, line 2".to_owned(), OmitReason::Large)]);
    assert_eq!(Some(source.consumed_bytes()), source.total_bytes());

    let file = format!("{{\"id\":1,\"v\":\"{long}x\"}}\n{{\"id\":2,\"v\":\"{long}\"}}\n");
    let how = JsonlImport { value: field("v"), large: LargePolicy::Skip, ..lines("id") };
    assert_eq!(import_jsonl(file.as_bytes(), how).unwrap().keys(), ["2"]);
}

#[test]
fn values_that_are_not_one_row_are_left_out_of_rows_by_name() {
    let values = ["a,b", "two\nrows", "\"open", "", "\r", "\"fine\n\""];
    let mut table = Table::of(values.map(|value| (value.into(), value.into())));
    let (out, omitted) = export_csv(&mut table, CsvExport::Rows { header: None, delimiter: b',' });
    assert_eq!(out, b"a,b\n\"fine\n\"\n");
    assert_eq!((omitted.count(), omitted.failures()), (4, 4));

    let values = ["{\"a\":1}", "{\"a\":\n1}", "no json", "", " 7 "];
    let mut table = Table::of(values.map(|value| (value.into(), value.into())));
    let (out, omitted) = export_jsonl(&mut table, JsonlExport::Lines);
    assert_eq!(out, b"{\"a\":1}\n 7 \n");
    assert_eq!(omitted.failures(), 3);
}

/// Fuzzing found that a row under the key that Sprat reserves was imported, and was then missing
/// from every export.
#[test]
fn a_row_under_our_own_key_is_refused_and_its_neighbours_are_not() {
    let row = |key: &str| format!("id,v\n{key},1\n");
    let rows = || CsvImport::rows(column("id"));
    let own = std::str::from_utf8(CSV_HEADER_KEY).unwrap();
    assert!(matches!(row_error(import_csv(row(own).as_bytes(), rows())), (2, RowError::Reserved)));
    let mut near = import_csv(row("\0sprat:").as_bytes(), rows()).unwrap();
    assert_eq!(export_rows(&mut near), row("\0sprat:").as_bytes());

    let line = format!("{{\"id\":{}}}\n", serde_json::to_string(own).unwrap());
    assert!(matches!(
        row_error(import_jsonl(line.as_bytes(), lines("id"))),
        (1, RowError::Reserved)
    ));

    let mut kept = import_csv(row("a").as_bytes(), rows()).unwrap();
    let (pairs, _) = export_csv(&mut kept, CsvExport::Pairs { delimiter: b',' });
    assert_eq!(import_csv(&pairs, CsvImport::pairs()).unwrap().items, kept.items);
    let (pairs, _) = export_jsonl(&mut kept, JsonlExport::Pairs);
    assert_eq!(import_jsonl(&pairs, JsonlImport::pairs()).unwrap().items, kept.items);
}
