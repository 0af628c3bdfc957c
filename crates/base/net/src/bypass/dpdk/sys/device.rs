//! Devices of DPDK's, each opened once and used by one thread.

use sprat_host::lock;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::bell::{Bell, SocketSnapshot};
use super::eal::error;
use super::ffi::{self, Description, RawCounters, RawSetup};
use super::frames::{Buffers, Draft, Pool, transmit, transmit_with};
use crate::Mac;

/// Frames that each of a device's rings holds.
const DESCRIPTORS: u16 = 1024;

/// Ports that are open in this process.
static OPEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// An open device, with the queues that its thread uses: usually one each way.
pub(in crate::bypass) struct Device {
    port: u16,
    queue: u16,
    /// The number of this thread's queues, of which `queue` is the first. The thread polls them in
    /// turn, and sends by the first.
    queues: u16,
    next_queue: u16,
    /// The state shared with other threads, if several have queues of the device.
    shared: Option<Arc<SharedDevice>>,
    name: String,
    description: Description,
    group: Option<Mac>,
    vlan: Option<u16>,
    started: bool,
    copies: bool,
    bell: Option<Bell>,
    /// The arguments with which the device was opened; `None` if it was the first one found.
    arguments: Option<String>,
    setup: Option<Setup>,
    /// False while the device is closed, which it stays if it cannot be reopened: `port` is then no
    /// longer its own.
    open: bool,
    /// The device's counters from before it was reopened.
    before: DeviceCounters,
    /// Makes it `!Sync`, because queues have no lock: the device may move between threads, but only
    /// one thread may use it at a time.
    _thread: PhantomData<Cell<()>>,
}

/// The settings of a device.
#[derive(Clone, Copy, Debug)]
pub(in crate::bypass) struct Setup {
    /// Hardware address to use instead of the device's own.
    pub(in crate::bypass) mac: Option<Mac>,
    /// The largest IP packet, in bytes; `None` keeps the device's setting.
    pub(in crate::bypass) mtu: Option<u16>,
    /// The VLAN of all its frames. Most cards receive any VLAN; a virtual function receives only
    /// the VLANs that were assigned to it.
    pub(in crate::bypass) vlan: Option<u16>,
    /// Whether the device verifies and computes checksums, as far as it can.
    pub(in crate::bypass) check: bool,
    /// Whether the device receives frames to all addresses (promiscuous mode).
    pub(in crate::bypass) all: bool,
    /// Whether the device is to wake a sleeping node by an interrupt, if it can.
    pub(in crate::bypass) ring: bool,
}

/// The counters of a device.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(in crate::bypass) struct DeviceCounters {
    /// Frames lost because earlier ones were not read in time.
    pub(in crate::bypass) missed: u64,
    /// Frames received with errors.
    pub(in crate::bypass) errors_in: u64,
    /// Frames that could not be sent.
    pub(in crate::bypass) errors_out: u64,
    /// Frames lost because the pool was empty.
    pub(in crate::bypass) no_buffer: u64,
}

impl Device {
    /// Opens the device that `arguments` names, with arguments after commas. If `arguments` is
    /// `None`, opens the first device that is not open yet. DPDK must have been started.
    ///
    /// # Errors
    /// If there is no such device, or it is open already. Errors of DPDK.
    pub(in crate::bypass) fn open(arguments: Option<&str>) -> io::Result<Self> {
        let mut open = OPEN.lock().expect("nobody panics while opening");
        let (port, name) = match arguments {
            Some(arguments) => attach(arguments)?,
            None => first(&open)?,
        };
        if !open.insert(port) {
            return Err(io::Error::new(
                io::ErrorKind::AddrInUse,
                format!("device {name} is open already"),
            ));
        }
        let mut description = Description {
            driver: [0; 32],
            mac: [0; 6],
            max_mtu: 0,
            can: 0,
            numa: 0,
            max_queues: 0,
        };
        let device = |description: Description| {
            let copies = text_of(&description.driver) == "net_vhost";
            let arguments = arguments.map(str::to_owned);
            let before = DeviceCounters::default();
            Self {
                port,
                queue: 0,
                queues: 1,
                next_queue: 0,
                shared: None,
                name,
                description,
                group: None,
                vlan: None,
                started: false,
                copies,
                bell: None,
                arguments,
                setup: None,
                open: true,
                before,
                _thread: PhantomData,
            }
        };
        // SAFETY: the port exists; `description` outlives the call.
        match unsafe { ffi::sprat_dpdk_describe(port, &raw mut description) } {
            0 => Ok(device(description)),
            code => {
                open.remove(&port);
                Err(error("read the device's properties", code))
            }
        }
    }

    /// Closes the device and opens, sets up and starts it again with the same settings and pool,
    /// because the interface below it was replaced, or it has lost its peer. The device's hardware
    /// address may be another one afterwards. Does nothing if the device was never set up.
    ///
    /// # Errors
    /// `ResourceBusy` if several nodes share the device, which then stays open. Errors of DPDK:
    /// after these the device may have no port, and counts as stopped until another attempt
    /// succeeds.
    pub(in crate::bypass) fn reopen(&mut self, pool: &Pool) -> io::Result<()> {
        let Some(setup) = self.setup else { return Ok(()) };
        if self.shared.is_some() {
            let reason =
                format!("device {} is in use by several nodes; start the server again", self.name);
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, reason));
        }
        let queues = self.queues;
        self.before = self.counters();
        self.close();
        let before = SocketSnapshot::take();
        let mut fresh = Self::open(self.arguments.as_deref())?;
        (fresh.setup, fresh.group, fresh.before) = (Some(setup), self.group, self.before);
        *self = fresh;
        self.set_up(&setup, &vec![pool.buffers(); queues.into()])?;
        self.bell = before.new_bells().pop();
        self.start()
    }

    fn close(&mut self) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        self.started = false;
        self.bell = None;
        if self.shared.take().is_some() {
            return; // the last thread to drop it closes the port
        }
        close(self.port);
    }

    #[inline]
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// Returns the number of the queue to poll next.
    #[inline]
    pub(super) fn queue_to_poll(&mut self) -> u16 {
        if self.queues > 1 {
            self.next_queue = (self.next_queue + 1) % self.queues;
        }
        self.queue + self.next_queue
    }

    /// Locks the device's control functions, if several threads share the device.
    fn control(&self) -> Option<MutexGuard<'_, ()>> {
        let shared = self.shared.as_ref()?;
        Some(lock(&shared.control))
    }

    /// Returns the arguments with which the device was opened; `None` if it was the first one
    /// found.
    pub(in crate::bypass) fn arguments(&self) -> Option<&str> {
        self.arguments.as_deref()
    }

    /// Returns the device's name: as in the arguments, or `port` and a number for the first device
    /// found.
    pub(in crate::bypass) fn name(&self) -> &str {
        &self.name
    }

    /// Returns the name of the device's driver.
    pub(in crate::bypass) fn driver(&self) -> String {
        text_of(&self.description.driver)
    }

    /// Returns the device's hardware address.
    pub(in crate::bypass) fn mac(&self) -> Mac {
        Mac(self.description.mac)
    }

    /// Returns the size of the largest IP packet that the device carries, in bytes; `None` if the
    /// device does not report it.
    pub(in crate::bypass) fn max_mtu(&self) -> Option<u16> {
        (self.description.max_mtu > 0).then_some(self.description.max_mtu)
    }

    /// Returns the NUMA node to which the device is attached; `None` if the device does not report
    /// one.
    pub(in crate::bypass) fn node(&self) -> Option<i32> {
        (self.description.numa >= 0).then_some(self.description.numa)
    }

    /// Returns whether the device computes the checksums of the frames it sends.
    pub(in crate::bypass) fn checks_sent(&self) -> bool {
        self.description.can & ffi::CAN_CHECK_SENT != 0
    }

    /// Sets up one queue for each element of `buffers`, which holds that queue's frames. Call this
    /// before the start.
    ///
    /// # Errors
    /// Errors of DPDK, or if the device has too few queues.
    pub(in crate::bypass) fn set_up(
        &mut self,
        setup: &Setup,
        buffers: &[&Buffers],
    ) -> io::Result<()> {
        let queues = u16::try_from(buffers.len()).expect("few");
        if queues > self.description.max_queues {
            let (name, most) = (&self.name, self.description.max_queues);
            let reason = format!(
                "device {name} has {most} queues, and each of {queues} nodes needs its own"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let pools: Vec<_> = buffers.iter().map(|buffers| buffers.as_ptr()).collect();
        let check = if setup.check { ffi::CAN_CHECK_RECEIVED | ffi::CAN_CHECK_SENT } else { 0 };
        let filter = if setup.vlan.is_some() { ffi::CAN_FILTER_VLAN } else { 0 };
        let using =
            self.description.can & (check | filter) | if setup.ring { ffi::CAN_RING } else { 0 };
        let raw = RawSetup {
            pools: pools.as_ptr(),
            mac: setup.mac.as_ref().map_or(std::ptr::null(), |mac| mac.0.as_ptr()),
            mtu: setup.mtu.unwrap_or(0),
            descriptors: DESCRIPTORS,
            queues,
            using,
        };
        // SAFETY: the port is ours. Pools and hardware address outlive the call, and the pools
        // outlive the queues set up here, because their owner closes the device first.
        let code = unsafe { ffi::sprat_dpdk_setup(self.port, &raw const raw) };
        if code < 0 {
            return Err(error(&format!("set up device {}", self.name), code));
        }
        if let Some(mac) = setup.mac {
            self.description.mac = mac.0;
        }
        self.setup = Some(*setup);
        self.queues = queues;
        self.vlan = setup.vlan.filter(|_| using & ffi::CAN_FILTER_VLAN != 0);
        Ok(())
    }

    /// Makes the device receive frames to this group, in addition to broadcasts and frames to its
    /// own address.
    ///
    /// # Errors
    /// Errors of DPDK.
    pub(in crate::bypass) fn join_group(&mut self, group: Mac) -> io::Result<()> {
        self.group = Some(group);
        if self.started { self.apply() } else { Ok(()) }
    }

    /// Applies the receive filters, which a start resets.
    fn apply(&self) -> io::Result<()> {
        let _control = self.control();
        let (name, port) = (&self.name, self.port);
        if self.setup.is_some_and(|setup| setup.all) {
            // SAFETY: the port is ours.
            let code = unsafe { ffi::sprat_dpdk_hear_all(port) };
            if code < 0 {
                return Err(error(&format!("switch device {name} to promiscuous mode"), code));
            }
        }
        if let Some(vlan) = self.vlan {
            // SAFETY: the port is ours.
            let code = unsafe { ffi::sprat_dpdk_hear_vlan(port, vlan) };
            if code < 0 {
                return Err(error(&format!("make device {name} receive VLAN {vlan}"), code));
            }
        }
        if let Some(group) = self.group {
            // SAFETY: the port is ours; an address has six bytes, which are copied.
            let code = unsafe { ffi::sprat_dpdk_hear_group(port, group.0.as_ptr()) };
            if code < 0 {
                return Err(error(&format!("make device {name} receive the group {group}"), code));
            }
        }
        Ok(())
    }

    /// Starts the device. Call it again later if the device reports that its peer is not there yet.
    ///
    /// # Errors
    /// Errors of DPDK.
    pub(in crate::bypass) fn start(&mut self) -> io::Result<()> {
        if !self.open {
            return Err(io::Error::new(
                io::ErrorKind::NotFound,
                format!("device {} is gone", self.name),
            ));
        }
        // SAFETY: the port is ours and set up.
        let code = unsafe { ffi::sprat_dpdk_start(self.port) };
        if code < 0 {
            return Err(error(&format!("start device {}", self.name), code));
        }
        self.started = true;
        self.find_interrupt();
        self.apply()
    }

    /// Returns whether the device has been started.
    #[inline]
    pub(in crate::bypass) fn is_started(&self) -> bool {
        self.started
    }

    /// Returns whether the link is up.
    pub(in crate::bypass) fn is_up(&self) -> bool {
        let _control = self.control();
        // SAFETY: the port is ours.
        self.started && unsafe { ffi::sprat_dpdk_link(self.port) } == 1
    }

    /// Returns the bell by which the device wakes a sleeping node, if it has one.
    #[inline]
    pub(in crate::bypass) fn bell(&self) -> Option<&Bell> {
        self.bell.as_ref()
    }

    /// Sets the bell that was found when the device was opened.
    pub(in crate::bypass) fn set_bell(&mut self, bell: Option<Bell>) {
        self.bell = bell;
    }

    /// Finds the device's interrupt. It may have changed or appeared when the device was started or
    /// a peer connected.
    pub(in crate::bypass) fn find_interrupt(&mut self) {
        if !self.started
            || matches!(self.bell, Some(Bell::Socket(_)))
            || !self.setup.is_some_and(|setup| setup.ring)
        {
            return;
        }
        // SAFETY: the port is ours, and started.
        let fd = unsafe { ffi::sprat_dpdk_bell(self.port, self.queue) };
        self.bell = if fd < 0 { None } else { Bell::of_interrupt(fd).ok() };
    }

    /// Returns whether a shared device itself steers datagrams to the right queues; `None` for a
    /// device that one node uses.
    pub(in crate::bypass) fn steers(&self) -> Option<bool> {
        self.shared.as_ref().map(|shared| shared.steers.load(Ordering::Relaxed))
    }

    /// Arms the bell for the next frame, or disarms it. Returns whether the device was able to.
    pub(in crate::bypass) fn arm(&self, armed: bool) -> bool {
        let _control = self.control();
        // SAFETY: the port is ours.
        self.started && unsafe { ffi::sprat_dpdk_arm(self.port, self.queue, armed.into()) } == 0
    }

    /// Returns the device's counters, including those from before it was reopened.
    pub(in crate::bypass) fn counters(&self) -> DeviceCounters {
        let mut raw = RawCounters::default();
        if !self.open {
            return self.before;
        }
        let _control = self.control();
        // SAFETY: the port is ours; `raw` outlives the call. A device without counters leaves
        // zeros.
        let _ = unsafe { ffi::sprat_dpdk_counters(self.port, &raw mut raw) };
        let before = self.before;
        DeviceCounters {
            missed: before.missed + raw.missed,
            errors_in: before.errors_in + raw.errors_in,
            errors_out: before.errors_out + raw.errors_out,
            no_buffer: before.no_buffer + raw.no_buffer,
        }
    }

    /// Returns whether the device copies each frame before a transmit returns.
    #[inline]
    pub(in crate::bypass) fn copies(&self) -> bool {
        self.copies
    }

    /// Sends a frame that begins with `head` and ends with `tail`, if the device
    /// [copies](Self::copies) frames. Returns `head` if it has no room.
    #[inline]
    pub(in crate::bypass) fn transmit_with(
        &mut self,
        pool: &Pool,
        head: Draft,
        tail: &[u8],
    ) -> Option<Draft> {
        assert!(self.copies, "{} may still need a frame that it has taken", self.name);
        transmit_with((self.port, self.queue), pool, head, tail)
    }

    /// Sends the first of `frames`, as many as the device takes, and returns how many.
    #[inline]
    pub(in crate::bypass) fn transmit(&mut self, frames: &mut Vec<Draft>) -> usize {
        transmit((self.port, self.queue), frames)
    }
}

/// A device of which several threads have a queue each. The last thread to drop it closes the
/// device.
pub(in crate::bypass) struct SharedDevice {
    port: u16,
    name: String,
    description: Description,
    arguments: Option<String>,
    setup: Option<Setup>,
    copies: bool,
    vlan: Option<u16>,
    /// The queues that no thread has taken yet, each with its socket if it has one.
    free: Mutex<Vec<Option<Option<Bell>>>>,
    /// Whether the device itself steers datagrams to the right queues.
    steers: AtomicBool,
    /// The buffers of each queue's frames, dropped when the device is closed.
    buffers: Vec<Arc<Buffers>>,
    control: Mutex<()>,
}

impl SharedDevice {
    /// Shares a device that has been set up with these buffers and started.
    pub(in crate::bypass) fn of(
        mut device: Device,
        buffers: Vec<Arc<Buffers>>,
        bells: Vec<Bell>,
    ) -> Self {
        assert!(std::mem::take(&mut device.open) && device.started, "an open device, and started");
        let bells = bells.into_iter().map(Some).chain(std::iter::repeat_with(|| None));
        let free = bells.take(buffers.len()).map(Some).collect();
        Self {
            port: device.port,
            name: std::mem::take(&mut device.name),
            description: device.description,
            arguments: device.arguments.take(),
            setup: device.setup,
            copies: device.copies,
            vlan: device.vlan,
            free: Mutex::new(free),
            steers: AtomicBool::new(false),
            buffers,
            control: Mutex::new(()),
        }
    }

    /// Returns the buffers of a queue.
    pub(in crate::bypass) fn buffers(&self, queue: usize) -> Arc<Buffers> {
        Arc::clone(&self.buffers[queue])
    }

    /// Returns the device with queue number `queue`, for the calling thread.
    ///
    /// # Errors
    /// If the queue was taken before: a queue has no lock, so only one thread may have it.
    pub(in crate::bypass) fn queue(self: &Arc<Self>, queue: usize) -> io::Result<Device> {
        let Some(bell) = lock(&self.free)[queue].take() else {
            let reason = format!("queue {queue} of device {} is another node's", self.name);
            return Err(io::Error::new(io::ErrorKind::AddrInUse, reason));
        };
        let mut device = Device {
            port: self.port,
            queue: u16::try_from(queue).expect("few"),
            queues: 1,
            next_queue: 0,
            shared: Some(Arc::clone(self)),
            name: self.name.clone(),
            description: self.description,
            group: None,
            vlan: self.vlan,
            started: true,
            copies: self.copies,
            bell,
            arguments: self.arguments.clone(),
            setup: self.setup,
            open: true,
            before: DeviceCounters::default(),
            _thread: PhantomData,
        };
        device.find_interrupt();
        Ok(device)
    }

    /// Makes the device steer each of the consecutive UDP ports from `first` on to a queue of its
    /// own, if it can. Does not try if the frames have a VLAN tag.
    pub(in crate::bypass) fn steer(&self, first: u16, ipv6: bool) {
        let _control = lock(&self.control);
        // SAFETY: the port is ours, and started.
        let steer = |queue: u16| unsafe {
            ffi::sprat_dpdk_steer(self.port, queue, first + queue, ipv6.into())
        };
        let queues = u16::try_from(self.buffers.len()).expect("few");
        let plain = self.setup.is_some_and(|setup| setup.vlan.is_none());
        self.steers.store(plain && (0..queues).all(|queue| steer(queue) == 0), Ordering::Relaxed);
    }
}

impl Drop for SharedDevice {
    fn drop(&mut self) {
        close(self.port);
    }
}

/// Closes a port that belongs to the caller.
fn close(port: u16) {
    let mut open = lock(&OPEN);
    // SAFETY: the port belongs to the caller.
    unsafe { ffi::sprat_dpdk_close(port) };
    open.remove(&port);
}

impl Drop for Device {
    fn drop(&mut self) {
        self.close();
    }
}

fn text_of(bytes: &[u8]) -> String {
    bytes.iter().take_while(|&&byte| byte != 0).map(|&byte| char::from(byte)).collect()
}

fn attach(arguments: &str) -> io::Result<(u16, String)> {
    let name = arguments.split(',').next().unwrap_or_default();
    let text = |text: &str| CString::new(text).map_err(io::Error::from);
    let (c_arguments, c_name) = (text(arguments)?, text(name)?);
    let mut port = 0;
    // SAFETY: the strings end in zeros and are copied; `port` outlives the call. DPDK has been
    // started.
    match unsafe { ffi::sprat_dpdk_attach(c_arguments.as_ptr(), c_name.as_ptr(), &raw mut port) } {
        0 => Ok((port, name.to_owned())),
        code => Err(explained(error(&format!("find device `{name}`"), code))),
    }
}

/// Adds a remedy to an error that DPDK reports without one.
fn explained(error: io::Error) -> io::Error {
    // DPDK's number of a packet socket's fanout group is the process id XOR the interface's index.
    // The kernel uses 16 bits of it, so that two processes can collide.
    if error.to_string().contains("could not set PACKET_FANOUT") {
        let remedy = "another process has packet sockets with the same group number on another \
                      interface: restart one of the two processes, which changes its number";
        return io::Error::new(error.kind(), format!("{error}; {remedy}"));
    }
    error
}

fn first(open: &BTreeSet<u16>) -> io::Result<(u16, String)> {
    let mut port = 0;
    loop {
        // SAFETY: `port` outlives the call. DPDK has been started.
        if unsafe { ffi::sprat_dpdk_next(port, &raw mut port) } != 0 {
            let reason = "DPDK finds no device; bind one to vfio-pci (`dpdk-devbind.py --status` \
                          lists them), or name a virtual one, such as dev=net_memif0,role=server";
            return Err(io::Error::new(io::ErrorKind::NotFound, reason));
        }
        if !open.contains(&port) {
            return Ok((port, format!("port {port}")));
        }
        port += 1;
    }
}
