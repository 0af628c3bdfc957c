//! Captures: other programs read back exactly what passed, with the same bytes and the same
//! nanoseconds.

use proptest::prelude::*;
use sprat_lab::capture::{
    Capture, CaptureError, CaptureSettings, CaptureSummary, CapturedPacket, FLUSH_NANOS, Recorder,
    Totals,
};
use sprat_testing::skip;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

/// A packet as it was recorded, or as it was read back.
#[derive(Clone, Debug, PartialEq)]
struct Record {
    interface: usize,
    at: u64,
    length: u32,
    bytes: Vec<u8>,
}

const NAMES: [&str; 2] = ["left", "right"];

/// A time in 2026 that is not a multiple of a microsecond.
const BEGIN: u64 = 1_780_000_000_123_456_789;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 12,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]

    #[test]
    fn tshark_reads_back_what_passed(
        records in prop::collection::vec(record(), 0..60),
        snap in 1u32..3_000,
    ) {
        if !has_tshark() {
            return Ok(());
        }
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("all.pcapng");
        let settings = CaptureSettings { snap, ..settings(&path) };
        let (capture, mut recorders) = Capture::start(settings, 1).unwrap();
        for seen in &records {
            prop_assert!(record_one(&mut recorders[0], seen));
        }
        drop(recorders);
        let summary = capture.finish();
        prop_assert!(summary.error.is_none());
        prop_assert_eq!(summary.bytes, fs::metadata(&path).unwrap().len());
        let expected: Vec<_> = records
            .iter()
            .map(|seen| Record {
                bytes: seen.bytes[..seen.bytes.len().min(snap as usize)].to_vec(),
                ..seen.clone()
            })
            .collect();
        prop_assert_eq!(read_back(&path), expected);
    }
}

#[test]
fn super_packets_are_written_whole_with_a_comment() {
    if !has_tshark() {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("super.pcapng");
    let (capture, mut recorders) = Capture::start(settings(&path), 1).unwrap();
    let bytes = vec![7; 65_226];
    let seen =
        CapturedPacket { interface: 1, at: BEGIN, length: 65_226, segments: Some((46, 1_448)) };
    // The bytes are in parts, as they are in packet memory.
    assert!(recorders[0].record(&seen, bytes.chunks(2_032)));
    drop(recorders);
    assert!(capture.finish().error.is_none());
    assert_eq!(read_back(&path), [Record { interface: 1, at: BEGIN, length: 65_226, bytes }]);
    let comments = tshark(&["-r", path.to_str().unwrap(), "-T", "fields", "-e", "frame.comment"]);
    assert_eq!(comments.trim(), "super-packet: 46 segments of up to 1448 bytes of payload");
}

#[test]
fn packets_without_memory_are_counted_as_dropped() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("pipe.pcapng");
    // A file that the capture did not make has the name of the ring's second file.
    let (capture, mut recorders) = Capture::start(
        CaptureSettings { memory: 0, ring: Some(((1 << 20) + 500_000, 9)), ..settings(&path) },
        1,
    )
    .unwrap();
    let next = folder.path().join("pipe-00002.pcapng");
    fs::write(&next, "another's").unwrap();
    let record = Record { interface: 1, at: BEGIN, length: 50_000, bytes: vec![1; 50_000] };
    let begun = Instant::now();
    let mut sent = 0;
    while capture.totals()[1].dropped == 0 {
        assert!(
            begun.elapsed() < Duration::from_secs(60),
            "the second file cannot be made, and nothing is dropped"
        );
        record_one(&mut recorders[0], &record);
        sent += 1;
    }
    drop(recorders);
    let CaptureSummary { interfaces, files, error, .. } = capture.finish();
    assert!(matches!(error, Some(CaptureError::File { path, .. }) if path == next));
    assert_eq!(
        fs::read_to_string(&next).unwrap(),
        "another's",
        "an existing file is not overwritten"
    );
    let written =
        walk(&fs::read(&files[0]).unwrap()).iter().filter(|(kind, _)| *kind == 6).count() as u64;
    assert_eq!(interfaces[1], Totals { seen: sent, dropped: sent - written });
    assert_eq!(interfaces[0], Totals::default());
}

#[test]
fn a_recorder_never_blocks() {
    let folder = tempfile::tempdir().unwrap();
    let (capture, mut recorders) = Capture::start(
        CaptureSettings { memory: 0, ..settings(&folder.path().join("a.pcapng")) },
        2,
    )
    .unwrap();
    let record = Record { interface: 0, at: BEGIN, length: 200_000, bytes: vec![1; 200_000] };
    // The packets come faster than any disk writes. Some may be dropped, but all are counted.
    let kept = (0..2_000).filter(|n| record_one(&mut recorders[n % 2], &record)).count() as u64;
    drop(recorders);
    let summary = capture.finish();
    assert!(summary.error.is_none());
    assert_eq!(summary.interfaces[0], Totals { seen: 2_000, dropped: 2_000 - kept });
    let bytes = fs::read(&summary.files[0]).unwrap();
    let blocks = walk(&bytes);
    assert_eq!(blocks.iter().filter(|(kind, _)| *kind == 6).count() as u64, kept);
    // The statistics of the first interface: packets received and packets dropped.
    let (_, first) = blocks.iter().find(|(kind, _)| *kind == 5).unwrap();
    let number = |at: usize| u64::from_le_bytes(first[at..at + 8].try_into().unwrap());
    assert_eq!((&first[12..16], number(16)), (&[4, 0, 8, 0][..], 2_000));
    assert_eq!((&first[24..28], number(28)), (&[5, 0, 8, 0][..], 2_000 - kept));
}

#[test]
fn a_ring_keeps_the_latest() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("ring.pcapng");
    let settings = CaptureSettings { ring: Some((1 << 20, 3)), ..settings(&path) };
    let (capture, mut recorders) = Capture::start(settings, 1).unwrap();
    let record = |n: u64| Record {
        interface: 0,
        at: BEGIN + n,
        length: 9_000,
        bytes: vec![u8::try_from(n % 256).unwrap(); 9_000],
    };
    for n in 0..1_000 {
        // Waits for the writer, so that the test knows which files exist.
        while !record_one(&mut recorders[0], &record(n)) {
            std::thread::yield_now();
        }
    }
    drop(recorders);
    let summary = capture.finish();
    let names: Vec<_> =
        summary.files.iter().map(|path| path.file_name().unwrap().to_str().unwrap()).collect();
    assert_eq!(names, ["ring-00007.pcapng", "ring-00008.pcapng", "ring-00009.pcapng"]);
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 3);
    assert!(summary.files.iter().all(|path| fs::metadata(path).unwrap().len() < (1 << 20) + 1_000));
    if has_tshark() {
        let all: Vec<_> = summary.files.iter().flat_map(|path| read_back(path)).collect();
        let first = 1_000 - all.len() as u64;
        assert_eq!(
            all,
            (first..1_000).map(record).collect::<Vec<_>>(),
            "with no gap between files"
        );
    }
}

#[test]
fn old_blocks_are_flushed_while_running() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("slow.pcapng");
    let (capture, mut recorders) = Capture::start(settings(&path), 1).unwrap();
    record_one(
        &mut recorders[0],
        &Record { interface: 0, at: BEGIN, length: 60, bytes: vec![9; 60] },
    );
    recorders[0].flush(BEGIN + FLUSH_NANOS);
    let begun = Instant::now();
    while !walk(&fs::read(&path).unwrap()).iter().any(|(kind, _)| *kind == 6) {
        assert!(begun.elapsed() < Duration::from_secs(60), "the block is not in the file");
        std::thread::yield_now();
    }
    drop(recorders);
    assert!(capture.finish().error.is_none());
}

#[test]
fn settings_out_of_their_limits_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("never.pcapng");
    let start = |settings| Capture::start(settings, 1).map(drop).unwrap_err().to_string();
    assert!(
        start(CaptureSettings { snap: 0, ..settings(&path) })
            .contains("a snap length of 0; use 1 to 262144")
    );
    assert!(
        start(CaptureSettings { ring: Some((5, 1)), ..settings(&path) }).contains("use 1048576 to")
    );
    assert!(
        start(CaptureSettings { ring: Some((1 << 20, 0)), ..settings(&path) })
            .contains("files of 0")
    );
    assert!(
        start(CaptureSettings { interfaces: Vec::new(), ..settings(&path) })
            .contains("interfaces of 0")
    );
    assert!(!path.exists());
    fs::write(&path, "mine").unwrap();
    assert!(start(settings(&path)).contains("exists"));
}

fn settings(path: &Path) -> CaptureSettings {
    CaptureSettings::new(path, NAMES.map(str::to_owned).into())
}

fn record_one(recorder: &mut Recorder, record: &Record) -> bool {
    let &Record { interface, at, length, .. } = record;
    recorder.record(&CapturedPacket { interface, at, length, segments: None }, [&record.bytes[..]])
}

fn record() -> impl Strategy<Value = Record> {
    let bytes = prop::collection::vec(any::<u8>(), 1..2_500);
    (0..NAMES.len(), 0u64..4_000_000_000_000_000_000, bytes).prop_map(|(interface, at, bytes)| {
        Record { interface, at, length: u32::try_from(bytes.len()).unwrap(), bytes }
    })
}

/// Returns the types and bodies of the complete blocks of a file. The last block may be incomplete,
/// because the writer is still writing it.
fn walk(mut bytes: &[u8]) -> Vec<(u32, Vec<u8>)> {
    let word = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let mut blocks = Vec::new();
    while bytes.len() >= 12 && bytes.len() >= word(bytes, 4) as usize {
        let length = word(bytes, 4) as usize;
        assert_eq!(word(bytes, length - 4) as usize, length, "both lengths agree");
        blocks.push((word(bytes, 0), bytes[8..length - 4].to_vec()));
        bytes = &bytes[length..];
    }
    blocks
}

/// Reads a file with tshark. The bytes and times come from a classic pcap file that tshark writes,
/// everything else from fields that it prints.
fn read_back(path: &Path) -> Vec<Record> {
    let classic = path.with_extension("pcap");
    tshark(&["-r", path.to_str().unwrap(), "-F", "nsecpcap", "-w", classic.to_str().unwrap()]);
    let bytes = fs::read(&classic).unwrap();
    fs::remove_file(&classic).unwrap();
    assert_eq!(bytes[..4], 0xa1b2_3c4d_u32.to_ne_bytes(), "a pcap file with nanoseconds");
    let fields =
        tshark(&["-r", path.to_str().unwrap(), "-T", "fields", "-e", "frame.interface_name"]);
    let mut names = fields.lines();
    let mut rest = &bytes[24..];
    let mut records = Vec::new();
    while !rest.is_empty() {
        let word = |at: usize| u32::from_ne_bytes(rest[at..at + 4].try_into().unwrap());
        let captured = word(8) as usize;
        let name = names.next().unwrap();
        records.push(Record {
            interface: NAMES.iter().position(|other| *other == name).unwrap(),
            at: u64::from(word(0)) * 1_000_000_000 + u64::from(word(4)),
            length: word(12),
            bytes: rest[16..16 + captured].to_vec(),
        });
        rest = &rest[16 + captured..];
    }
    records
}

fn tshark(arguments: &[&str]) -> String {
    let output = Command::new("tshark").args(arguments).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap()
}

fn has_tshark() -> bool {
    use std::sync::LazyLock;
    static THERE: LazyLock<bool> = LazyLock::new(|| {
        let there = Command::new("tshark")
            .arg("--version")
            .output()
            .is_ok_and(|output| output.status.success());
        if !there {
            skip("reading captures back: no tshark here; scripts/setup installs it");
        }
        there
    });
    *THERE
}
