//! The loop of a worker thread: write packets that are due, read packets that have arrived, and
//! sleep until another packet is due or arrives.

use super::attention::MissedTime;
use super::control::{Command, Inbox};
use super::inspect::Inspector;
use super::report::{InputReport, Lateness, LineReport, WorkerReport};
use super::{EngineError, MAX_PORTS};
use crate::filter::{MAX_FILTER_PORTS, Verdict};
use crate::frame::{Packet, Received};
use crate::line::Line;
use crate::memory::{Memory, ReceiveBuffer};
use crate::port::{Port, Sent};
use crate::switch::{Egress, Switch};
use crate::time::{Time, nanos};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::set_current_timer_slack;
use sprat_net::{MAX_SOURCES, Sources};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Default time before a departure at which a worker stops sleeping: about the time that the kernel
/// needs to wake a thread in a virtual machine.
pub const SPIN: Duration = Duration::from_micros(40);

/// Limit on one sleep. If a worker is stopped while it sleeps, only the time beyond the end of the
/// intended sleep counts as missed.
const SLEEP: Duration = Duration::from_millis(20);

/// A worker wakes early by the time until the departure, divided by this number. The kernel lets a
/// sleep in `poll` end late by a thousandth of its length, whatever the timer slack
/// (`select_estimate_accuracy`). So a worker wakes early by two thousandths. Its second sleep, for
/// the rest of the time, is short, and so ends almost on time.
const SLACK: u32 = 500;

/// Limits on the packets and on the bytes that are read from a port in one loop iteration: about
/// 100 us of work. The packet that reaches the limit on bytes is the last one read.
const READ_BURST: usize = 32;
const READ_BYTES: u64 = 256 << 10;

/// Limit on the packets written to a port before the next port is served.
const WRITE_BURST: usize = 64;

/// A worker with a device that bypasses the kernel polls for this long after its last packet, then
/// sleeps. Waking the worker takes about as long.
const LINGER: Duration = Duration::from_micros(50);

/// Limit on the descriptors that a worker polls: its inbox, its ports, and the descriptors of
/// devices.
const MAX_FDS: usize = 1 + MAX_PORTS + MAX_SOURCES;

/// The number of packets that are assumed to have waited in a port while the worker did not run:
/// the length of the kernel's queue.
const BACKLOG: u32 = 10_000;

/// A port that the worker reads.
pub(super) struct Input {
    port: Arc<Port>,
    report: InputReport,
    /// When the port was last empty: all packets read since then arrived after this time.
    empty_at: Time,
    /// How long packets may have waited unread. Applies to the next `backlog` packets.
    missed: Duration,
    backlog: u32,
}

impl Input {
    pub(super) fn new(port: Arc<Port>) -> Self {
        let report = InputReport { port: port.name().to_owned(), ..InputReport::default() };
        Self { port, report, empty_at: Time::ZERO, missed: Duration::ZERO, backlog: 0 }
    }

    /// Notes that the worker did not read the port for a time of `missed`.
    fn mark_missed(&mut self, missed: Duration) {
        self.missed = if self.backlog > 0 { self.missed.max(missed) } else { missed };
        self.backlog = BACKLOG;
    }

    /// Notes that the port was empty.
    fn found_empty(&mut self, now: Time) {
        (self.empty_at, self.backlog) = (now, 0);
    }

    /// Sets the time at which a packet that was read at `now` arrived, and how long it may have
    /// waited.
    fn set_arrival(&mut self, packet: &mut Packet, now: Time) {
        // The port's time stamp is wrong if the system clock was set between arrival and reading.
        packet.arrived = packet.arrived.clamp(self.empty_at.min(now), now);
        if self.backlog > 0 {
            self.backlog -= 1;
            packet.waited = if self.port.has_timestamps() { Duration::ZERO } else { self.missed };
        }
    }
}

/// Minimum interval between two reads of a port's MTU. The MTU is read when packets are forwarded
/// to the port.
const MTU_INTERVAL: Duration = Duration::from_millis(100);

/// Minimum interval between two "packet too big" replies of a worker.
const REPLY_GAP: Duration = Duration::from_millis(1);

/// A port that the worker writes, and the line that leads to it.
pub(super) struct Output {
    port: Arc<Port>,
    line: Line,
    lateness: Lateness,
    /// The port's MTU, read at `mtu_at`; `None` if it is unknown.
    mtu: Option<u32>,
    mtu_at: Option<Time>,
}

impl Output {
    pub(super) fn new(port: Arc<Port>, line: Line) -> Self {
        Self { port, line, lateness: Lateness::default(), mtu: None, mtu_at: None }
    }

    /// Returns the port's MTU if any frame that `packet` becomes on the wire is longer than that,
    /// not counting its Ethernet header.
    fn exceeded_mtu(&mut self, packet: &Packet, now: Time) -> Option<u32> {
        if self.mtu_at.is_none_or(|at| now.since(at) >= MTU_INTERVAL) {
            (self.mtu, self.mtu_at) = (self.port.mtu(), Some(now));
        }
        self.mtu.filter(|&mtu| packet.network_bytes() > mtu)
    }

    /// Sends a packet that has left the line. A device that bypasses the kernel gets single frames.
    fn send(&mut self, packet: Packet, memory: &mut Memory) {
        let Self { port, line, .. } = self;
        let mut send = |packet: Packet, memory: &mut Memory| {
            if port.send(&packet) != Sent::Accepted {
                line.refused(&packet);
            }
            packet.free(memory);
        };
        if !port.is_device() {
            return send(packet, memory);
        }
        if let Err(rest) = packet.into_frames(memory, send) {
            line.out_of_memory(&rest);
            rest.free(memory);
        }
    }
}

/// Where packets from an input go.
pub(super) enum Forward {
    /// To the output with the input's index. A worker has as many outputs as inputs.
    Cross,
    /// To the outputs that the switch chooses. Each port is an input and an output.
    Switch(Switch),
}

/// A worker's state.
pub(super) struct Worker {
    pub(super) inputs: Vec<Input>,
    pub(super) outputs: Vec<Output>,
    pub(super) forward: Forward,
    pub(super) memory: Memory,
    pub(super) buffer: ReceiveBuffer,
    pub(super) started: Instant,
    pub(super) inbox: Inbox,
    pub(super) spin: Duration,
    /// A packet is late if it leaves later than this after it was due.
    pub(super) late: Duration,
    pub(super) inspector: Inspector,
    /// When a packet was last read or written. Devices are polled for [`LINGER`] after that.
    pub(super) active_at: Time,
    pub(super) missed_time: MissedTime,
    /// When the worker last sent a "packet too big" reply.
    pub(super) replied_at: Option<Time>,
}

impl Worker {
    /// Runs the loop until a command stops it, or a port or `poll` fails.
    pub(super) fn run(mut self) -> Result<(), EngineError> {
        // Without this, the kernel may end a sleep 50 us late, to wake several threads together.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        self.missed_time.begin(self.now());
        for input in &mut self.inputs {
            let missed = input.port.age();
            if missed > self.late {
                input.mark_missed(missed);
            }
        }
        loop {
            while let Some(command) = self.inbox.next() {
                match command {
                    Command::Stop(answer) => {
                        if let Some(answer) = answer {
                            let _ = answer.send(self.report()); // the caller may have gone
                        }
                        return Ok(());
                    }
                    Command::Set(line, settings) => {
                        let now = self.now();
                        self.outputs[line].line.set(*settings, now);
                    }
                    Command::Rules(mut rules, before) => {
                        self.inspector.change_rules(&mut rules);
                        let _ = before.send(rules); // dropped by the caller, not in this loop
                    }
                    Command::Report(answer) => {
                        let _ = answer.send(self.report()); // the caller may have gone
                    }
                }
            }
            let written = self.write()?;
            let read = self.read()?;
            let now = self.now();
            if written || read {
                self.active_at = now;
            } else {
                self.inspector.idle(now);
                self.wait(now)?;
            }
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.started.elapsed()
    }

    /// Writes at most [`WRITE_BURST`] of the packets that are due to each port. Returns whether any
    /// packet was due.
    fn write(&mut self) -> Result<bool, EngineError> {
        let mut any = false;
        for at in 0..self.outputs.len() {
            for _ in 0..WRITE_BURST {
                let now = self.now();
                let output = &mut self.outputs[at];
                let Some(packet) = output.line.pop(now) else { break };
                any = true;
                output.lateness.count(
                    now.since(packet.due) + packet.waited,
                    self.late,
                    u64::from(packet.count()),
                );
                output.send(packet, &mut self.memory);
            }
            self.outputs[at].port.poll()?;
        }
        Ok(any)
    }

    /// Reads a burst from each port. Returns whether it read any packet.
    fn read(&mut self) -> Result<bool, EngineError> {
        let (mut any, started) = (false, self.started);
        let missed = self.missed_time.take_missed(self.now());
        if missed > self.late {
            self.inputs.iter_mut().for_each(|input| input.mark_missed(missed));
        }
        for at in 0..self.inputs.len() {
            let (mut bytes, looked) = (0, self.now());
            for _ in 0..READ_BURST {
                let input = &mut self.inputs[at];
                let mut now = looked;
                let clock = || {
                    now = Time::ZERO + started.elapsed();
                    now
                };
                let Some(received) =
                    input.port.receive(&mut self.buffer, &mut self.memory, clock)?
                else {
                    input.found_empty(looked);
                    break;
                };
                any = true;
                match received {
                    Received::Malformed(_) => input.report.malformed += 1,
                    Received::Exhausted => input.report.exhausted += 1,
                    Received::Packet(mut packet) => {
                        input.set_arrival(&mut packet, now);
                        let report = &mut input.report;
                        let segments = packet.frame().segments;
                        report.packets += 1;
                        report.arrived.segments += u64::from(segments.count);
                        report.arrived.bytes += segments.bytes();
                        bytes += segments.bytes();
                        let verdict = self.inspector.inspect(at, &mut packet);
                        self.pass(at, packet, verdict, now);
                    }
                }
                if bytes >= READ_BYTES {
                    break;
                }
            }
        }
        Ok(any)
    }

    /// Applies the filter's verdict: mirrors, drops or forwards the packet.
    fn pass(&mut self, from: usize, packet: Packet, verdict: Verdict, now: Time) {
        for (to, output) in self.outputs.iter_mut().enumerate().take(MAX_FILTER_PORTS) {
            if verdict.mirrors >> to & 1 == 1 {
                match packet.copy(&mut self.memory) {
                    Some(copy) => output.line.push(copy, now, &mut self.memory),
                    None => self.inputs[from].report.exhausted += 1,
                }
            }
        }
        match verdict.dropped {
            true => packet.free(&mut self.memory),
            false => self.forward(from, packet, now),
        }
    }

    fn forward(&mut self, from: usize, packet: Packet, now: Time) {
        let Self { outputs, memory, forward, inputs, replied_at, .. } = self;
        let egress = match forward {
            Forward::Cross => Egress::To(from),
            Forward::Switch(switch) => {
                let (destination, source) = packet.addresses();
                switch.forward(from, packet.frame().vlan.unwrap_or(0), destination, source, now)
            }
        };
        match egress {
            Egress::Nowhere => packet.free(memory),
            Egress::To(to) => {
                let Some(mtu) = outputs[to].exceeded_mtu(&packet, now) else {
                    return outputs[to].line.push(packet, now, memory);
                };
                if replied_at.is_none_or(|at| now.since(at) >= REPLY_GAP)
                    && let Some(answer) = packet.too_big(mtu, memory, now)
                {
                    // A reply that the port refuses is lost, as it could be on any network.
                    let _ = inputs[from].port.send(&answer);
                    answer.free(memory);
                    *replied_at = Some(now);
                }
                outputs[to].line.too_big(packet, now, memory);
            }
            Egress::Flood => {
                for (_, output) in outputs.iter_mut().enumerate().filter(|(to, _)| *to != from) {
                    match packet.copy(memory) {
                        Some(copy) if output.exceeded_mtu(&copy, now).is_some() => {
                            output.line.too_big(copy, now, memory);
                        }
                        Some(copy) => output.line.push(copy, now, memory),
                        None => inputs[from].report.exhausted += 1,
                    }
                }
                packet.free(memory);
            }
        }
    }

    /// Sleeps until a packet or a command arrives or the next departure is near, but at most for
    /// [`SLEEP`] and for the time after which a device must be polled again. Does not sleep if a
    /// departure is near already, or if the worker has a device and was active within the last
    /// [`LINGER`].
    fn wait(&mut self, now: Time) -> Result<(), EngineError> {
        let next = self.outputs.iter().filter_map(|output| output.line.next()).min();
        let left = next.map_or(SLEEP, |next| next.since(now));
        let lingers = now.since(self.active_at) < LINGER
            && self.inputs.iter().any(|input| input.port.is_device());
        if left <= self.spin || lingers {
            std::hint::spin_loop();
            return Ok(());
        }
        let devices: [_; MAX_PORTS] = std::array::from_fn(|at| self.inputs.get(at)?.port.device());
        let mut sources = Sources::default();
        devices.iter().flatten().for_each(|device| device.sources(&mut sources));
        let event = self.inbox.event();
        let mut fds: [_; MAX_FDS] =
            std::array::from_fn(|_| PollFd::from_borrowed_fd(event, PollFlags::IN));
        let ports = self.inputs.iter().filter_map(|input| input.port.fd());
        let mut count = 1;
        for (fd, waited) in ports.chain(sources.iter()).zip(&mut fds[1..]) {
            *waited = PollFd::from_borrowed_fd(fd, PollFlags::IN);
            count += 1;
        }
        let asleep = (left - self.spin - (left / SLACK).min(left - self.spin)).min(SLEEP);
        let asleep = sources.longest().map_or(asleep, |nap| nap.min(asleep));
        if asleep.is_zero() {
            return Ok(()); // a device is to be polled again
        }
        let longest = Timespec::try_from(asleep).expect("milliseconds at most");
        match self.missed_time.sleep(asleep, self.late, || poll(&mut fds[..count], Some(&longest)))
        {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(EngineError::System("waiting for packets", error.into())),
        }
        if !fds[0].revents().is_empty() {
            self.inbox.clear_event();
        }
        Ok(())
    }

    fn report(&self) -> WorkerReport {
        let now = self.now();
        let dropped = |input: &Input| input.port.dropped_by_kernel();
        WorkerReport {
            inputs: self
                .inputs
                .iter()
                .map(|input| InputReport {
                    dropped_by_kernel: dropped(input),
                    ..input.report.clone()
                })
                .collect(),
            lines: self
                .outputs
                .iter()
                .map(|output| LineReport {
                    to: output.port.name().to_owned(),
                    lost_by_device: output.port.lost_by_device(),
                    counters: output.line.counters(now),
                    lateness: output.lateness,
                })
                .collect(),
            switch: match &self.forward {
                Forward::Cross => None,
                Forward::Switch(switch) => Some(switch.counters()),
            },
            filters: self.inspector.counters(),
            memory_cells: self.memory.total() as u64,
            memory_least_free: self.memory.least_free() as u64,
        }
    }
}

impl Lateness {
    fn count(&mut self, late: Duration, tolerated: Duration, segments: u64) {
        let late_ns = nanos(late);
        self.packets += 1;
        self.sum_ns += late_ns;
        self.max_ns = self.max_ns.max(late_ns);
        if late > tolerated {
            self.late_packets += 1;
            self.late_segments += segments;
        }
    }
}
