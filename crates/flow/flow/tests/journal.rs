//! Tests the journal. Its content is true, however much of it remains after an interruption.

use crate::support;
use proptest::prelude::*;
use sprat_flow::copy::Options;
use sprat_flow::group::{GROUP_BYTES, count, range};
use sprat_flow::journal::{Identity, begin, groups, parse};
use std::collections::BTreeMap;
use std::fs;
use support::{Fault, Server, content, copy, options};

fn identity(length: u64) -> Identity {
    Identity {
        source: "http://left.example/file".to_owned(),
        length,
        validator: "\"tag\"".to_owned(),
        part: "1.2.3".to_owned(),
        boot: "then".to_owned(),
    }
}

/// A journal of version 1. This file never changes, because later versions of the program must read
/// it.
const VERSION_1: &[u8] = include_bytes!("fixtures/journal-1");

#[test]
fn the_format_is_what_it_was() {
    let mut values = BTreeMap::from([(0, [1; 32]), (1, [2; 32]), (5, [3; 32])]);
    let mut bytes = begin(&identity(7 * GROUP_BYTES));
    groups(&mut bytes, &values);
    if std::env::var_os("UPDATE_GOLDEN").is_some_and(|_| VERSION_1.is_empty()) {
        fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/fixtures/journal-1"), &bytes)
            .unwrap();
    }
    assert!(bytes == VERSION_1);
    let parsed = parse(VERSION_1).unwrap();
    assert_eq!(
        (&parsed.identity, &parsed.groups, parsed.whole),
        (&identity(7 * GROUP_BYTES), &values, VERSION_1.len())
    );
    // Groups that the file does not have are ignored.
    values.insert(7, [4; 32]);
    groups(&mut bytes, &values);
    assert_eq!(parse(&bytes).unwrap().groups.len(), 3);
}

proptest! {
    #[test]
    fn a_prefix_says_less_and_nothing_else(
        batches in prop::collection::vec(
            prop::collection::btree_map(0u64..3000, any::<[u8; 32]>(), 0..40),
            0..8,
        ),
        cut in any::<prop::sample::Index>(),
        flip in prop::option::of((any::<prop::sample::Index>(), 0u8..8)),
    ) {
        let mut bytes = begin(&identity(3000 * GROUP_BYTES));
        let mut all = BTreeMap::new();
        for batch in &batches {
            groups(&mut bytes, batch);
            all.extend(batch.iter().map(|(index, value)| (*index, *value)));
        }
        let whole = parse(&bytes).unwrap();
        prop_assert_eq!(whole.whole, bytes.len());
        prop_assert_eq!(&whole.groups, &all);
        let ever: std::collections::BTreeSet<_> = batches.iter().flatten().collect();
        let mut torn = bytes[..cut.index(bytes.len() + 1)].to_vec();
        if let Some((at, bit)) = flip && !torn.is_empty() {
            let at = at.index(torn.len());
            torn[at] ^= 1 << bit;
        }
        if let Some(parsed) = parse(&torn) {
            prop_assert!(parsed.whole <= torn.len());
            prop_assert!(parsed.groups.iter().all(|group| ever.contains(&group)));
        }
    }

    #[test]
    fn any_bytes_are_a_journal_or_are_not(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = parse(&bytes);
        let _ = parse(&[begin(&identity(1 << 30)), bytes].concat());
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(12))]
    /// With any prefix of the journal, and any bytes in the groups that the prefix does not list,
    /// the file becomes exact. Listed groups are not fetched again.
    #[test]
    fn any_prefix_makes_the_exact_file(
        cut in any::<prop::sample::Index>(),
        after in 0usize..6,
        verified: bool,
        streams in 1usize..3,
    ) {
        let bytes = (6 << 20) + 4321;
        let (content, length) = (content(bytes), bytes as u64);
        let server = Server::start(content.clone(), verified);
        let directory = tempfile::tempdir().unwrap();
        let target = directory.path().join("file");
        server.fault([Fault::Cut { after: (after << 20) + 70_000, reset: false }]);
        let eager = Options { retries: 0, sync_bytes: 1, ..options() };
        copy(&server.url(), &target, eager).0.unwrap_err();
        let part = directory.path().join("file.sprat-part");
        let journal = directory.path().join("file.sprat-journal");
        let mut promised = 0;
        if journal.exists() {
            let bytes = fs::read(&journal).unwrap();
            let torn = &bytes[..cut.index(bytes.len() + 1)];
            fs::write(&journal, torn).unwrap();
            let left = parse(torn).map(|parsed| parsed.groups).unwrap_or_default();
            let mut written = fs::read(&part).unwrap();
            for index in (0..count(length)).filter(|index| !left.contains_key(index)) {
                let range = range(length, index);
                let at = |offset: u64| usize::try_from(offset).unwrap();
                written[at(range.start)..at(range.end)].fill(0xee);
            }
            let ranges = left.keys().map(|index| range(length, *index));
            promised = ranges.map(|range| range.end - range.start).sum();
            // Write in place, so that the part stays the same file.
            let file = fs::File::options().write(true).open(&part).unwrap();
            std::os::unix::fs::FileExt::write_all_at(&file, &written, 0).unwrap();
        }
        let (outcome, events) = copy(&server.url(), &target, Options { streams, ..options() });
        prop_assert_eq!(outcome.unwrap().progress.received, length - promised, "{:?}", events);
        prop_assert!(fs::read(&target).unwrap() == content);
    }
}

#[test]
fn a_journal_is_for_its_part_alone() {
    let bytes = 5 << 20;
    let server = Server::start(content(bytes), true);
    let directory = tempfile::tempdir().unwrap();
    let target = directory.path().join("file");
    for with in ["nothing", "another"] {
        server.fault([Fault::Cut { after: 3 << 20, reset: false }]);
        copy(&server.url(), &target, Options { retries: 0, ..options() }).0.unwrap_err();
        let part = directory.path().join("file.sprat-part");
        fs::remove_file(&part).unwrap();
        if with == "another" {
            fs::write(&part, vec![7; bytes]).unwrap();
        }
        copy(&server.url(), &target, options()).0.unwrap();
        assert_eq!(
            fs::read(&target).unwrap(),
            content(bytes),
            "with {with} in the place of the part"
        );
        fs::remove_file(&target).unwrap();
    }
}
