//! CSV. The export of imported rows gives the same bytes.

use crate::drain;
use crate::input;
use sprat_transfer::{Column, CsvExport, CsvImport, CsvSink, CsvSource, ItemSink};

pub(crate) fn run(bytes: &[u8]) {
    let Some(input) = input::<(bool, bool, &[u8])>(bytes) else { return };
    let (header, semicolon, bytes) = input;
    let delimiter = if semicolon { b';' } else { b',' };
    let how =
        CsvImport { header, keep_header: header, delimiter, ..CsvImport::rows(Column::Index(0)) };
    let read = |bytes| drain(&mut CsvSource::new(bytes, "fuzz", None, how.clone()));
    if let Ok(items) = read(bytes) {
        let (first, rows) =
            if header && !items.is_empty() { items.split_at(1) } else { items.split_at(0) };
        let header = first.first().map(|item| item.value.clone());
        let mut sink =
            CsvSink::new(Vec::new(), "out", CsvExport::Rows { header, delimiter }).expect("memory");
        for row in rows {
            sink.put(row).expect("memory");
        }
        let (out, omitted) = sink.finish().expect("memory");
        assert_eq!(omitted.count(), 0);
        assert_eq!(read(&out).expect("our own output"), items);
    }
    let _ = drain(&mut CsvSource::new(bytes, "fuzz", None, CsvImport::pairs()));
}
