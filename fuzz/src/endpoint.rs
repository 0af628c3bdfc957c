//! The RPC endpoint, with all its state. It receives frames from strangers, frames from a peer that
//! knows its session, and its own frames reflected, so that it serves itself. Nothing panics, every
//! body is released once, and silence empties the endpoint.

use crate::input;
use sprat_net::{Nanos, Transmit};
use sprat_rpc::{
    CallFailure, CallId, Config, Endpoint, Handler, Outcome, Repeat, Reply, RequestId, Response,
};
use sprat_wire::packet::{Connect, HEADER_BYTES, Header, Kind, PROTOCOL_VERSION};
use std::collections::VecDeque;
use std::io::IoSlice;
use std::net::SocketAddr;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Limit on the endpoint's own frames that wait to be reflected.
const MAX_SENT: usize = 64;

/// Length of a body that needs several packets.
const LONG_BODY: usize = 5000;

/// A step: an action on the endpoint, and its arguments.
type Step<'a> = (u8, u8, u8, u32, u32, &'a [u8]);

struct Wire {
    sent: VecDeque<(SocketAddr, Vec<u8>)>,
    /// Session and token that the endpoint last gave to each stranger.
    accepted: [(u32, u32); 2],
}

impl Transmit for Wire {
    fn mtu(&mut self, _: SocketAddr) -> usize {
        1500
    }

    fn reliable(&self) -> bool {
        false
    }

    fn send(&mut self, peer: SocketAddr, parts: &[IoSlice<'_>]) {
        let frame = parts.iter().flat_map(|part| part.iter().copied()).collect::<Vec<u8>>();
        assert!(!frame.is_empty() && frame.len() <= 1500);
        let word = |at: usize| {
            frame
                .get(at..at + 4)
                .map(|bytes| u32::from_le_bytes(bytes.try_into().expect("4 bytes")))
        };
        if frame[0] == Kind::Accept as u8
            && let (Some(session), Some(token)) = (word(HEADER_BYTES + 4), word(HEADER_BYTES + 8))
            && let Some(stranger) = strangers().iter().position(|&stranger| stranger == peer)
        {
            self.accepted[stranger] = (session, token);
        }
        if self.sent.len() < MAX_SENT {
            self.sent.push_back((peer, frame));
        }
    }

    fn flush(&mut self) {}
}

#[derive(Default)]
struct App {
    long: Vec<u8>,
    held: Vec<bool>,
    pending: Vec<RequestId>,
    begun: usize,
    ended: usize,
}

impl App {
    fn reply(&mut self, first: u8) -> Outcome<usize> {
        match first % 5 {
            0 => Outcome::Reply(Reply::new(&[first; 40], Repeat::Retain)),
            1 => Outcome::Reply(Reply::new(&[], Repeat::Reexecute)),
            2 | 3 => {
                self.held.push(true);
                let repeat = if first % 5 == 2 { Repeat::Retain } else { Repeat::Reexecute };
                Outcome::Reply(Reply::new(&[first], repeat).with_body(self.held.len() - 1))
            }
            _ => Outcome::Retry(u32::from(first) * 100),
        }
    }
}

impl Handler for App {
    type Body = usize;

    fn request(&mut self, _: Nanos, id: RequestId, payload: &[u8]) -> Outcome<usize> {
        match payload.first() {
            Some(&first) if first >= 200 => {
                self.pending.push(id);
                Outcome::Pending
            }
            first => self.reply(first.copied().unwrap_or(0)),
        }
    }

    fn gather(&self, body: usize) -> &[u8] {
        assert!(self.held[body], "gathered after its release");
        &self.long
    }

    fn release(&mut self, body: usize) {
        assert!(std::mem::replace(&mut self.held[body], false), "released twice");
    }

    fn completed(&mut self, _: Nanos, _: CallId, _: Result<Response<'_>, CallFailure>) {
        self.ended += 1;
    }
}

fn packet(kind: u8, slot: u8, fields: [u32; 5], payload: &[u8]) -> Vec<u8> {
    let [session, token, sequence, offset, total] = fields.map(Into::into);
    let payload_len = u16::try_from(payload.len()).unwrap_or(u16::MAX).into();
    let header =
        Header { kind, slot, payload: payload_len, session, token, sequence, offset, total };
    [header.as_bytes(), payload].concat()
}

fn connect(nonce: u32) -> Vec<u8> {
    let connect = Connect {
        version: PROTOCOL_VERSION.into(),
        slots: 8.into(),
        session: 0.into(),
        nonce: nonce.into(),
        mtu: 1500.into(),
    };
    packet(Kind::Connect as u8, 0, [0; 5], connect.as_bytes())
}

fn strangers() -> [SocketAddr; 2] {
    [([10, 0, 0, 1], 1).into(), ([10, 0, 0, 2], 2).into()]
}

pub(crate) fn run(bytes: &[u8]) {
    let Some(steps) = input::<Vec<Step<'_>>>(bytes) else { return };
    let config =
        Config { slots: 8, max_sessions: 8, max_reassembly: 64 << 10, ..Config::default() };
    let mut endpoint: Endpoint<usize> = Endpoint::new(&config, 1);
    let mut wire = Wire { sent: VecDeque::new(), accepted: [(0, 0); 2] };
    let mut app = App { long: vec![7; LONG_BODY], ..App::default() };
    let mut now = Nanos(1_000_000);
    let mirror: SocketAddr = ([10, 0, 0, 9], 9).into();
    let session = endpoint.connect(now, mirror, &mut wire).expect("the first");
    for (action, slot, kind, first, second, bytes) in steps {
        let stranger = usize::from(action >= 128);
        let from = strangers()[stranger];
        match action % 8 {
            0 => endpoint.receive(now, from, bytes, &mut app, &mut wire),
            1 => endpoint.receive(now, from, &connect(first % 4), &mut app, &mut wire),
            // A packet of an existing session, with several fragments or one.
            2 | 3 => {
                let (session, token) = wire.accepted[stranger];
                let len = u32::try_from(bytes.len()).unwrap_or(u32::MAX);
                let (offset, total) =
                    if action % 8 == 2 { (0, len) } else { (second % 8000, second >> 16) };
                let frame =
                    packet(kind % 14, slot, [session, token, first % 8, offset, total], bytes);
                endpoint.receive(now, from, &frame, &mut app, &mut wire);
            }
            4 => {
                now = now + Duration::from_micros(u64::from(first % 4_000_000));
                endpoint.poll(now, &mut app, &mut wire);
            }
            5 => {
                let deadline = now + Duration::from_millis(u64::from(first % 10_000));
                let request = bytes.repeat(usize::from(kind) + 1);
                app.begun += usize::from(
                    endpoint.call(now, session, &[&request], deadline, &mut wire).is_ok(),
                );
            }
            6 => {
                if let Some(id) = app.pending.pop() {
                    let outcome = app.reply(slot);
                    endpoint.respond(now, id, outcome, &mut app, &mut wire);
                }
            }
            _ => {
                for _ in 0..=slot % 8 {
                    if let Some((to, frame)) = wire.sent.pop_front()
                        && to == mirror
                    {
                        endpoint.receive(now, mirror, &frame, &mut app, &mut wire);
                    }
                }
            }
        }
        endpoint.flush(&mut wire);
        assert!(
            endpoint.server_sessions() <= 8
                && endpoint.reassembly_bytes() <= 2 * (64 << 10) + (1 << 20)
        );
    }
    for id in std::mem::take(&mut app.pending) {
        endpoint.respond(
            now,
            id,
            Outcome::Reply(Reply::new(&[], Repeat::Retain)),
            &mut app,
            &mut wire,
        );
    }
    for _ in 0..40 {
        now = now + Duration::from_secs(5);
        endpoint.poll(now, &mut app, &mut wire);
        endpoint.flush(&mut wire);
    }
    assert_eq!(app.begun, app.ended, "every call ends once");
    assert_eq!(endpoint.server_sessions(), 0, "sessions end with silence");
    assert_eq!(endpoint.reassembly_bytes(), 0);
    assert!(app.held.iter().all(|held| !held), "every body is released");
}
