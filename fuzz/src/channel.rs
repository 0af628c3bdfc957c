//! Two members of a cluster, and an attacker between them who cuts, changes, repeats, withholds and
//! invents frames. Nothing panics, no request is executed that was not sent, none is executed
//! twice, and tables stay within their bounds.

use crate::input;
use sprat_key::{Identity, Role, Root, Terms};
use sprat_net::{Nanos, Transmit};
use sprat_rpc::{
    CallFailure, CallId, Config, Credentials, Endpoint, Handler, Outcome, Repeat, Reply, RequestId,
    Response,
};
use std::io::IoSlice;
use std::net::SocketAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

/// Limit on the frames that the attacker keeps.
const MAX_KEPT: usize = 256;

/// A step of the attacker: an action, the number of a frame, a position in it, a value, and bytes.
type Step<'a> = (u8, u8, u16, u8, &'a [u8]);

#[derive(Default)]
struct Wire(Vec<Vec<u8>>);

impl Transmit for Wire {
    fn mtu(&mut self, _: SocketAddr) -> usize {
        1500
    }

    fn reliable(&self) -> bool {
        false
    }

    fn send(&mut self, _: SocketAddr, parts: &[IoSlice<'_>]) {
        let frame = parts.iter().flat_map(|part| part.iter().copied()).collect::<Vec<u8>>();
        assert!(frame.len() <= 1500 && frame[0] > 0xc0, "everything is sealed");
        self.0.push(frame);
    }

    fn flush(&mut self) {}
}

#[derive(Default)]
struct App {
    next: u32,
    done: Vec<u32>,
}

impl Handler for App {
    type Body = ();

    fn request(&mut self, _: Nanos, id: RequestId, payload: &[u8]) -> Outcome<()> {
        assert_eq!(id.requester().role(), Some(Role::Client));
        let number = u32::from_le_bytes(*payload.first_chunk().expect("as it was asked"));
        assert!(!self.done.contains(&number), "executed twice");
        self.done.push(number);
        Outcome::Reply(Reply::new(&payload[..4], Repeat::Retain))
    }

    fn gather(&self, (): ()) -> &[u8] {
        &[]
    }

    fn release(&mut self, (): ()) {}

    fn completed(&mut self, _: Nanos, _: CallId, result: Result<Response<'_>, CallFailure>) {
        if let Ok(answer) = result {
            assert_eq!(answer.len(), 4);
        }
    }
}

fn members() -> &'static [Arc<Identity>; 2] {
    static MEMBERS: OnceLock<[Arc<Identity>; 2]> = OnceLock::new();
    MEMBERS.get_or_init(|| {
        let root = Root::generate().expect("random bytes");
        [Role::Client, Role::Server].map(|role| {
            let terms = Terms { role, name: "one".into(), grants: Vec::new(), valid: (0, 1 << 30) };
            Arc::new(root.issue(&terms).expect("an identity"))
        })
    })
}

pub(crate) fn run(bytes: &[u8]) {
    let Some(steps) = input::<Vec<Step<'_>>>(bytes) else { return };
    let config = Config { slots: 8, max_sessions: 8, max_client_sessions: 8, ..Config::default() };
    let addresses: [SocketAddr; 2] = [([10, 0, 0, 1], 1).into(), ([10, 0, 0, 2], 2).into()];
    let mut ends = [0_u8, 1].map(|at| {
        let member = Arc::clone(&members()[usize::from(at)]);
        let credentials = Credentials::new(member, &[at; 32], 1000);
        (
            Endpoint::<()>::new(&config, at.into()).secured(&config, credentials),
            Wire::default(),
            App::default(),
        )
    });
    let mut now = Nanos(1_000_000);
    let session = ends[0].0.connect(now, addresses[1], &mut ends[0].1).expect("the first");
    let mut kept: Vec<(usize, Vec<u8>)> = Vec::new();
    for (action, which, place, byte, bytes) in steps {
        match action % 8 {
            0 => {
                let (endpoint, wire, app) = &mut ends[0];
                app.next += 1;
                let parts = [&app.next.to_le_bytes()[..], bytes];
                let _ = endpoint.call(now, session, &parts, now + Duration::from_secs(5), wire);
            }
            1 => {
                let (endpoint, wire, app) = &mut ends[usize::from(which % 2)];
                endpoint.receive(now, addresses[usize::from(byte % 2)], bytes, app, wire);
            }
            2 => now = now + Duration::from_micros(u64::from(place) * 4),
            // The other actions deliver one of the kept frames: one of the latest four unchanged,
            // or any of them changed or cut.
            _ if kept.is_empty() => {}
            3..=5 => {
                let at = kept.len() - 1 - usize::from(which) % kept.len().min(4);
                let (to, frame) = kept[at].clone();
                let (endpoint, wire, app) = &mut ends[to];
                endpoint.receive(now, addresses[1 - to], &frame, app, wire);
            }
            action => {
                let (to, mut frame) = kept[usize::from(which) % kept.len()].clone();
                let place = usize::from(place) % frame.len();
                match action {
                    6 => frame[place] ^= byte | 1,
                    _ => frame.truncate(place),
                }
                let (endpoint, wire, app) = &mut ends[to];
                endpoint.receive(now, addresses[1 - to], &frame, app, wire);
            }
        }
        for (at, (endpoint, wire, app)) in ends.iter_mut().enumerate() {
            endpoint.poll(now, app, wire);
            endpoint.flush(wire);
            kept.extend(wire.0.drain(..).map(|frame| (1 - at, frame)));
            assert!(endpoint.channels() <= 16 + 256);
        }
        let surplus = kept.len().saturating_sub(MAX_KEPT);
        kept.drain(..surplus);
    }
    assert!(ends[1].2.done.iter().all(|&number| number <= ends[0].2.next), "only what was asked");
}
