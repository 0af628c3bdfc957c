//! Lists of spread sets. A list that parses is encoded to an equal list, and its pieces cover each
//! file.

use sprat_flow::copy::spread::manifest::Manifest;

pub(crate) fn run(bytes: &[u8]) {
    let Ok(list) = Manifest::parse(bytes) else { return };
    for file in &list.files {
        assert!(file.local().is_relative());
        assert!(file.pieces.iter().all(|piece| piece.host < list.hosts.len()));
        let end = (0..file.layout.count()).fold(0, |next, piece| {
            let range = file.layout.range(piece);
            assert!(range.start == next && range.end > next);
            range.end
        });
        assert_eq!(end, file.layout.length);
    }
    assert_eq!(Manifest::parse(&list.bytes()).expect("what we write we read"), list);
}
