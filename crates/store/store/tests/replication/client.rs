//! A client that writes continuously, and records which writes were acknowledged.

use sprat_net::Nanos;
use sprat_rpc::{CallFailure, CallId, Handler, Outcome, RequestId, Response, SessionId};
use sprat_store::node::{Caller, Service};
use sprat_wire::op::{Answer, Condition, Request, Status};
use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::time::Duration;
use zerocopy::IntoBytes;

/// Number of keys to which the client writes.
pub(crate) const KEYS: u64 = 40;

/// The writes of a key whose result a recovery may find: the write that was acknowledged last, and
/// those that the client has tried since.
#[derive(Clone, Debug, Default)]
pub(crate) struct Known {
    /// Number of the write that was acknowledged last, or 0 if no write was. The write may be a
    /// removal: see [`removes`].
    pub(crate) acknowledged: u64,
    /// Numbers of the later writes, which may have been executed.
    pub(crate) perhaps: Vec<u64>,
}

/// The client.
pub(crate) struct Client {
    master: SocketAddr,
    session: Option<SessionId>,
    under_way: Option<(CallId, u64, u64)>,
    next: u64,
    pub(crate) known: BTreeMap<u64, Known>,
    pub(crate) acknowledged: u64,
    /// The refusals because too few servers are available: the reason, and whether the write may
    /// nevertheless have been executed.
    pub(crate) refused: Vec<(String, bool)>,
    /// Number of answers that another server is to be asked whether the write was executed.
    pub(crate) passed_on: u64,
    chance: u64,
    resting: bool,
}

/// Returns the value of a write. Values are long enough to fill segments.
pub(crate) fn value(number: u64) -> Vec<u8> {
    let len = 8 + usize::try_from(number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 49).unwrap();
    let mut value = vec![u8::try_from(number % 251).unwrap(); len];
    value[..8].copy_from_slice(&number.to_le_bytes());
    value
}

/// Returns whether a write is a removal.
pub(crate) fn removes(number: u64) -> bool {
    number % 8 == 7
}

impl Client {
    pub(crate) fn new(master: SocketAddr, seed: u64) -> Self {
        let (known, chance) = (BTreeMap::new(), seed | 1);
        let refused = Vec::new();
        Self {
            master,
            session: None,
            under_way: None,
            next: 1,
            known,
            acknowledged: 0,
            refused,
            passed_on: 0,
            chance,
            resting: false,
        }
    }

    /// Begins no more writes.
    pub(crate) fn rest(&mut self) {
        self.resting = true;
    }

    /// Begins writes again.
    pub(crate) fn go_on(&mut self) {
        self.resting = false;
    }

    /// Returns whether no write is under way.
    pub(crate) fn rests(&self) -> bool {
        self.under_way.is_none()
    }

    fn answered(&mut self, key: u64, number: u64, status: Option<Status>) {
        let known = self.known.get_mut(&key).unwrap();
        match status {
            Some(Status::Ok) => {
                *known = Known { acknowledged: number, perhaps: Vec::new() };
                self.acknowledged += 1;
            }
            // There was nothing to remove, which has the effect of a removal.
            Some(Status::NotFound) => *known = Known { acknowledged: number, perhaps: Vec::new() },
            Some(_) => {
                known.perhaps.pop();
            }
            None => {}
        }
    }
}

impl Handler for Client {
    type Body = ();

    fn request(&mut self, _: Nanos, _: RequestId, _: &[u8]) -> Outcome<()> {
        Outcome::Retry(1000)
    }

    fn gather(&self, (): ()) -> &[u8] {
        &[]
    }

    fn release(&mut self, (): ()) {}

    fn completed(&mut self, _: Nanos, call: CallId, result: Result<Response<'_>, CallFailure>) {
        let Some((under_way, key, number)) = self.under_way.take() else {
            panic!("nothing was asked")
        };
        assert_eq!(under_way, call);
        let result = result.ok();
        let answer = result.as_deref().and_then(Answer::parse);
        let mut status = answer.map(|answer| answer.status);
        if let Some(answer) = answer.filter(|answer| answer.status == Status::TooFewServers) {
            let perhaps = answer.number != 0;
            self.refused.push((String::from_utf8_lossy(answer.body).into_owned(), perhaps));
            status = status.filter(|_| !perhaps);
        }
        if answer.is_some_and(|answer| answer.status == Status::Busy && answer.more) {
            self.passed_on += 1;
            status = None;
        }
        self.answered(key, number, status);
    }
}

impl Service for Client {
    fn poll(&mut self, _: Nanos) -> bool {
        false
    }

    fn take_ready(&mut self) -> Option<(RequestId, Outcome<()>)> {
        None
    }

    fn call(&mut self, now: Nanos, caller: &mut dyn Caller) {
        if self.under_way.is_some() || self.resting {
            return;
        }
        let session = *self.session.get_or_insert_with(|| caller.connect(self.master).unwrap());
        self.chance = self.chance.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        let (key, number) = ((self.chance >> 33) % KEYS, self.next);
        self.next += 1;
        let (name, value) = (key.to_le_bytes(), value(number));
        let (key_bytes, condition) = (&name[..], Condition::None);
        let request = if removes(number) {
            Request::Remove { table: 1, key: key_bytes, condition }
        } else {
            Request::Write { table: 1, key: key_bytes, value: &value, condition, ttl: None }
        };
        let (header, key_bytes, value) = request.parts();
        let parts = [header.as_bytes(), key_bytes, value];
        let call = caller.call(session, &parts, now + Duration::from_millis(2500)).unwrap();
        self.known.entry(key).or_default().perhaps.push(number);
        self.under_way = Some((call, key, number));
    }

    fn next_deadline(&self) -> Option<Nanos> {
        None
    }
}
