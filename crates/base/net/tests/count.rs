//! Tests stamps that count events: of the kernel, which any machine can count, and of the
//! processor, if it can count them.

use std::time::Duration;

use sprat_net::{EventCounter, PerfEvent, stamp, ticks};
use sprat_testing::skip;

/// How long a thread sleeps.
const NAP: Duration = Duration::from_millis(50);

/// Starts a counter; `None` on a machine that does not allow it.
fn start(event: PerfEvent) -> Option<EventCounter> {
    EventCounter::start(event)
        .inspect_err(|error| skip(&format!("stamps that count {event}: {error}")))
        .ok()
}

#[test]
fn stamps_count_while_a_counter_lives() {
    let Some(count) = start(PerfEvent::TaskClock) else { return };
    assert_eq!(count.event(), PerfEvent::TaskClock);
    let first = stamp();
    let mut sum = 0_u64;
    (0..10_000_000_u64).for_each(|number| sum = std::hint::black_box(sum ^ number));
    let passed = stamp() - first;
    assert!(passed > count.cost(), "{passed} ns of work, {} ns of a stamp", count.cost());
    let first = stamp();
    #[allow(clippy::disallowed_methods, reason = "a test that is to wait")]
    std::thread::sleep(NAP);
    let passed = u128::from(stamp() - first);
    assert!(passed < NAP.as_nanos() / 2, "{passed} ns of running, in a nap");
    assert!(EventCounter::start(PerfEvent::PageFaults).is_err(), "one at a time");
    drop(count);
    let (before, ours, after) = (ticks(), stamp(), ticks());
    assert!((before..=after).contains(&ours), "time again");
}

#[test]
fn another_thread_counts_for_itself() {
    let Some(_count) = start(PerfEvent::TaskClock) else { return };
    std::thread::spawn(|| {
        let (before, ours, after) = (ticks(), stamp(), ticks());
        assert!(
            (before..=after).contains(&ours),
            "this thread has no counter, so its stamps are ticks"
        );
    })
    .join()
    .expect("no panic");
}

#[test]
fn faults_are_counted() {
    let Some(count) = start(PerfEvent::PageFaults) else { return };
    assert_eq!(count.cost(), 0, "a stamp causes no page fault");
    let first = stamp();
    assert!(first > 0, "no stamp is 0");
    let pages = std::hint::black_box(vec![1_u8; 64 << 20]);
    assert!(stamp() > first, "{} bytes were touched first", pages.len());
}

#[test]
fn the_processor_counts_or_it_is_said_why_not() {
    for event in PerfEvent::HARDWARE {
        assert_eq!(event.word().parse(), Ok(event));
        match EventCounter::start(event) {
            Ok(count) => assert!(
                event != PerfEvent::Instructions || count.cost() > 0,
                "a stamp costs instructions"
            ),
            Err(error) => {
                let message = error.to_string();
                for word in [event.word(), "perf_event_open: ", "; "] {
                    assert!(message.contains(word), "no {word:?} in {message}");
                }
                skip(&format!("stamps that count {event}: {message}"));
            }
        }
    }
    assert!("dirhams".parse::<PerfEvent>().is_err_and(|message| message.contains("task-clock")));
}
