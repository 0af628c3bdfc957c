//! The results of a client's calls.

use sprat_net::Nanos;
use sprat_rpc::{CallFailure, CallId, Handler, Outcome, RequestId, Response};
use std::collections::HashMap;

/// The result of each call, until a test takes it.
#[derive(Default)]
pub(crate) struct Ended {
    pub(crate) results: HashMap<CallId, Result<Vec<u8>, CallFailure>>,
}

impl Handler for Ended {
    type Body = ();

    fn request(&mut self, _: Nanos, _: RequestId, _: &[u8]) -> Outcome<()> {
        panic!("a client gets no requests");
    }

    fn gather(&self, (): ()) -> &[u8] {
        &[]
    }

    fn release(&mut self, (): ()) {}

    fn completed(&mut self, _: Nanos, call: CallId, result: Result<Response<'_>, CallFailure>) {
        let twice = self.results.insert(call, result.map(Response::into_vec));
        assert!(twice.is_none(), "a call ended twice");
    }
}
