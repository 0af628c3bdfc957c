//! Facts of hosts. Any text is an error or facts; the facts name only kernel files that tuning may
//! change.

use crate::input;
use sprat_tune::{Facts, chosen, is_kernel_file};

pub(crate) fn run(bytes: &[u8]) {
    let Some(text) = input::<&str>(bytes) else { return };
    let Ok(facts) = Facts::parse(text) else { return };
    for (path, value) in &facts.values {
        assert!(is_kernel_file(path), "{path}");
        assert!(value.contains(chosen(value)));
    }
    assert!(facts.disks.iter().all(|disk| !disk.contains('/')));
}
