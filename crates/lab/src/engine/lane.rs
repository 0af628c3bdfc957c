//! One thread's turns: write what is due, read what has come, and sleep until there is more of either.

use super::control::{Command, Inbox};
use super::inspect::Inspector;
use super::report::{InputReport, LaneReport, Lateness, LineReport};
use super::{EngineError, LATE, MAX_PORTS};
use crate::filter::{MAX_FILTER_PORTS, Verdict};
use crate::frame::{Packet, Received};
use crate::line::Line;
use crate::memory::{Landing, Memory};
use crate::port::{Port, Sent};
use crate::switch::{Switch, Way};
use crate::time::{Time, nanos};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::thread::set_current_timer_slack;
use sprat_net::{MAX_SOURCES, Sources};
use std::num::NonZeroU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How long before a departure a lane stops sleeping, unless told. About what the kernel needs to wake a thread in a guest.
pub const SPIN: Duration = Duration::from_micros(40);

/// Longest sleep.
const SLEEP: Duration = Duration::from_secs(1);

/// Of a sleep in poll the kernel takes a thousandth as leave to wake late, whatever the timer slack (`select_estimate_accuracy`). So a
/// lane wakes early by twice that, and the short sleep that is left is exact.
const SLACK: u32 = 500;

/// Most packets, and bytes, read from a port before what is due is looked at again: 100 us of work.
const READ_BURST: usize = 32;
const READ_BYTES: u64 = 256 << 10;

/// Most packets written to a port before others have their turn.
const WRITE_BURST: usize = 64;

/// How long a lane with a device looks on after the last packet before it sleeps: about what waking it costs.
const LINGER: Duration = Duration::from_micros(50);

/// Most descriptors that a lane waits for: its inbox, its ports, and what devices bring.
const MAX_FDS: usize = 1 + MAX_PORTS + MAX_SOURCES;

/// A port that is read.
pub(super) struct Input {
    port: Arc<Port>,
    report: InputReport,
}

impl Input {
    pub(super) fn new(port: Arc<Port>) -> Self {
        let report = InputReport { port: port.name().to_owned(), ..InputReport::default() };
        Self { port, report }
    }
}

/// A port that is written, and the line that leads there.
pub(super) struct Output {
    port: Arc<Port>,
    line: Line,
    lateness: Lateness,
}

impl Output {
    pub(super) fn new(port: Arc<Port>, line: Line) -> Self {
        Self { port, line, lateness: Lateness::default() }
    }

    /// Sends what has come through the line: to a device, in the frames that it is on a wire.
    fn send(&mut self, packet: Packet, memory: &mut Memory) {
        let Self { port, line, .. } = self;
        let mut send = |packet: Packet, memory: &mut Memory| {
            if port.send(&packet) != Sent::Whole {
                line.refused(&packet);
            }
            packet.free(memory);
        };
        if !port.is_device() {
            return send(packet, memory);
        }
        if let Err(rest) = packet.into_frames(memory, send) {
            line.uncut(&rest);
            rest.free(memory);
        }
    }
}

/// Where what comes over an input goes.
pub(super) enum Forward {
    /// To the output of the same number: as many of them as inputs.
    Cross,
    /// As many inputs as outputs, each port being both.
    Switch(Switch),
}

/// See the module.
pub(super) struct Lane {
    pub(super) inputs: Vec<Input>,
    pub(super) outputs: Vec<Output>,
    pub(super) forward: Forward,
    pub(super) memory: Memory,
    pub(super) landing: Landing,
    pub(super) started: Instant,
    pub(super) inbox: Inbox,
    pub(super) spin: Duration,
    pub(super) inspector: Inspector,
    /// When a packet was last read or written. What a device brings is looked for a while longer.
    pub(super) moved: Time,
}

impl Lane {
    /// Turns until told to stop, or until a port is gone.
    pub(super) fn run(mut self) -> Result<(), EngineError> {
        // The kernel else lets a sleeper sleep 50 us longer, to wake several at once.
        let _ = set_current_timer_slack(NonZeroU64::new(1));
        loop {
            while let Some(command) = self.inbox.next() {
                match command {
                    Command::Stop(answer) => {
                        if let Some(answer) = answer {
                            let _ = answer.send(self.report()); // whoever asked may have gone
                        }
                        return Ok(());
                    }
                    Command::Set(line, settings) => {
                        let now = self.now();
                        self.outputs[line].line.set(*settings, now);
                    }
                    Command::Rules(mut rules, before) => {
                        self.inspector.change_rules(&mut rules);
                        let _ = before.send(rules); // dropped by whoever asked, where nobody waits for packets
                    }
                    Command::Report(answer) => {
                        let _ = answer.send(self.report()); // whoever asked may have gone
                    }
                }
            }
            let written = self.write()?;
            let read = self.read()?;
            let now = self.now();
            if written || read {
                self.moved = now;
            } else {
                self.inspector.idle(now);
                self.wait(now)?;
            }
        }
    }

    fn now(&self) -> Time {
        Time::ZERO + self.started.elapsed()
    }

    /// Writes what is due; whether there was any.
    fn write(&mut self) -> Result<bool, EngineError> {
        let mut any = false;
        for at in 0..self.outputs.len() {
            for _ in 0..WRITE_BURST {
                let now = self.now();
                let output = &mut self.outputs[at];
                let Some(packet) = output.line.pop(now) else { break };
                any = true;
                output.lateness.count(now.since(packet.due), u64::from(packet.count()));
                output.send(packet, &mut self.memory);
            }
            self.outputs[at].port.turn()?;
        }
        Ok(any)
    }

    /// Reads a burst from each port; whether there was any.
    fn read(&mut self) -> Result<bool, EngineError> {
        let (mut any, started) = (false, self.started);
        for at in 0..self.inputs.len() {
            let mut bytes = 0;
            for _ in 0..READ_BURST {
                let Input { port, report } = &mut self.inputs[at];
                let clock = || Time::ZERO + started.elapsed();
                let Some(received) = port.receive(&mut self.landing, &mut self.memory, clock)? else { break };
                any = true;
                match received {
                    Received::Malformed(_) => report.malformed += 1,
                    Received::Exhausted => report.exhausted += 1,
                    Received::Packet(mut packet) => {
                        let segments = packet.frame().segments;
                        report.packets += 1;
                        report.arrived.segments += u64::from(segments.count);
                        report.arrived.bytes += segments.bytes();
                        bytes += segments.bytes();
                        let verdict = self.inspector.look(at, &mut packet);
                        self.pass(at, packet, verdict);
                    }
                }
                if bytes >= READ_BYTES {
                    break;
                }
            }
        }
        Ok(any)
    }

    /// Does what the filter said.
    fn pass(&mut self, from: usize, packet: Packet, verdict: Verdict) {
        for (to, output) in self.outputs.iter_mut().enumerate().take(MAX_FILTER_PORTS) {
            if verdict.mirrors >> to & 1 == 1 {
                match packet.copy(&mut self.memory) {
                    Some(copy) => output.line.push(copy, packet.arrived, &mut self.memory),
                    None => self.inputs[from].report.exhausted += 1,
                }
            }
        }
        match verdict.dropped {
            true => packet.free(&mut self.memory),
            false => self.forward(from, packet),
        }
    }

    fn forward(&mut self, from: usize, packet: Packet) {
        let now = packet.arrived;
        let Self { outputs, memory, forward, inputs, .. } = self;
        let way = match forward {
            Forward::Cross => Way::To(from),
            Forward::Switch(switch) => {
                let (destination, source) = packet.addresses();
                switch.pass(from, packet.frame().vlan.unwrap_or(0), destination, source, now)
            }
        };
        match way {
            Way::Nowhere => packet.free(memory),
            Way::To(to) => outputs[to].line.push(packet, now, memory),
            Way::Flood => {
                for (_, output) in outputs.iter_mut().enumerate().filter(|(to, _)| *to != from) {
                    match packet.copy(memory) {
                        Some(copy) => output.line.push(copy, now, memory),
                        None => inputs[from].report.exhausted += 1,
                    }
                }
                packet.free(memory);
            }
        }
    }

    /// Sleeps until a packet comes, a command, or nearly the next departure; not at all when that is near.
    fn wait(&self, now: Time) -> Result<(), EngineError> {
        let next = self.outputs.iter().filter_map(|output| output.line.next()).min();
        let left = next.map_or(SLEEP, |next| next.since(now));
        let lingers = now.since(self.moved) < LINGER && self.inputs.iter().any(|input| input.port.is_device());
        if left <= self.spin || lingers {
            std::hint::spin_loop();
            return Ok(());
        }
        let devices: [_; MAX_PORTS] = std::array::from_fn(|at| self.inputs.get(at)?.port.device());
        let mut sources = Sources::default();
        devices.iter().flatten().for_each(|device| device.sources(&mut sources));
        let event = self.inbox.event();
        let mut fds: [_; MAX_FDS] = std::array::from_fn(|_| PollFd::from_borrowed_fd(event, PollFlags::IN));
        let ports = self.inputs.iter().filter_map(|input| input.port.fd());
        let mut count = 1;
        for (fd, waited) in ports.chain(sources.iter()).zip(&mut fds[1..]) {
            *waited = PollFd::from_borrowed_fd(fd, PollFlags::IN);
            count += 1;
        }
        let asleep = (left - self.spin - (left / SLACK).min(left - self.spin)).min(SLEEP);
        let asleep = sources.longest().map_or(asleep, |nap| nap.min(asleep));
        if asleep.is_zero() {
            return Ok(()); // a device is to be looked at once more
        }
        let longest = Timespec::try_from(asleep).expect("a second at most");
        match poll(&mut fds[..count], Some(&longest)) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(error) => return Err(EngineError::System("waiting for packets", error.into())),
        }
        if !fds[0].revents().is_empty() {
            self.inbox.noted();
        }
        Ok(())
    }

    fn report(&self) -> LaneReport {
        let now = self.now();
        let dropped = |input: &Input| input.port.dropped_by_kernel();
        LaneReport {
            inputs: self
                .inputs
                .iter()
                .map(|input| InputReport { dropped_by_kernel: dropped(input), ..input.report.clone() })
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
    fn count(&mut self, late: Duration, segments: u64) {
        let late_ns = nanos(late);
        self.packets += 1;
        self.sum_ns += late_ns;
        self.max_ns = self.max_ns.max(late_ns);
        if late > LATE {
            self.late_packets += 1;
            self.late_segments += segments;
        }
    }
}
