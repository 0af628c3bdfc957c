//! A bad network between two cables: it loses, repeats and reorders frames, by a seed.

use sprat_chance::Chance;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crate::net::{Plug, wait};

/// Frames of which one is overtaken by up to three others.
const REORDERED: u64 = 50;

/// Frames of which one comes twice.
const REPEATED: u64 = 100;

/// Frames held back for others to overtake are let go when nothing more comes for so long.
const HELD: Duration = Duration::from_millis(1);

/// What was done to frames.
#[derive(Default)]
pub(crate) struct Done {
    pub(crate) carried: AtomicU64,
    pub(crate) lost: AtomicU64,
    pub(crate) repeated: AtomicU64,
    pub(crate) reordered: AtomicU64,
}

/// The network, until it is dropped.
pub(crate) struct Middle {
    pub(crate) done: Arc<Done>,
    ended: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Middle {
    /// Joins two cables at the ends `a` and `b`. Of 1,000 frames `lost` are; with none lost nothing
    /// else befalls them.
    pub(crate) fn join(a: &str, b: &str, lost: u64, seed: u64) -> Self {
        let (done, ended) = (Arc::new(Done::default()), Arc::new(AtomicBool::new(false)));
        let plugs = [Plug::of(a), Plug::of(b)];
        let (done_here, ended_here) = (Arc::clone(&done), Arc::clone(&ended));
        let run = move || {
            let mut ways =
                [0, 1].map(|way| Way { random: Chance::new(seed + way), held: VecDeque::new() });
            while !ended_here.load(Ordering::Relaxed) {
                let mut idle = true;
                for (way, [from, to]) in ways.iter_mut().zip([[0, 1], [1, 0]]) {
                    while let Some(frame) = plugs[from].receive() {
                        way.carry(frame, lost, &plugs[to], &done_here);
                        idle = false;
                    }
                }
                if idle {
                    wait([&plugs[0], &plugs[1]], HELD);
                    for (way, to) in ways.iter_mut().zip([1, 0]) {
                        for (_, frame) in way.held.drain(..) {
                            plugs[to].send(&frame);
                        }
                    }
                }
            }
        };
        Self { done, ended, thread: Some(thread::spawn(run)) }
    }
}

impl Drop for Middle {
    fn drop(&mut self) {
        self.ended.store(true, Ordering::Relaxed);
        let _ = self.thread.take().map(JoinHandle::join); // a panic there has been told
    }
}

/// One direction.
struct Way {
    random: Chance,
    /// Frames held back, each until so many others have passed.
    held: VecDeque<(u64, Vec<u8>)>,
}

impl Way {
    fn carry(&mut self, frame: Vec<u8>, lost: u64, to: &Plug, done: &Done) {
        let count = |counter: &AtomicU64| counter.fetch_add(1, Ordering::Relaxed);
        count(&done.carried);
        if lost == 0 {
            to.send(&frame);
            return;
        }
        if self.random.modulo(1000) < lost {
            count(&done.lost);
        } else if self.random.one_in(REORDERED) {
            count(&done.reordered);
            self.held.push_back((1 + self.random.modulo(3), frame));
            return;
        } else {
            to.send(&frame);
            if self.random.one_in(REPEATED) {
                count(&done.repeated);
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
