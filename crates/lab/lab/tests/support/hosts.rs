//! Hosts for one test: threads in network namespaces. The namespaces disappear with the threads,
//! however the test ends.

use nix::sched::{CloneFlags, unshare};
use sprat_lab::port::{PacketSpec, TapSpec};
use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::process::Command;
use std::sync::mpsc::{Sender, channel};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

type Task = Box<dyn FnOnce() + Send>;

/// A thread in a network namespace that runs closures sent to it.
pub(crate) struct Host {
    tasks: Option<Sender<Task>>,
    thread: Option<JoinHandle<()>>,
    /// A path by which the host's namespace can be entered.
    netns: String,
    number: u8,
}

impl Host {
    /// Makes host `number` of the test's network. The error says why the machine does not allow it.
    pub(crate) fn new(number: u8) -> Result<Self, String> {
        let (tasks, todo) = channel::<Task>();
        let (ready, made) = channel();
        let live = move || {
            let entered = unshare(CloneFlags::CLONE_NEWNET)
                .map_err(|error| format!("a network namespace: {error}"));
            let entered = entered.and_then(|()| ip("link set lo up"));
            let own = format!(
                "/proc/{}/task/{}/ns/net",
                std::process::id(),
                rustix::thread::gettid().as_raw_nonzero()
            );
            let go_on = entered.is_ok();
            ready.send(entered.map(|()| own)).expect("the test waits for it");
            if go_on {
                todo.into_iter().for_each(|task| task());
            }
        };
        let thread = std::thread::spawn(live);
        let netns = made.recv().map_err(|error| error.to_string())??;
        Ok(Self { tasks: Some(tasks), thread: Some(thread), netns, number })
    }

    /// Runs a closure inside the namespace, and waits until it ends.
    pub(crate) fn run<R: Send + 'static>(&self, inside: impl FnOnce() -> R + Send + 'static) -> R {
        self.start(inside).get()
    }

    /// Runs a closure inside the namespace, on a thread of its own.
    pub(crate) fn start<R: Send + 'static>(
        &self,
        inside: impl FnOnce() -> R + Send + 'static,
    ) -> Running<R> {
        let (sender, result) = channel();
        let task = move || {
            // A child thread is in the namespace of its parent.
            std::thread::spawn(move || {
                // The receiver may be gone.
                let _ = sender.send(catch_unwind(AssertUnwindSafe(inside)));
            });
        };
        self.tasks.as_ref().expect("alive").send(Box::new(task)).expect("the thread accepts tasks");
        Running(result)
    }

    /// Returns the TAP by which a box reaches the host.
    pub(crate) fn tap(&self) -> TapSpec {
        TapSpec { name: format!("h{}", self.number), netns: Some(self.netns.clone()), mtu: None }
    }

    /// Describes an interface in the namespace that a box takes over. The caller sets its name.
    pub(crate) fn packet(&self) -> PacketSpec {
        PacketSpec { netns: Some(self.netns.clone()), ..PacketSpec::default() }
    }

    /// Returns the host's number.
    pub(crate) fn number(&self) -> u8 {
        self.number
    }

    /// Returns the thread by which `ip` finds the host's namespace.
    pub(crate) fn id(&self) -> &str {
        self.netns.split('/').nth(4).expect("/proc/PROCESS/task/THREAD/ns/net")
    }

    /// Sets the host's addresses. Call it once the port is open.
    pub(crate) fn address(&self) {
        let number = self.number;
        self.run(move || {
            ip(&format!("addr add 10.9.0.{number}/24 dev h{number}")).expect("an address");
            ip(&format!("addr add fd09::{number}/64 dev h{number} nodad")).expect("an address");
        });
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.tasks.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // its panic was reported when it happened
        }
    }
}

/// A closure that runs on a host.
pub(crate) struct Running<R>(std::sync::mpsc::Receiver<Result<R, Box<dyn Any + Send>>>);

impl<R> Running<R> {
    /// Waits for the closure to end, and returns its result.
    pub(crate) fn get(self) -> R {
        let ended = self.0.recv_timeout(Duration::from_secs(60)).expect("it ends in a minute");
        ended.unwrap_or_else(|panic| resume_unwind(panic))
    }
}

/// Runs `ip` of iproute2.
pub(crate) fn ip(words: &str) -> Result<(), String> {
    let ran = Command::new("ip")
        .args(words.split(' '))
        .output()
        .map_err(|error| format!("ip: {error}"))?;
    if ran.status.success() {
        Ok(())
    } else {
        Err(format!("ip {words}: {}", String::from_utf8_lossy(&ran.stderr)))
    }
}

/// Waits until the kernel has noticed that these interfaces are up. Before that, the kernel drops
/// what they send.
pub(crate) fn wait_up<const N: usize>(interfaces: [&str; N]) {
    let until = Instant::now() + Duration::from_secs(30);
    for interface in interfaces {
        loop {
            let output = Command::new("ip")
                .args(["-o", "link", "show", interface])
                .output()
                .expect("ip runs")
                .stdout;
            if String::from_utf8_lossy(&output).contains("state UP") {
                break;
            }
            assert!(Instant::now() < until, "{interface} does not come up");
        }
    }
}
