//! Sends short requests over HTTP, and parses the answers as JSON. A device that is silent or slow
//! cannot make a request exceed its time.

use crate::Cause;
use crate::login::Login;
use base64::Engine as _;
use serde_json::Value;
use sprat_http::client::{Call, Caller, Options};
use sprat_http::{Cancel, Error};
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Which certificates are trusted.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Trusted {
    /// The authorities in this PEM file, instead of the machine's.
    pub(crate) authorities: Option<PathBuf>,
    /// The certificate with this SHA-256 fingerprint.
    pub(crate) pin: Option<[u8; 32]>,
    /// Any certificate.
    pub(crate) any: bool,
}

/// A device that is queried repeatedly. The connection is kept after each complete answer.
#[derive(Debug)]
pub(crate) struct Web {
    trusted: Trusted,
    caller: Option<(Caller, Cancel)>,
}

impl Web {
    pub(crate) fn new(trusted: Trusted) -> Self {
        Self { trusted, caller: None }
    }

    /// Sends a request, with credentials if given, and returns the answer as JSON. Fails if the
    /// answer is not complete before `until`, is not JSON, or has another status than success.
    pub(crate) fn get(
        &mut self,
        url: &str,
        login: Option<&Login>,
        until: Instant,
    ) -> Result<Value, Cause> {
        let time = until.saturating_duration_since(Instant::now());
        if time.is_zero() {
            return Err(Cause::Silent("0".to_owned()));
        }
        let (caller, cancel) = match self.caller.take() {
            Some(kept) => kept,
            None => self.caller(time)?,
        };
        let mut fields = vec![("Accept".to_owned(), "application/json".to_owned())];
        if let Some(Login { user, password }) = login {
            let both =
                base64::engine::general_purpose::STANDARD.encode(format!("{user}:{password}"));
            fields.push(("Authorization".to_owned(), format!("Basic {both}")));
        }
        let (over, waits) = channel::<()>();
        let watch = cancel.clone();
        let watcher = thread::spawn(move || {
            if waits.recv_timeout(time) == Err(RecvTimeoutError::Timeout) {
                watch.cancel();
            }
        });
        let done = caller.call(Call { method: "GET", url, fields: &fields, body: &[] });
        drop(over);
        let _ = watcher.join();
        let silent = || Cause::Silent(format!("{:.1}", time.as_secs_f64()));
        let reply =
            done.map_err(|error| if cancel.is_cancelled() { silent() } else { cause(&error) })?;
        if !cancel.is_cancelled() {
            self.caller = Some((caller, cancel));
        }
        match reply.head.status {
            200..=299 => serde_json::from_slice(&reply.body)
                .map_err(|error| Cause::Nonsense(format!("{url}: {error}"))),
            status @ (401 | 403) => Err(Cause::Denied(status.to_string())),
            404 => Err(Cause::Absent(format!("{url} does not exist"))),
            status => Err(Cause::Unreachable(format!("{url}: it answers {status}"))),
        }
    }

    fn caller(&self, patience: Duration) -> Result<(Caller, Cancel), Cause> {
        let Trusted { authorities, pin, any } = &self.trusted;
        let (authorities, insecure, pin) = (authorities.clone(), *any, *pin);
        let options = Options { patience, authorities, insecure, pin, ..Options::default() };
        let cancel = Cancel::default();
        let caller = Caller::new(&options, &cancel).map_err(|error| cause(&error))?;
        Ok((caller, cancel))
    }
}

/// Turns an HTTP error into a cause, which names the settings that help.
fn cause(error: &Error) -> Cause {
    match error {
        Error::Unreachable { why, .. } => Cause::Unreachable(why.clone()),
        Error::Untrusted { why, .. } => {
            let remedy = "set `authorities` to a file of trusted certificates, or `pin` to this \
                          one's fingerprint";
            Cause::Unreachable(format!("its certificate is not trusted: {why}; {remedy}"))
        }
        Error::Protocol { why, .. } => Cause::Nonsense(why.clone()),
        Error::File { path, source } => Cause::File { path: path.clone(), why: source.to_string() },
        other => Cause::Unreachable(other.to_string()),
    }
}
