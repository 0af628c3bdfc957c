//! A source gives a file's bytes, wherever they are.

use proptest::prelude::*;
use rustix::fs::Advice;
use sprat_flow::file::{Source, SourceError, source::SMALL};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Places with filesystems that read in different ways.
fn places() -> Vec<PathBuf> {
    let places = [std::env::temp_dir(), PathBuf::from("/dev/shm")];
    places.into_iter().filter(|place| place.is_dir()).collect()
}

fn content(bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    blake3::Hasher::new().finalize_xof().fill(&mut content);
    content
}

/// Has the page cache forget the file, where it can.
fn forget(file: &File) {
    file.sync_all().unwrap();
    rustix::fs::fadvise(file, 0, None, Advice::DontNeed).unwrap();
}

fn read(path: &Path, range: std::ops::Range<u64>) -> Result<Vec<u8>, SourceError> {
    let mut source = Source::new(File::open(path).unwrap(), path, range);
    let mut bytes = Vec::new();
    while let Some(block) = source.next_block()? {
        bytes.extend(block);
        assert_eq!(source.left().end - source.left().start == 0, source.left().is_empty());
    }
    Ok(bytes)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]
    #[test]
    fn any_range_is_its_bytes(
        size in 0usize..12 << 20, first in any::<prop::sample::Index>(), last in any::<prop::sample::Index>(), cached in 0u8..3
    ) {
        let (first, last) = (first.index(size + 1), last.index(size + 1));
        let range = first.min(last)..first.max(last);
        let content = content(size);
        for place in places() {
            let directory = tempfile::tempdir_in(place).unwrap();
            let path = directory.path().join("file");
            std::fs::write(&path, &content).unwrap();
            let file = File::open(&path).unwrap();
            match cached {
                0 => forget(&file),
                1 => {
                    // A hole in what is known.
                    forget(&file);
                    std::os::unix::fs::FileExt::read_at(&file, &mut vec![0; size / 2], size as u64 / 4).unwrap();
                }
                _ => {}
            }
            let got = read(&path, range.start as u64..range.end as u64).unwrap();
            prop_assert!(got == content[range.clone()]);
        }
    }
}

#[test]
fn a_file_that_was_cut_is_an_error_and_never_padding() {
    for place in places() {
        let directory = tempfile::tempdir_in(place).unwrap();
        let path = directory.path().join("file");
        for promised in [9 << 20, SMALL] {
            for there in [0, 1, 4096, promised / 2, promised - 1] {
                std::fs::write(&path, vec![7; usize::try_from(there).unwrap()]).unwrap();
                let file = File::open(&path).unwrap();
                forget(&file);
                let error = read(&path, 0..promised).unwrap_err();
                assert!(matches!(&error, SourceError::Short { at, .. } if (there..promised).contains(at)), "{error}");
                assert!(error.to_string().contains("file"));
            }
        }
    }
}
