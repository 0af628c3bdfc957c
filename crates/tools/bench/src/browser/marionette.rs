//! Firefox's remote control, Marionette: WebDriver commands as JSON over a TCP connection. The
//! length of each message precedes it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use serde_json::{Value, json};

use super::PATIENCE;

/// The supported version of the protocol.
const PROTOCOL: u64 = 3;

/// Limit on the length of an answer, in bytes. A longer answer is an error.
const MAX_ANSWER: usize = 64 << 20;

/// A session with a browser. The session ends with the browser.
#[derive(Debug)]
pub(super) struct Marionette {
    stream: BufReader<TcpStream>,
    sent: u64,
}

impl Marionette {
    /// Connects to the port in Firefox's port file, and begins a session. Returns `None` if Firefox
    /// does not listen there yet.
    pub(super) fn connect(port: u16) -> Result<Option<Self>> {
        let Ok(stream) = TcpStream::connect(("127.0.0.1", port)) else { return Ok(None) };
        stream.set_read_timeout(Some(PATIENCE))?;
        let mut marionette = Self { stream: BufReader::new(stream), sent: 0 };
        let hello = marionette.receive()?;
        ensure!(
            hello["marionetteProtocol"] == PROTOCOL,
            "Firefox's remote control has changed: {hello}"
        );
        marionette.call(
            "WebDriver:NewSession",
            json!({ "capabilities": { "alwaysMatch": { "acceptInsecureCerts": true } } }),
        )?;
        Ok(Some(marionette))
    }

    /// Sends a command and returns its result.
    pub(super) fn call(&mut self, command: &str, parameters: Value) -> Result<Value> {
        self.sent += 1;
        let text = json!([0, self.sent, command, parameters]).to_string();
        write!(self.stream.get_mut(), "{}:{text}", text.len())
            .with_context(|| format!("{command}, to Firefox"))?;
        let mut answer = self.receive().with_context(|| format!("Firefox, asked for {command}"))?;
        ensure!(answer[1] == self.sent, "Firefox answers {} to command {}", answer[1], self.sent);
        if answer[2].is_null() {
            Ok(answer[3].take())
        } else {
            Err(anyhow!("{command}: {}", answer[2]))
        }
    }

    /// Returns the first element that matches a selector. Returns an error if there is none.
    pub(super) fn find(&mut self, selector: &str) -> Result<Value> {
        Ok(self
            .call("WebDriver:FindElement", json!({ "using": "css selector", "value": selector }))?
            ["value"]
            .take())
    }

    fn receive(&mut self) -> Result<Value> {
        let mut head = Vec::new();
        self.stream.read_until(b':', &mut head)?;
        let length =
            str::from_utf8(&head).ok().and_then(|text| text.strip_suffix(':')?.parse().ok());
        let Some(length) = length.filter(|length| *length <= MAX_ANSWER) else {
            bail!("it has ended")
        };
        let mut body = vec![0; length];
        self.stream.read_exact(&mut body)?;
        Ok(serde_json::from_slice(&body)?)
    }
}
