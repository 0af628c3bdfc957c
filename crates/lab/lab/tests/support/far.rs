//! A box between pairs of sockets, and the far ends of its ports.
#![allow(dead_code, reason = "each test binary uses its part")]

use super::{number_of, packet};
use sprat_lab::Time;
use sprat_lab::engine::{Engine, EnginePlan, Forwarding, Memories};
use sprat_lab::frame::{Packet, Received};
use sprat_lab::line::LineSettings;
use sprat_lab::memory::{Memory, ReceiveBuffer};
use sprat_lab::port::{Port, Sent, pair};
pub(crate) use sprat_testing::PATIENCE;
use std::time::Instant;

/// The far end of one port of a box.
pub(crate) struct Far {
    port: Port,
    buffer: ReceiveBuffer,
    pub(crate) memory: Memory,
}

impl Far {
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        let packet = packet(bytes, &mut self.memory);
        let until = Instant::now() + PATIENCE;
        while self.port.send(&packet) != Sent::Accepted {
            assert!(Instant::now() < until, "the port accepts no more packets");
            std::thread::yield_now();
        }
        packet.free(&mut self.memory);
    }

    pub(crate) fn receive(&mut self) -> Packet {
        let until = Instant::now() + PATIENCE;
        loop {
            match self
                .port
                .receive(&mut self.buffer, &mut self.memory, || Time::ZERO)
                .expect("the port is there")
            {
                Some(Received::Packet(packet)) => return packet,
                Some(other) => panic!("{other:?}"),
                None => assert!(Instant::now() < until, "nothing came"),
            }
            std::thread::yield_now();
        }
    }

    pub(crate) fn number(&mut self) -> u32 {
        let packet = self.receive();
        let number = number_of(&packet);
        packet.free(&mut self.memory);
        number
    }
}

/// Starts a box with a port for each of these lines. Returns it with the far ends of its ports.
pub(crate) fn running(
    lines: &[LineSettings],
    forwarding: Forwarding,
    memory: Option<u64>,
) -> (Engine, Vec<Far>) {
    let (mut ports, mut fars) = (Vec::new(), Vec::new());
    for (at, settings) in lines.iter().enumerate() {
        let [near, far] = pair([&format!("p{at}"), &format!("far{at}")]).expect("sockets");
        ports.push((near, settings.clone()));
        fars.push(Far { port: far, buffer: ReceiveBuffer::new(), memory: Memory::of_cells(200) });
    }
    let memories = Memories::make(forwarding, &vec![false; lines.len()], lines.iter(), memory)
        .expect("memory");
    let plan = EnginePlan { memories: Some(memories), ..EnginePlan::new(ports, forwarding) };
    (Engine::start(plan).expect("it starts"), fars)
}
