//! Ctrl-C and SIGTERM as a channel to wait on.

use anyhow::{Context as _, Result};
use signal_hook::consts::{SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use std::sync::mpsc::{Receiver, channel};
use std::thread;

/// Returns a channel that receives a message at the first Ctrl-C or SIGTERM. The second signal ends
/// the process at once. A separate thread waits for the signals.
pub(crate) fn signals() -> Result<Receiver<()>> {
    let mut signals = Signals::new([SIGINT, SIGTERM]).context("cannot watch for signals")?;
    let (sender, receiver) = channel();
    let watch = move || {
        let mut signals = signals.forever();
        if signals.next().is_some() {
            let _ = sender.send(()); // the receiver is gone if the command is ending already
        }
        if let Some(signal) = signals.next() {
            let _ = signal_hook::low_level::emulate_default_handler(signal);
        }
    };
    thread::Builder::new()
        .name("sprat-signals".into())
        .spawn(watch)
        .context("cannot start a thread")?;
    Ok(receiver)
}
