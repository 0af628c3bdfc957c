//! A bad network between two cables. It loses, repeats and reorders frames, drawn from a seed.

use sprat_chance::Chance;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::net::{Plug, wait};

/// One of this number of frames is overtaken by up to three others.
const REORDERED: u64 = 50;

/// One of this number of frames is delivered twice.
const REPEATED: u64 = 100;

/// Frames that are held back to be overtaken are delivered when no others arrive for this time.
const HELD: Duration = Duration::from_millis(1);

/// Counts of frames, by what the network did to them.
#[derive(Default)]
pub(crate) struct Counts {
    pub(crate) carried: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) repeated: AtomicU64,
    pub(crate) reordered: AtomicU64,
}

/// The network. It runs until this value is dropped.
pub(crate) struct Middle {
    pub(crate) counts: Arc<Counts>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Middle {
    /// Joins two cables at their ends `a` and `b`. Loses `lost` of 1,000 frames. If `lost` is 0,
    /// frames are also neither repeated nor reordered.
    pub(crate) fn join(a: &str, b: &str, lost: u64, seed: u64) -> Self {
        let (counts, ended) = (Arc::new(Counts::default()), Arc::new(AtomicBool::new(false)));
        let plugs = [Plug::of(a), Plug::of(b)];
        let (counts_there, ended_there) = (Arc::clone(&counts), Arc::clone(&ended));
        let run = move || {
            let mut directions = [0, 1].map(|direction| Direction {
                random: Chance::new(seed + direction),
                held: VecDeque::new(),
            });
            while !ended_there.load(Ordering::Relaxed) {
                let mut idle = true;
                for (direction, [from, to]) in directions.iter_mut().zip([[0, 1], [1, 0]]) {
                    while let Some(frame) = plugs[from].receive() {
                        direction.carry(frame, lost, &plugs[to], &counts_there);
                        idle = false;
                    }
                }
                if idle {
                    wait([&plugs[0], &plugs[1]], HELD);
                    for (direction, to) in directions.iter_mut().zip([1, 0]) {
                        for (_, frame) in direction.held.drain(..) {
                            plugs[to].send(&frame);
                        }
                    }
                }
            }
        };
        Self { counts, ended, thread: Some(thread::spawn(run)) }
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join); // a panic there has been printed
    }
}

/// One direction of the network.
struct Direction {
    random: Chance,
    /// Frames that are held back, each with the number of frames that must still overtake it.
    held: VecDeque<(u64, Vec<u8>)>,
}

impl Direction {
    fn carry(&mut self, frame: Vec<u8>, lost: u64, to: &Plug, counts: &Counts) {
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        count(&counts.carried);
        if lost == 0 {
            to.send(&frame);
            return;
        }
        if self.random.modulo(1000) < lost {
            count(&counts.lost);
        } else if self.random.one_in(REORDERED) {
            count(&counts.reordered);
            self.held.push_back((1 + self.random.modulo(3), frame));
            return;
        } else {
            to.send(&frame);
            if self.random.one_in(REPEATED) {
                count(&counts.repeated);
                to.send(&frame);
            }
        }
        self.held.retain_mut(|(others, frame)| {
            *others -= 1;
            if *others == 0 {
                to.send(frame);
            }
            *others > 0
        });
    }
}
