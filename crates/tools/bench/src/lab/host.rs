//! A host for benchmarks: a thread in its own network namespace, and everything that the thread
//! starts there. The namespace and everything in it end with the host, and with the process.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use nix::sched::{CloneFlags, unshare};
use sprat_lab::port::TapSpec;

use crate::cables::ip;

/// Timeout for a task on a host: longer than the longest run.
const PATIENCE: Duration = Duration::from_secs(300);

/// Limits of TCP's buffers in bytes. They allow windows of a gigabyte, the largest that TCP
/// supports.
const TCP_BUFFER: &str = "4096 131072 1073741824";

/// Time in ms for which a neighbour counts as reachable: longer than any run, so that no probes
/// disturb the run. It is set for each interface, since a namespace has no default for new
/// interfaces.
const NEIGHBOURS_MS: &str = "3600000";

/// Kernel settings of a namespace: large TCP windows, no metrics cached from earlier connections,
/// and no router solicitation.
const KNOBS: [(&str, &str); 4] = [
    ("ipv4/tcp_rmem", TCP_BUFFER),
    ("ipv4/tcp_wmem", TCP_BUFFER),
    ("ipv4/tcp_no_metrics_save", "1"),
    ("ipv6/conf/default/accept_ra", "0"),
];

type Task = Box<dyn FnOnce() + Send>;

/// A host, as the module describes. Dropping this value waits for the host's thread.
#[derive(Debug)]
pub(crate) struct Host {
    number: u8,
    /// Path of the file with which a thread enters the namespace.
    netns: String,
    tasks: Option<SyncSender<Task>>,
    thread: Option<JoinHandle<()>>,
}

/// A task that runs on a host.
#[derive(Debug)]
pub(crate) struct HostTask<R>(Receiver<Result<R>>);

impl Host {
    /// Makes a host with a loopback interface. `number` identifies the host in its network, and
    /// determines the host's addresses.
    ///
    /// # Errors
    /// When the thread cannot be started, or the machine does not allow a network namespace. The
    /// error then names a remedy.
    pub(crate) fn new(number: u8) -> Result<Self> {
        let (tasks, todo) = sync_channel::<Task>(0);
        let (ready, made) = sync_channel(1);
        let live = move || {
            let entered = enter_namespace();
            let go_on = entered.is_ok();
            let _ = ready.send(entered); // the receiver waits below
            if go_on {
                todo.into_iter().for_each(|task| task());
            }
        };
        let thread = Builder::new()
            .name(format!("host-{number}"))
            .spawn(live)
            .context("starting a thread")?;
        let netns = made
            .recv()
            .map_err(|_| anyhow!("a host's thread panicked; its message is above"))??;
        Ok(Self { number, netns, tasks: Some(tasks), thread: Some(thread) })
    }

    /// Runs a task on the host, and waits for the task's result.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        inside: impl FnOnce() -> Result<R> + Send + 'static,
    ) -> Result<R> {
        self.start(inside)?.get()
    }

    /// Starts a task on the host, on a separate thread.
    pub(crate) fn start<R: Send + 'static>(
        &self,
        inside: impl FnOnce() -> Result<R> + Send + 'static,
    ) -> Result<HostTask<R>> {
        let (sender, result) = sync_channel(1);
        let task = move || {
            // A thread inherits the namespace of the thread that starts it.
            let spawned = Builder::new().name("on-host".to_owned()).spawn({
                let sender = sender.clone();
                move || drop(sender.send(inside())) // fails if nothing waits for the result
            });
            if let Err(error) = spawned {
                let _ = sender.send(Err(error.into()));
            }
        };
        let tasks = self.tasks.as_ref().context("a host that is there")?;
        tasks.send(Box::new(task)).map_err(|_| anyhow!("host {} has ended", self.number))?;
        Ok(HostTask(result))
    }

    /// Describes the TAP interface on this host that is a port of the box.
    pub(crate) fn tap(&self) -> TapSpec {
        TapSpec { name: self.interface(), netns: Some(self.netns.clone()), mtu: None }
    }

    /// Returns the id of a thread in the namespace. `ip` finds the namespace by this id.
    pub(crate) fn id(&self) -> &str {
        self.netns.split('/').nth(4).unwrap_or_default()
    }

    /// Returns the name of the host's interface.
    pub(crate) fn interface(&self) -> String {
        format!("h{}", self.number)
    }

    /// Returns the host's IPv4 address.
    pub(crate) fn v4(&self) -> IpAddr {
        Ipv4Addr::new(10, 9, 0, self.number).into()
    }

    /// Returns the host's IPv6 address.
    pub(crate) fn v6(&self) -> IpAddr {
        Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, u16::from(self.number)).into()
    }

    /// Assigns the host's addresses to its interface, which must exist.
    pub(crate) fn assign_addresses(&self) -> Result<()> {
        let (interface, v4, v6) = (self.interface(), self.v4(), self.v6());
        self.run(move || {
            for family in ["ipv4", "ipv6"] {
                // Fails on a kernel without IPv6. There, streams over IPv6 report errors.
                let _ = fs::write(
                    format!("/proc/sys/net/{family}/neigh/{interface}/base_reachable_time_ms"),
                    NEIGHBOURS_MS,
                );
            }
            ip_on_host(&["addr", "add", &format!("{v4}/24"), "dev", &interface])?;
            ip_on_host(&["addr", "add", &format!("{v6}/64"), "dev", &interface, "nodad"])
        })
    }
}

impl<R> HostTask<R> {
    /// Waits up to `time` for the task's result. `None` if the task still runs after that time.
    pub(crate) fn within(&self, time: Duration) -> Result<Option<R>> {
        match self.0.recv_timeout(time) {
            Ok(result) => result.map(Some),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("what ran on a host panicked; its message is above")
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
        }
    }

    /// Waits for the task's result, for at most [`PATIENCE`].
    pub(crate) fn get(self) -> Result<R> {
        self.within(PATIENCE)?.context("what runs on a host does not end")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.tasks.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // prints nothing: a panic was printed when it happened
        }
    }
}

/// Runs `ip` in the namespace of the calling thread.
pub(crate) fn ip_on_host(args: &[&str]) -> Result<()> {
    ip(args).map_err(anyhow::Error::msg)
}

/// Moves the calling thread into a new network namespace. Returns the path of a file by which other
/// threads can enter the namespace.
fn enter_namespace() -> Result<String> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| {
        anyhow!("a network namespace is refused: {error}; it needs CAP_SYS_ADMIN: run as root")
    })?;
    ip_on_host(&["link", "set", "lo", "up"])?;
    for (knob, value) in KNOBS {
        // Fails on a kernel without IPv6. There, streams over IPv6 report errors.
        let _ = fs::write(format!("/proc/sys/net/{knob}"), value);
    }
    Ok(format!(
        "/proc/{}/task/{}/ns/net",
        std::process::id(),
        rustix::thread::gettid().as_raw_nonzero()
    ))
}
