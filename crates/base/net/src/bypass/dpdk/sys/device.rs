//! Devices: each opened once, used by one thread.

use sprat_host::lock;
use std::cell::Cell;
use std::collections::BTreeSet;
use std::ffi::CString;
use std::io;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use super::bell::{Before, Bell};
use super::eal::error;
use super::ffi::{self, Description, RawCounters, RawSetup};
use super::frames::{Buffers, Draft, Pool, transmit, transmit_with};
use crate::Mac;

/// Frames that a device's rings hold each way.
const DESCRIPTORS: u16 = 1024;

/// Devices that are open in this process.
static OPEN: Mutex<BTreeSet<u16>> = Mutex::new(BTreeSet::new());

/// An open device, by one queue each way: the only one it has, or a thread's own.
pub(in crate::bypass) struct Device {
    port: u16,
    queue: u16,
    /// Queues there are for this thread: it listens to them in turn, and sends by the first.
    queues: u16,
    turn: u16,
    /// What it has in common with others, if it is one of several.
    joint: Option<Arc<Joint>>,
    name: String,
    about: Description,
    group: Option<Mac>,
    vlan: Option<u16>,
    started: bool,
    copies: bool,
    bell: Option<Bell>,
    /// With which it was opened, and how it was set up.
    arguments: Option<String>,
    setup: Option<Setup>,
    /// False when it could not be opened again: then there is no port.
    open: bool,
    /// What it had counted before it was opened again.
    before: DeviceCounters,
    /// Its queues have no lock: it may change its thread, but has one at a time.
    _thread: PhantomData<Cell<()>>,
}

/// How a device is to be set up.
#[derive(Clone, Copy, Debug)]
pub(in crate::bypass) struct Setup {
    /// Hardware address to take, instead of the device's own.
    pub(in crate::bypass) mac: Option<Mac>,
    /// Largest IP packet; `None` leaves it to the device.
    pub(in crate::bypass) mtu: Option<u16>,
    /// The VLAN of all its frames. Most cards take in any; virtual functions those that they were
    /// told of.
    pub(in crate::bypass) vlan: Option<u16>,
    /// Whether the device is to check what it can.
    pub(in crate::bypass) check: bool,
    /// Whether it is to take in frames to everybody.
    pub(in crate::bypass) all: bool,
    /// Whether it is to wake who sleeps, if it can.
    pub(in crate::bypass) ring: bool,
}

/// What a device has counted.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub(in crate::bypass) struct DeviceCounters {
    /// Frames lost because nobody took those before in time.
    pub(in crate::bypass) missed: u64,
    /// Frames received broken.
    pub(in crate::bypass) errors_in: u64,
    /// Frames that could not be sent.
    pub(in crate::bypass) errors_out: u64,
    /// Frames lost because the pool was empty.
    pub(in crate::bypass) no_buffer: u64,
}

impl Device {
    /// Opens the device of that name, which may carry arguments behind commas; without a name the
    /// first one that is not open. DPDK has been started.
    ///
    /// # Errors
    /// No such device; opened already; what DPDK says.
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
        let mut about = Description {
            driver: [0; 32],
            mac: [0; 6],
            max_mtu: 0,
            can: 0,
            numa: 0,
            max_queues: 0,
        };
        let device = |about: Description| {
            let copies = text_of(&about.driver) == "net_vhost";
            let arguments = arguments.map(str::to_owned);
            let before = DeviceCounters::default();
            Self {
                port,
                queue: 0,
                queues: 1,
                turn: 0,
                joint: None,
                name,
                about,
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
        // SAFETY: the port exists; `about` outlives the call.
        match unsafe { ffi::sprat_dpdk_describe(port, &raw mut about) } {
            0 => Ok(device(about)),
            code => {
                open.remove(&port);
                Err(error("ask the device what it is", code))
            }
        }
    }

    /// Closes it and opens, sets up and starts it anew, with what it had before: what it stands on
    /// has been replaced. Its hardware address may be another afterwards. The pool is the same.
    ///
    /// # Errors
    /// What DPDK says. Then there is no device until another attempt succeeds; it counts as stopped
    /// meanwhile.
    pub(in crate::bypass) fn reopen(&mut self, pool: &Pool) -> io::Result<()> {
        let Some(setup) = self.setup else { return Ok(()) };
        if self.joint.is_some() {
            let reason =
                format!("device {} is in use by several nodes; start the server again", self.name);
            return Err(io::Error::new(io::ErrorKind::ResourceBusy, reason));
        }
        let queues = self.queues;
        self.before = self.counters();
        self.close();
        let before = Before::opening();
        let mut fresh = Self::open(self.arguments.as_deref())?;
        (fresh.setup, fresh.group, fresh.before) = (Some(setup), self.group, self.before);
        *self = fresh;
        self.set_up(&setup, &vec![pool.buffers(); queues.into()])?;
        self.bell = before.found().pop();
        self.start()
    }

    fn close(&mut self) {
        if !std::mem::take(&mut self.open) {
            return;
        }
        self.started = false;
        self.bell = None;
        if self.joint.take().is_some() {
            return; // whoever is the last closes it
        }
        close(self.port);
    }

    #[inline]
    pub(super) fn port(&self) -> u16 {
        self.port
    }

    /// The queue whose turn it is to be listened to.
    #[inline]
    pub(super) fn listen(&mut self) -> u16 {
        if self.queues > 1 {
            self.turn = (self.turn + 1) % self.queues;
        }
        self.queue + self.turn
    }

    /// Held while the device itself is asked or told something: several threads may want to.
    fn control(&self) -> Option<MutexGuard<'_, ()>> {
        let joint = self.joint.as_ref()?;
        Some(lock(&joint.control))
    }

    /// What it was opened with; `None` for the first there was.
    pub(in crate::bypass) fn arguments(&self) -> Option<&str> {
        self.arguments.as_deref()
    }

    /// Its name, as DPDK knows it.
    pub(in crate::bypass) fn name(&self) -> &str {
        &self.name
    }

    /// Its driver's name.
    pub(in crate::bypass) fn driver(&self) -> String {
        text_of(&self.about.driver)
    }

    /// Its hardware address.
    pub(in crate::bypass) fn mac(&self) -> Mac {
        Mac(self.about.mac)
    }

    /// Largest IP packet it carries; `None` when it does not say.
    pub(in crate::bypass) fn max_mtu(&self) -> Option<u16> {
        (self.about.max_mtu > 0).then_some(self.about.max_mtu)
    }

    /// The NUMA node that it is attached to; `None` when it does not say, or is attached to none.
    pub(in crate::bypass) fn node(&self) -> Option<i32> {
        (self.about.numa >= 0).then_some(self.about.numa)
    }

    /// Whether it writes the checksums of what it sends.
    pub(in crate::bypass) fn checks_sent(&self) -> bool {
        self.about.can & ffi::CAN_CHECK_SENT != 0
    }

    /// Sets the queues up, one for each of the buffers that its frames come from. Before the start.
    ///
    /// # Errors
    /// What DPDK says; that it has not so many queues.
    pub(in crate::bypass) fn set_up(
        &mut self,
        setup: &Setup,
        buffers: &[&Buffers],
    ) -> io::Result<()> {
        let queues = u16::try_from(buffers.len()).expect("few");
        if queues > self.about.max_queues {
            let (name, most) = (&self.name, self.about.max_queues);
            let reason = format!(
                "device {name} has {most} queues, and each of {queues} nodes wants its own"
            );
            return Err(io::Error::new(io::ErrorKind::InvalidInput, reason));
        }
        let pools: Vec<_> = buffers.iter().map(|buffers| buffers.as_ptr()).collect();
        let check = if setup.check { ffi::CAN_CHECK_RECEIVED | ffi::CAN_CHECK_SENT } else { 0 };
        let filter = if setup.vlan.is_some() { ffi::CAN_FILTER_VLAN } else { 0 };
        let using = self.about.can & (check | filter) | if setup.ring { ffi::CAN_RING } else { 0 };
        let raw = RawSetup {
            pools: pools.as_ptr(),
            mac: setup.mac.as_ref().map_or(std::ptr::null(), |mac| mac.0.as_ptr()),
            mtu: setup.mtu.unwrap_or(0),
            descriptors: DESCRIPTORS,
            queues,
            using,
        };
        // SAFETY: the port is ours; pools and hardware address outlive the call, and the pools what
        // is set up here, because whoever has both closes the device first.
        let code = unsafe { ffi::sprat_dpdk_setup(self.port, &raw const raw) };
        if code < 0 {
            return Err(error(&format!("set up device {}", self.name), code));
        }
        if let Some(mac) = setup.mac {
            self.about.mac = mac.0;
        }
        self.setup = Some(*setup);
        self.queues = queues;
        self.vlan = setup.vlan.filter(|_| using & ffi::CAN_FILTER_VLAN != 0);
        Ok(())
    }

    /// Has it take in frames to this group besides its own and broadcasts.
    ///
    /// # Errors
    /// What DPDK says.
    pub(in crate::bypass) fn hear(&mut self, group: Mac) -> io::Result<()> {
        self.group = Some(group);
        if self.started { self.apply() } else { Ok(()) }
    }

    /// Tells it what to take in; a start makes it forget.
    fn apply(&self) -> io::Result<()> {
        let _control = self.control();
        let (name, port) = (&self.name, self.port);
        if self.setup.is_some_and(|setup| setup.all) {
            // SAFETY: the port is ours.
            let code = unsafe { ffi::sprat_dpdk_hear_all(port) };
            if code < 0 {
                return Err(error(&format!("have device {name} hear everything"), code));
            }
        }
        if let Some(vlan) = self.vlan {
            // SAFETY: the port is ours.
            let code = unsafe { ffi::sprat_dpdk_hear_vlan(port, vlan) };
            if code < 0 {
                return Err(error(&format!("have device {name} hear VLAN {vlan}"), code));
            }
        }
        if let Some(group) = self.group {
            // SAFETY: the port is ours; an address has six bytes, which are copied.
            let code = unsafe { ffi::sprat_dpdk_hear_group(port, group.0.as_ptr()) };
            if code < 0 {
                return Err(error(&format!("have device {name} hear the group {group}"), code));
            }
        }
        Ok(())
    }

    /// Starts it. Again, later, if it says that its peer is not there yet.
    ///
    /// # Errors
    /// What DPDK says.
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
        self.look_for_interrupt();
        self.apply()
    }

    /// Whether it has been started.
    #[inline]
    pub(in crate::bypass) fn is_started(&self) -> bool {
        self.started
    }

    /// Whether the other end is there.
    pub(in crate::bypass) fn is_up(&self) -> bool {
        let _control = self.control();
        // SAFETY: the port is ours.
        self.started && unsafe { ffi::sprat_dpdk_link(self.port) } == 1
    }

    /// What it wakes a sleeper by, if it can.
    #[inline]
    pub(in crate::bypass) fn bell(&self) -> Option<&Bell> {
        self.bell.as_ref()
    }

    /// Takes a bell that its opening brought.
    pub(in crate::bypass) fn hang(&mut self, bell: Option<Bell>) {
        self.bell = bell;
    }

    /// Looks for its interrupt, which may be another, or there at last, when it has been started or
    /// has met a peer.
    pub(in crate::bypass) fn look_for_interrupt(&mut self) {
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

    /// Of one that several nodes share: whether it puts datagrams into the right queues by itself.
    pub(in crate::bypass) fn steers(&self) -> Option<bool> {
        self.joint.as_ref().map(|joint| joint.steers.load(Ordering::Relaxed))
    }

    /// Has its bell ring for the next frame, or no more; whether it can.
    pub(in crate::bypass) fn arm(&self, armed: bool) -> bool {
        let _control = self.control();
        // SAFETY: the port is ours.
        self.started && unsafe { ffi::sprat_dpdk_arm(self.port, self.queue, armed.into()) } == 0
    }

    /// What it has counted.
    pub(in crate::bypass) fn counters(&self) -> DeviceCounters {
        let mut raw = RawCounters::default();
        if !self.open {
            return self.before;
        }
        let _control = self.control();
        // SAFETY: the port is ours; `raw` outlives the call. A device that counts nothing leaves
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

    /// Whether it has copied a frame, and let go of it, when it has taken it.
    #[inline]
    pub(in crate::bypass) fn copies(&self) -> bool {
        self.copies
    }

    /// Hands the device a frame that begins with `head` and ends with `tail`, if it
    /// [copies](Self::copies); gives `head` back if it has no room.
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

    /// Hands the first of `frames` to the device; returns how many it took.
    #[inline]
    pub(in crate::bypass) fn transmit(&mut self, frames: &mut Vec<Draft>) -> usize {
        transmit((self.port, self.queue), frames)
    }
}

/// A device of which several threads have a queue each: what they have in common. Closed when the
/// last has gone.
pub(in crate::bypass) struct Joint {
    port: u16,
    name: String,
    about: Description,
    arguments: Option<String>,
    setup: Option<Setup>,
    copies: bool,
    vlan: Option<u16>,
    /// The sockets, if any, of the queues that nobody has so far.
    free: Mutex<Vec<Option<Option<Bell>>>>,
    /// It puts datagrams into the right queues by itself.
    steers: AtomicBool,
    /// Where each queue's frames come from. Given up when the device is closed.
    buffers: Vec<Arc<Buffers>>,
    control: Mutex<()>,
}

impl Joint {
    /// Makes one of a device that has been set up with these buffers and started.
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
            about: device.about,
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

    /// The buffers of a queue.
    pub(in crate::bypass) fn buffers(&self, queue: usize) -> Arc<Buffers> {
        Arc::clone(&self.buffers[queue])
    }

    /// The device, by that queue, for this thread.
    ///
    /// # Errors
    /// Another has it, or had it: a queue has no lock, and is given away once.
    pub(in crate::bypass) fn queue(self: &Arc<Self>, queue: usize) -> io::Result<Device> {
        let Some(bell) = lock(&self.free)[queue].take() else {
            let reason = format!("queue {queue} of device {} is another node's", self.name);
            return Err(io::Error::new(io::ErrorKind::AddrInUse, reason));
        };
        let mut device = Device {
            port: self.port,
            queue: u16::try_from(queue).expect("few"),
            queues: 1,
            turn: 0,
            joint: Some(Arc::clone(self)),
            name: self.name.clone(),
            about: self.about,
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
        device.look_for_interrupt();
        Ok(device)
    }

    /// Has the device put datagrams for these ports into the queues, the first port's into the
    /// first, if it can.
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

impl Drop for Joint {
    fn drop(&mut self) {
        close(self.port);
    }
}

/// Closes a port that is the caller's, and nobody's from here on.
fn close(port: u16) {
    let mut open = lock(&OPEN);
    // SAFETY: the port is the caller's.
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
    // SAFETY: strings ended by zeros, which are copied; `port` outlives the call. DPDK has been
    // started.
    match unsafe { ffi::sprat_dpdk_attach(c_arguments.as_ptr(), c_name.as_ptr(), &raw mut port) } {
        0 => Ok((port, name.to_owned())),
        code => Err(explained(error(&format!("find device `{name}`"), code))),
    }
}

/// Adds to an error what would mend it, where DPDK does not say.
fn explained(error: io::Error) -> io::Error {
    // A packet socket's group: the process's id XOR the interface's number, of which the kernel
    // takes 16 bits.
    if error.to_string().contains("could not set PACKET_FANOUT") {
        let mend = "another process has packet sockets of the same number on another interface: start this one, or that, \
                    again, so that it gets another id";
        return io::Error::new(error.kind(), format!("{error}; {mend}"));
    }
    error
}

fn first(open: &BTreeSet<u16>) -> io::Result<(u16, String)> {
    let mut port = 0;
    loop {
        // SAFETY: `port` outlives the call. DPDK has been started.
        if unsafe { ffi::sprat_dpdk_next(port, &raw mut port) } != 0 {
            let reason = "DPDK finds no device; bind one to vfio-pci (`dpdk-devbind.py --status` lists them), or name a \
                          virtual one, such as dev=net_memif0,role=server";
            return Err(io::Error::new(io::ErrorKind::NotFound, reason));
        }
        if !open.contains(&port) {
            return Ok((port, format!("port {port}")));
        }
        port += 1;
    }
}
