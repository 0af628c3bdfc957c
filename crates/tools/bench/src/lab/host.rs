//! A host of the benchmark's own: a thread in a network namespace, and what it starts there. All of
//! it is gone with the host, and with the process however that ends.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, bail};
use nix::sched::{CloneFlags, unshare};
use sprat_lab::port::TapSpec;

use crate::cables::ip;

/// Longest that something on a host may take: the longest run there is, several times over.
const PATIENCE: Duration = Duration::from_secs(300);

/// Largest of TCP's buffers, bytes: windows of a gigabyte, the largest that TCP can tell.
const TCP_BUFFER: &str = "4096 131072 1073741824";

/// For how long a neighbour is known without being asked again, ms: longer than any run. A
/// namespace has no default for its interfaces.
const NEIGHBOURS_MS: &str = "3600000";

/// What the kernel is told in a namespace: windows may grow, nothing is remembered of the
/// connection before, and nobody looks for routers.
const KNOBS: [(&str, &str); 4] = [
    ("ipv4/tcp_rmem", TCP_BUFFER),
    ("ipv4/tcp_wmem", TCP_BUFFER),
    ("ipv4/tcp_no_metrics_save", "1"),
    ("ipv6/conf/default/accept_ra", "0"),
];

type Task = Box<dyn FnOnce() + Send>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Host {
    number: u8,
    /// Where its namespace can be entered.
    netns: String,
    tasks: Option<SyncSender<Task>>,
    thread: Option<JoinHandle<()>>,
}

/// Something that runs on a host.
#[derive(Debug)]
pub(crate) struct Running<R>(Receiver<Result<R>>);

impl Host {
    /// A host with a loopback, number `number` of its network.
    ///
    /// # Errors
    /// What the machine does not allow, and what would help.
    pub(crate) fn new(number: u8) -> Result<Self> {
        let (tasks, todo) = sync_channel::<Task>(0);
        let (ready, made) = sync_channel(1);
        let live = move || {
            let furnished = furnish();
            let go_on = furnished.is_ok();
            let _ = ready.send(furnished); // whoever asked waits
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

    /// Runs something on the host, and waits for it.
    pub(crate) fn run<R: Send + 'static>(
        &self,
        inside: impl FnOnce() -> Result<R> + Send + 'static,
    ) -> Result<R> {
        self.start(inside)?.get()
    }

    /// Starts something on the host, on a thread of its own.
    pub(crate) fn start<R: Send + 'static>(
        &self,
        inside: impl FnOnce() -> Result<R> + Send + 'static,
    ) -> Result<Running<R>> {
        let (sender, result) = sync_channel(1);
        let task = move || {
            // A thread is born into the namespace of the one that starts it.
            let born = Builder::new().name("on-host".to_owned()).spawn({
                let sender = sender.clone();
                move || drop(sender.send(inside())) // nobody may wait any more
            });
            if let Err(error) = born {
                let _ = sender.send(Err(error.into()));
            }
        };
        let tasks = self.tasks.as_ref().context("a host that is there")?;
        tasks.send(Box::new(task)).map_err(|_| anyhow!("host {} has ended", self.number))?;
        Ok(Running(result))
    }

    /// The interface that a box's port is to it.
    pub(crate) fn tap(&self) -> TapSpec {
        TapSpec { name: self.interface(), netns: Some(self.netns.clone()), mtu: None }
    }

    /// What `ip` knows its namespace by: a thread of it.
    pub(crate) fn id(&self) -> &str {
        self.netns.split('/').nth(4).unwrap_or_default()
    }

    /// The name of its interface.
    pub(crate) fn interface(&self) -> String {
        format!("h{}", self.number)
    }

    /// Its addresses.
    pub(crate) fn v4(&self) -> IpAddr {
        Ipv4Addr::new(10, 9, 0, self.number).into()
    }

    /// See [`v4`](Self::v4).
    pub(crate) fn v6(&self) -> IpAddr {
        Ipv6Addr::new(0xfd09, 0, 0, 0, 0, 0, 0, u16::from(self.number)).into()
    }

    /// Gives it its addresses, once the interface is there.
    pub(crate) fn address(&self) -> Result<()> {
        let (interface, v4, v6) = (self.interface(), self.v4(), self.v6());
        self.run(move || {
            for family in ["ipv4", "ipv6"] {
                // A kernel without IPv6 has no such file, and then its streams say so.
                let _ = fs::write(
                    format!("/proc/sys/net/{family}/neigh/{interface}/base_reachable_time_ms"),
                    NEIGHBOURS_MS,
                );
            }
            on_host(&["addr", "add", &format!("{v4}/24"), "dev", &interface])?;
            on_host(&["addr", "add", &format!("{v6}/64"), "dev", &interface, "nodad"])
        })
    }
}

impl<R> Running<R> {
    /// What it came to, if it ends within a while.
    pub(crate) fn within(&self, time: Duration) -> Result<Option<R>> {
        match self.0.recv_timeout(time) {
            Ok(result) => result.map(Some),
            Err(RecvTimeoutError::Disconnected) => {
                bail!("what ran on a host panicked; its message is above")
            }
            Err(RecvTimeoutError::Timeout) => Ok(None),
        }
    }

    /// What it came to.
    pub(crate) fn get(self) -> Result<R> {
        self.within(PATIENCE)?.context("what runs on a host does not end")
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        drop(self.tasks.take());
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic was told where it happened
        }
    }
}

/// Runs `ip` in the namespace of the calling thread.
pub(crate) fn on_host(args: &[&str]) -> Result<()> {
    ip(args).map_err(anyhow::Error::msg)
}

/// Moves the calling thread into a namespace of its own, and says where that can be entered.
fn furnish() -> Result<String> {
    unshare(CloneFlags::CLONE_NEWNET).map_err(|error| {
        anyhow!("a network namespace is refused: {error}; it needs CAP_SYS_ADMIN: run as root")
    })?;
    on_host(&["link", "set", "lo", "up"])?;
    for (knob, value) in KNOBS {
        // A kernel without IPv6 has no such file, and then its streams say so.
        let _ = fs::write(format!("/proc/sys/net/{knob}"), value);
    }
    Ok(format!(
        "/proc/{}/task/{}/ns/net",
        std::process::id(),
        rustix::thread::gettid().as_raw_nonzero()
    ))
}
