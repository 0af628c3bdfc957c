//! Checks the simulation against results computed by hand.

use sprat_plan::Plan;
use sprat_plan::quantity::Seconds;
use sprat_plan::racks::ready;
use sprat_plan::simulate::{Pattern, SimulationReport, Workload, frames, simulate};

/// Rate of servers' ports in the published racks, Gb/s.
const GBITS: f64 = 2.5;

fn published(name: &str, from: &str, to: &str) -> Plan {
    let text =
        ready(name).expect(name).toml.replace(from, to).replace("ports = 2\n", "ports = 1\n");
    Plan::from_toml(&text).unwrap_or_else(|error| panic!("{error}"))
}

fn cut(name: &str) -> Plan {
    published(name, "nothing", "")
}

fn stored(name: &str) -> Plan {
    published(name, "cut-through", "store-and-forward")
}

fn workload(requests: usize, answer: u64, pattern: Pattern) -> Workload {
    Workload { requests, request: 50, answer, service: Seconds(0.0), pattern, seed: 1 }
}

fn run(plan: &Plan, workload: &Workload) -> SimulationReport {
    simulate(plan, workload).unwrap_or_else(|error| panic!("{error}"))
}

/// Returns the time of a frame on a server's wire, in ns.
fn wire(bytes: u64) -> f64 {
    bytes as f64 * 8.0 / GBITS
}

fn nanos(time: Seconds) -> f64 {
    time.0 * 1e9
}

#[test]
fn messages_are_cut_into_frames() {
    assert_eq!(frames(1), [84], "the shortest frame, with its preamble and gap");
    assert_eq!(frames(100), [100 + 58 + 24]);
    assert_eq!(frames(1_456), [1_538]);
    assert_eq!(frames(1_457), [1_538, 84]);
    assert_eq!(frames(1 << 20).len(), 721);
}

#[test]
fn latency_of_an_idle_network_matches_arithmetic() {
    let (request, delay, head) = (frames(50)[0], 400.0, wire(58));
    for answer in [100, 1_000, 10_000, 100_000] {
        let load = workload(200, answer, Pattern::OneByOne);
        let all: f64 = frames(answer).into_iter().map(wire).sum();
        // Store and forward: each frame is sent to the switch, and then on to the other server. A
        // short last frame waits behind the long ones.
        let found = run(&stored("mms-5"), &load).by_hops[0].min;
        let expected = 2.0 * wire(request) + delay + all + wire(frames(answer)[0]) + delay;
        assert!((nanos(found) - expected).abs() < 1.0, "{answer}: {found:?}, {expected} by hand");
        // Cut through: the switch receives only the first frame's header before it sends the frame
        // on.
        let found = run(&cut("mms-5"), &load).by_hops[0].min;
        let expected = head + delay + wire(request) + head + delay + all;
        assert!((nanos(found) - expected).abs() < 1.0, "{answer}: {found:?}, {expected} by hand");
    }
}

#[test]
fn cut_through_saves_one_frame() {
    // Published times of reads in us, with store-and-forward and with cut-through: 1 KB 20.7 and
    // 17.9; 10 KB 52.8 and 48.6; 100 KB 373.2 and 369.0.
    for (answer, published) in [(1_000, 2.8), (10_000, 4.2), (100_000, 4.2)] {
        let load = workload(50, answer, Pattern::OneByOne);
        let [stored, cut] = [stored("mms-5"), cut("mms-5")]
            .map(|plan| nanos(run(&plan, &load).by_hops[0].p50) / 1e3);
        assert!(
            (stored - cut - published).abs() < 1.0,
            "{answer} B: {stored} and {cut} us, published {published} apart"
        );
    }
}

#[test]
fn each_link_between_chassis_costs_its_delay() {
    let report = run(&cut("mms-cube"), &workload(3_000, 100, Pattern::OneByOne));
    assert_eq!(
        report.by_hops.iter().map(|latency| latency.hops).collect::<Vec<_>>(),
        [0, 1, 2, 3, 4]
    );
    assert_eq!(
        (report.lost, report.by_hops.iter().map(|latency| latency.count).sum::<usize>()),
        (0, 3_000)
    );
    for pair in report.by_hops.windows(2) {
        let more = nanos(pair[1].p50) - nanos(pair[0].p50);
        // The difference is the switch's delay in both directions, and more: at the first link,
        // which is faster, the switch must wait until a frame has nearly arrived.
        assert!((800.0..2_000.0).contains(&more), "{report:?}");
    }
}

#[test]
fn a_full_network_loses_frames() {
    let plan = published("mms-5", "buffer = \"8MB\"", "buffer = \"50kB\"");
    let calm = run(&plan, &workload(20_000, 1_000, Pattern::Load(0.2)));
    let hectic = run(&plan, &workload(20_000, 1_000, Pattern::Load(0.9)));
    assert_eq!(calm.lost, 0, "{calm:?}");
    let p99 = |report: &SimulationReport| report.by_hops[0].p99.0;
    assert!(p99(&hectic) > 2.0 * p99(&calm), "{calm:?}\n{hectic:?}");
    // 219 responses of 20 kB arrive at one port at once. The buffer holds two of them, and the port
    // sends others meanwhile.
    let incast = run(&plan, &workload(219, 20_000, Pattern::Incast));
    assert!(incast.lost > 100 && incast.fullest.0 == "the switch to c0-n1", "{incast:?}");
    assert!(incast.backlog.0 <= 50_000.0, "{incast:?}");
    let roomy = run(&cut("mms-5"), &workload(219, 20_000, Pattern::Incast));
    assert_eq!(roomy.lost, 0, "{roomy:?}");
    // All responses go over one wire.
    let least = 219.0 * frames(20_000).into_iter().map(wire).sum::<f64>();
    assert!((1.0..1.05).contains(&(nanos(roomy.elapsed) / least)), "{roomy:?}");
}

#[test]
fn the_same_seed_is_the_same_run() {
    let plan = cut("mms-cube");
    let load = workload(5_000, 1_000, Pattern::Load(0.5));
    assert_eq!(run(&plan, &load), run(&plan, &load));
    assert_ne!(run(&plan, &load), run(&plan, &Workload { seed: 2, ..load }));
}

#[test]
fn invalid_workloads_are_errors() {
    let error = |plan: &Plan, workload: &Workload| {
        simulate(plan, workload).expect_err("too much").to_string()
    };
    let plan = cut("mms-5");
    assert!(
        error(&cut("mms-65536"), &workload(1, 1, Pattern::Incast))
            .contains("2883584; want 2 to 20000")
    );
    assert!(error(&plan, &workload(0, 1, Pattern::Incast)).contains("requests: 0"));
    assert!(error(&plan, &workload(1, 0, Pattern::Incast)).contains("answer: 0 bytes"));
    assert!(error(&plan, &workload(1, 1, Pattern::Load(f64::NAN))).contains("load: NaN"));
}
