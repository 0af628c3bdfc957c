//! JSON lines. The export of imported lines gives the same bytes.

use crate::drain;
use sprat_transfer::{ItemSink, JsonlExport, JsonlImport, JsonlSink, JsonlSource, JsonlValue};

pub(crate) fn run(bytes: &[u8]) {
    let how = JsonlImport { value: JsonlValue::Line, ..JsonlImport::pairs() };
    let read = |bytes| drain(&mut JsonlSource::new(bytes, "fuzz", None, how.clone()));
    if let Ok(items) = read(bytes) {
        let mut sink = JsonlSink::new(Vec::new(), "out", JsonlExport::Lines);
        for item in &items {
            sink.put(item).expect("memory");
        }
        let (out, omitted) = sink.finish().expect("memory");
        assert_eq!(omitted.count(), 0);
        assert_eq!(read(&out).expect("our own output"), items);
    }
    let _ = drain(&mut JsonlSource::new(bytes, "fuzz", None, JsonlImport::pairs()));
}
