//! Racks. Any text is an error or a plan, and all of a small plan can be rendered.

use crate::input;
use sprat_plan::picture::picture;
use sprat_plan::{Plan, Spec};

/// Limit on the switches of a plan that is made: larger plans take longer than an input may.
const SMALL: usize = 64;

pub(crate) fn run(bytes: &[u8]) {
    let Some(text) = input::<&str>(bytes) else { return };
    let Ok(spec) = Spec::from_toml(text) else { return };
    let small =
        spec.fabric.topology.fabric(spec.fabric.links).is_ok_and(|fabric| fabric.switches <= SMALL);
    let ring =
        |spec: &Spec| spec.cassandra.as_ref().map_or(0, |asked| asked.instances * asked.tokens);
    if small
        && ring(&spec) * spec.chassis.servers <= SMALL * SMALL
        && let Ok(plan) = Plan::new(spec)
    {
        let layout = plan.layout();
        assert_eq!(
            layout.hosts().filter(|host| !host.name.contains("-i")).count(),
            plan.summary.capacity.servers
        );
        assert!(layout.cables().len() >= plan.summary.network.cables);
        assert!(picture(&plan).is_some());
    }
}
