//! Topologies. Any text is an error, or a lab that can be made.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sprat_lab::topology::Topology;

fuzz_target!(|text: &str| {
    if let Ok(lab) = Topology::from_toml(text).and_then(|topology| topology.lay_out()) {
        assert_eq!(lab.plan.check(), Ok(()));
    }
});
