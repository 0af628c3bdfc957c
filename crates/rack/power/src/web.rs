//! Short answers over HTTP, as JSON, each within a time that nothing stretches: neither silence nor
//! an answer that trickles.

use crate::Trouble;
use crate::login::Login;
use base64::Engine as _;
use serde_json::Value;
use sprat_http::client::{Call, Caller, Options};
use sprat_http::{Cancel, Error};
use std::path::PathBuf;
use std::sync::mpsc::{RecvTimeoutError, channel};
use std::thread;
use std::time::{Duration, Instant};

/// Whose certificates are trusted.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub(crate) struct Trusted {
    /// Those of a file (PEM), in place of the machine's.
    pub(crate) authorities: Option<PathBuf>,
    /// One, by its SHA-256.
    pub(crate) pin: Option<[u8; 32]>,
    /// Any.
    pub(crate) anybody: bool,
}

/// A device that is asked again and again; a connection is kept while all is well.
#[derive(Debug)]
pub(crate) struct Web {
    trusted: Trusted,
    caller: Option<(Caller, Cancel)>,
}

impl Web {
    pub(crate) fn new(trusted: Trusted) -> Self {
        Self { trusted, caller: None }
    }

    /// Asks, as somebody if need be, and has all of the answer by then.
    pub(crate) fn get(
        &mut self,
        url: &str,
        login: Option<&Login>,
        until: Instant,
    ) -> Result<Value, Trouble> {
        let time = until.saturating_duration_since(Instant::now());
        if time.is_zero() {
            return Err(Trouble::Silent("the time that was given".to_owned()));
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
        let silent = || Trouble::Silent(format!("{:.1}", time.as_secs_f64()));
        let reply =
            done.map_err(|error| if cancel.is_cancelled() { silent() } else { trouble(&error) })?;
        if !cancel.is_cancelled() {
            self.caller = Some((caller, cancel));
        }
        match reply.head.status {
            200..=299 => serde_json::from_slice(&reply.body)
                .map_err(|error| Trouble::Nonsense(format!("{url}: {error}"))),
            status @ (401 | 403) => Err(Trouble::Denied(status.to_string())),
            404 => Err(Trouble::Absent(format!("{url} is not there"))),
            status => Err(Trouble::Unreachable(format!("{url}: it answers {status}"))),
        }
    }

    fn caller(&self, patience: Duration) -> Result<(Caller, Cancel), Trouble> {
        let Trusted { authorities, pin, anybody } = &self.trusted;
        let (authorities, insecure, pin) = (authorities.clone(), *anybody, *pin);
        let options = Options { patience, authorities, insecure, pin, ..Options::default() };
        let cancel = Cancel::default();
        let caller = Caller::new(&options, &cancel).map_err(|error| trouble(&error))?;
        Ok((caller, cancel))
    }
}

/// Names the settings of a sensor that would help.
fn trouble(error: &Error) -> Trouble {
    match error {
        Error::Unreachable { why, .. } => Trouble::Unreachable(why.clone()),
        Error::Untrusted { why, .. } => {
            let mend = "`authorities` names a file with whom to trust, `pin` one certificate";
            Trouble::Unreachable(format!("it is not trusted: {why}; {mend}"))
        }
        Error::Protocol { why, .. } => Trouble::Nonsense(why.clone()),
        Error::File { path, source } => {
            Trouble::File { path: path.clone(), why: source.to_string() }
        }
        other => Trouble::Unreachable(other.to_string()),
    }
}
