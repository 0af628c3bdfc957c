//! Measures the memory of the process. This test is a program of its own, because the memory of
//! other tests would be counted too.
#![allow(missing_docs, reason = "a test is no library")]

use sprat_log::{Config, Durability, Log};

/// Returns the resident bytes of this process.
fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
#[cfg_attr(miri, ignore = "needs the kernel")]
fn two_million_objects_take_little_memory() {
    let before = resident();
    let mut log = Log::new(Config::new(512 << 20, Durability::Tracked)).unwrap();
    let count = 2_000_000usize;
    let mut key = [b'k'; 30];
    for n in 0..count {
        key[..8].copy_from_slice(&n.to_le_bytes());
        log.put(1, &key, &[7; 100]).unwrap();
    }
    let each = (resident() - before) as f64 / count as f64;
    eprintln!(
        "{each:.1} bytes an object, of these {:.1} in the table",
        log.stats().table_bytes as f64 / count as f64
    );
    // An object takes 30 bytes of key, 100 of value, a header of 19, and at most 12 in the hash
    // table.
    assert!(each <= 162.0, "{each} bytes an object");
}
