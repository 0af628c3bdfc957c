//! Topologies. Any text is an error, or a lab that can be made.

use crate::input;
use sprat_lab::topology::Topology;

pub(crate) fn run(bytes: &[u8]) {
    let Some(text) = input::<&str>(bytes) else { return };
    if let Ok(lab) = Topology::from_toml(text).and_then(|topology| topology.lay_out()) {
        assert_eq!(lab.plan.check(), Ok(()));
    }
}
