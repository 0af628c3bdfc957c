//! Firefox's remote control: commands of WebDriver as JSON over a TCP connection, each frame with its length before it.

use serde_json::{Value, json};
use std::io::{self, BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;

/// A session. It ends with the browser.
pub(crate) struct Marionette {
    stream: BufReader<TcpStream>,
    sent: u64,
}

impl Marionette {
    /// Connects to the port that Firefox told, and begins a session.
    pub(crate) fn connect(port: u16) -> io::Result<Self> {
        let stream = BufReader::new(TcpStream::connect(("127.0.0.1", port))?);
        let mut marionette = Self { stream, sent: 0 };
        let hello = marionette.receive()?;
        assert_eq!(hello["marionetteProtocol"], 3, "{hello}");
        marionette
            .ask("WebDriver:NewSession", json!({ "capabilities": { "alwaysMatch": { "acceptInsecureCerts": true } } }));
        Ok(marionette)
    }

    /// Does a command that must succeed.
    #[track_caller]
    pub(crate) fn ask(&mut self, command: &str, parameters: Value) -> Value {
        self.try_ask(command, parameters).unwrap_or_else(|error| panic!("{command}: {error}"))
    }

    /// Does a command; an error is what Firefox said.
    pub(crate) fn try_ask(&mut self, command: &str, parameters: Value) -> Result<Value, Value> {
        self.sent += 1;
        let text = json!([0, self.sent, command, parameters]).to_string();
        let sent = write!(self.stream.get_mut(), "{}:{text}", text.len()).and_then(|()| self.receive());
        let mut answer = sent.map_err(|error| error.to_string())?;
        assert_eq!(answer[1], self.sent, "answers come in order");
        if answer[2].is_null() { Ok(answer[3].take()) } else { Err(answer[2].take()) }
    }

    /// Goes to an address.
    #[track_caller]
    pub(crate) fn go(&mut self, url: &str) {
        self.ask("WebDriver:Navigate", json!({ "url": url }));
    }

    /// Clicks on the first element that a selector finds; it must be there.
    #[track_caller]
    pub(crate) fn click(&mut self, selector: &str) {
        let found = self.find(selector);
        let id = found.as_object().and_then(|element| element.values().next()).expect("an element");
        self.ask("WebDriver:ElementClick", json!({ "id": id }));
    }

    /// Presses the right button of a mouse over such an element.
    #[track_caller]
    pub(crate) fn open_menu(&mut self, selector: &str) {
        let element = self.find(selector);
        let mouse = json!({
            "type": "pointer",
            "id": "mouse",
            "parameters": { "pointerType": "mouse" },
            "actions": [
                { "type": "pointerMove", "duration": 0, "x": 0, "y": 0, "origin": element },
                { "type": "pointerDown", "button": 2 },
                { "type": "pointerUp", "button": 2 },
            ],
        });
        self.ask("WebDriver:PerformActions", json!({ "actions": [mouse] }));
    }

    /// The first element that a selector finds; it must be there.
    #[track_caller]
    fn find(&mut self, selector: &str) -> Value {
        self.ask("WebDriver:FindElement", json!({ "using": "css selector", "value": selector }))["value"].take()
    }

    /// What a script in the page returns.
    #[track_caller]
    pub(crate) fn script(&mut self, script: &str) -> Value {
        self.ask("WebDriver:ExecuteScript", json!({ "script": script, "args": [] }))["value"].take()
    }

    fn receive(&mut self) -> io::Result<Value> {
        let mut head = Vec::new();
        self.stream.read_until(b':', &mut head)?;
        let length = str::from_utf8(&head).ok().and_then(|text| text.strip_suffix(':')?.parse().ok());
        let mut body = vec![0; length.ok_or(io::ErrorKind::UnexpectedEof)?];
        self.stream.read_exact(&mut body)?;
        Ok(serde_json::from_slice(&body)?)
    }
}
