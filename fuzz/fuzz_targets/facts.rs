//! Facts of hosts. Any text is an error or facts; the facts name only kernel files that tuning may
//! change.
#![no_main]

use libfuzzer_sys::fuzz_target;

// Included by path: the crate depends on a driver for Cassandra, which this target does not need.
#[path = "../../crates/rack/tune/src/facts.rs"]
#[allow(dead_code, reason = "only its parser is fuzzed")]
mod facts;

fuzz_target!(|text: &str| {
    let Ok(facts) = facts::Facts::parse(text) else { return };
    for (path, value) in &facts.values {
        assert!(facts::is_kernel_file(path), "{path}");
        assert!(value.contains(facts::chosen(value)));
    }
    assert!(facts.disks.iter().all(|disk| !disk.contains('/')));
});
