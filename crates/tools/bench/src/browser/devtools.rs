//! Chromium's remote control, the DevTools protocol: JSON messages over two pipes, each followed by
//! a zero byte.

use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{ChildStdin, ChildStdout};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread::Builder;

use anyhow::{Context as _, Result, anyhow};
use serde_json::{Value, json};

use super::PATIENCE;

/// Limit on the answers that are queued.
const MAX_MESSAGES: usize = 256;

/// A connection to a browser. The connection ends with the browser.
#[derive(Debug)]
pub(super) struct Devtools {
    to: ChildStdin,
    from: Receiver<Value>,
    sent: u64,
}

impl Devtools {
    /// Connects over the browser's pipes. A thread reads the answers until the browser ends or this
    /// value is dropped.
    pub(super) fn new(to: ChildStdin, from: ChildStdout) -> Result<Self> {
        let (messages, received) = sync_channel(MAX_MESSAGES);
        let read = move || {
            let mut from = BufReader::new(from);
            let mut message = Vec::new();
            // The loop ends when the browser ends, or when the receiver is dropped.
            while from.read_until(0, &mut message).is_ok_and(|bytes| bytes > 0) {
                let parsed =
                    serde_json::from_slice::<Value>(message.strip_suffix(&[0]).unwrap_or(&message));
                // Messages without an id are events. They are ignored.
                if let Some(answer) = parsed.ok().filter(|answer| answer["id"].is_u64())
                    && messages.send(answer).is_err()
                {
                    return;
                }
                message.clear();
            }
        };
        Builder::new().name("devtools".to_owned()).spawn(read).context("starting a thread")?;
        Ok(Self { to, from: received, sent: 0 })
    }

    /// Sends a command to the browser, or to the tab of a session, and returns its result.
    pub(super) fn call(
        &mut self,
        session: Option<&str>,
        command: &str,
        parameters: Value,
    ) -> Result<Value> {
        self.sent += 1;
        let mut message = json!({ "id": self.sent, "method": command, "params": parameters });
        if let Some(session) = session {
            message["sessionId"] = session.into();
        }
        write!(self.to, "{message}\0").with_context(|| format!("{command}, to Chromium"))?;
        loop {
            let answer = self.from.recv_timeout(PATIENCE);
            let mut answer =
                answer.map_err(|_| anyhow!("{command}: Chromium does not answer, or has ended"))?;
            if answer["id"] == self.sent {
                return match answer["error"].take() {
                    Value::Null => Ok(answer["result"].take()),
                    error => Err(anyhow!("{command}: {error}")),
                };
            }
        }
    }
}
