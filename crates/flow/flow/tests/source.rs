//! Tests that a source returns a file's bytes, whether they are in the page cache or not.

use proptest::prelude::*;
use rustix::fs::Advice;
use sprat_flow::file::{Piece, Source, SourceError, source::SMALL};
use std::fs::File;
use std::path::{Path, PathBuf};

/// Returns directories on filesystems that read in different ways.
fn places() -> Vec<PathBuf> {
    let places = [std::env::temp_dir(), PathBuf::from("/dev/shm")];
    places.into_iter().filter(|place| place.is_dir()).collect()
}

/// The type that `statfs` returns for a filesystem in memory.
const TMPFS: rustix::fs::FsWord = 0x0102_1994;

fn content(bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    blake3::Hasher::new().finalize_xof().fill(&mut content);
    content
}

/// Makes the page cache forget the file, if the filesystem can.
fn forget(file: &File) {
    file.sync_all().unwrap();
    rustix::fs::fadvise(file, 0, None, Advice::DontNeed).unwrap();
}

/// Returns the bytes of a range, with [`Source::next_piece`]. Reads cached pieces from the page
/// cache.
fn read_pieces(path: &Path, range: std::ops::Range<u64>) -> Vec<u8> {
    let file = File::open(path).unwrap();
    let mut source = Source::new(file.try_clone().unwrap(), path, range);
    let mut bytes = Vec::new();
    while let Some(piece) = source.next_piece().unwrap() {
        let length = piece.len();
        match piece {
            Piece::Bytes(piece) => bytes.extend(piece),
            Piece::Cached(range) => {
                let at = bytes.len();
                bytes.resize(at + usize::try_from(length).unwrap(), 0);
                std::os::unix::fs::FileExt::read_exact_at(&file, &mut bytes[at..], range.start)
                    .unwrap();
            }
        }
    }
    bytes
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
        size in 0usize..12 << 20,
        first in any::<prop::sample::Index>(),
        last in any::<prop::sample::Index>(),
        cached in 0u8..3,
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
                    // A hole in the cached range.
                    forget(&file);
                    let mut half = vec![0; size / 2];
            std::os::unix::fs::FileExt::read_at(&file, &mut half, size as u64 / 4).unwrap();
                }
                _ => {}
            }
            let pieces = read_pieces(&path, range.start as u64..range.end as u64);
            prop_assert!(pieces == content[range.clone()], "in pieces");
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
                assert!(
                    matches!(&error, SourceError::Short { at, .. }
                    if (there..promised).contains(at)),
                    "{error}"
                );
                assert!(error.to_string().contains("file"));
            }
        }
    }
}

#[test]
fn what_the_page_cache_has_is_not_read() {
    let cached =
        |source: &mut Source| matches!(source.next_piece().unwrap().unwrap(), Piece::Cached(_));
    for place in places() {
        let directory = tempfile::tempdir_in(&place).unwrap();
        let path = directory.path().join("file");
        std::fs::write(&path, content(3 << 20)).unwrap();
        let file = File::open(&path).unwrap();
        let mut source = Source::new(file.try_clone().unwrap(), &path, 0..3 << 20);
        assert!((0..3).all(|_| cached(&mut source)), "the file was just written");
        assert_eq!(source.next_piece().unwrap(), None);
        forget(&file);
        let mut source = Source::new(file, &path, 0..3 << 20);
        let in_memory = rustix::fs::statfs(&place).unwrap().f_type == TMPFS;
        assert_eq!(cached(&mut source), in_memory, "tmpfs keeps its files in the page cache");
    }
}
