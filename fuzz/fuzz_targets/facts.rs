//! What hosts say of themselves: any text is an error or facts, and what is advised by them are
//! changes of files of the kernel's.
#![no_main]

use libfuzzer_sys::fuzz_target;

// By its path: the crate brings a driver for Cassandra, which has no part in this.
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
