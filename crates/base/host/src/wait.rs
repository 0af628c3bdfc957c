//! Polls for conditions that send no notification, such as the lock of a killed process or a server
//! that starts.
//!
//! These functions sleep, so they are for control threads and commands. A node's loop sets a timer
//! instead.

use std::time::{Duration, Instant};

/// Calls `is_so` at least once, with a `pause` between calls, until it returns true, or until a
/// call ends after `patience`. Returns whether `is_so` has returned true.
pub fn wait_until(patience: Duration, pause: Duration, mut is_so: impl FnMut() -> bool) -> bool {
    retry(patience, pause, |()| true, || if is_so() { Ok(()) } else { Err(()) }).is_ok()
}

/// Calls `attempt`, with a `pause` between calls, until it succeeds, or until a call fails after
/// `patience`. Gives up early if `passes` returns false for an error: such an error does not pass
/// with time.
///
/// # Errors
/// The error of the last attempt.
pub fn retry<T, E>(
    patience: Duration,
    pause: Duration,
    mut passes: impl FnMut(&E) -> bool,
    mut attempt: impl FnMut() -> Result<T, E>,
) -> Result<T, E> {
    let begun = Instant::now();
    loop {
        match attempt() {
            Err(error) if begun.elapsed() < patience && passes(&error) => {
                #[expect(
                    clippy::disallowed_methods,
                    reason = "the caller's thread has nothing else to do"
                )]
                std::thread::sleep(pause);
            }
            ended => return ended,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_millis(1);

    #[test]
    fn attempts_end_with_success_with_an_error_that_stays_and_with_patience() {
        let mut tries = 0;
        let mut attempt = |succeeds: u32| {
            tries += 1;
            if tries == succeeds { Ok(tries) } else { Err(tries) }
        };
        let patience = Duration::from_secs(60);
        assert_eq!(retry(patience, PAUSE, |_| true, || attempt(3)), Ok(3));
        assert_eq!(retry(patience, PAUSE, |tries| *tries < 5, || attempt(0)), Err(5));
        assert_eq!(retry(Duration::ZERO, PAUSE, |_| true, || attempt(0)), Err(6));
        assert!(retry(5 * PAUSE, PAUSE, |_| true, || attempt(0)).is_err());
    }

    #[test]
    fn a_condition_that_holds_is_not_waited_for() {
        assert!(wait_until(Duration::ZERO, PAUSE, || true));
        assert!(!wait_until(2 * PAUSE, PAUSE, || false));
    }
}
