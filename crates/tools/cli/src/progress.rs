//! The progress bar of imports and exports.

use indicatif::{ProgressBar, ProgressStyle};
use sprat_transfer::Progress;

/// Items between two updates of the bar, since drawing takes longer than an item.
const UPDATE_INTERVAL: u64 = 64;

/// A progress bar with bytes, rate and remaining time if the total is known, otherwise with a
/// count. It appears on terminals only.
pub(super) struct Bar {
    bar: ProgressBar,
}

impl Bar {
    pub(super) fn new(total: Option<u64>, quiet: bool) -> Self {
        let bar = match total {
            _ if quiet => ProgressBar::hidden(),
            Some(total) => ProgressBar::new(total).with_style(
                ProgressStyle::with_template(
                    "{bar:32} {bytes}/{total_bytes}  {bytes_per_sec}  {msg}  {eta} left",
                )
                .expect("a constant template"),
            ),
            None => ProgressBar::new_spinner().with_style(
                ProgressStyle::with_template("{spinner} {bytes}  {bytes_per_sec}  {msg}")
                    .expect("a constant template"),
            ),
        };
        Self { bar }
    }

    pub(super) fn show(&self, progress: &Progress) {
        if progress.items.is_multiple_of(UPDATE_INTERVAL) {
            let position = if progress.total_bytes.is_some() {
                progress.consumed_bytes
            } else {
                progress.bytes
            };
            self.bar.set_position(position);
            self.bar.set_message(format!("{} objects", progress.items));
        }
    }

    pub(super) fn done(&self) {
        self.bar.finish_and_clear();
    }
}
