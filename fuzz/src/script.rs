//! Scripts of Redis clients, and what their libraries parse: whatever is read can be written and
//! read again.

use crate::input;
use sprat_lua::{Engine, Host, Stop};
use sprat_resp::{Command, Protocol, ReplyWriter};
use std::cell::RefCell;

/// Calls what parses its arguments.
const PARSES: &str = "
    local text, other = ARGV[1], ARGV[2]
    local ok, value = pcall(cjson.decode, text)
    if ok then
        local written, json = pcall(cjson.encode, value)
        if written then
            cjson.decode(json)
        end
    end
    for _, value in ipairs({ pcall(cmsgpack.unpack, text) }) do
        cmsgpack.unpack(cmsgpack.pack(value))
    end
    pcall(cmsgpack.unpack_limit, text, 3, #other)
    pcall(struct.unpack, other, text)
    pcall(struct.size, text)
    pcall(string.find, text, other)
    pcall(string.gsub, text, other, '%0%1')
    return 'done'";

/// Refuses every command.
struct Nothing;

impl Host for Nothing {
    fn call(
        &mut self,
        _command: Command<'_>,
        protocol: Protocol,
        reply: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        ReplyWriter::new(reply, protocol).error("ERR no command here");
        Ok(())
    }
}

pub(crate) fn run(bytes: &[u8]) {
    thread_local! {
        static ENGINE: RefCell<Engine> = RefCell::new(Engine::new(1));
    }
    let Some((at, bytes)) = input::<(u8, &[u8])>(bytes) else { return };
    ENGINE.with_borrow_mut(|engine| {
        let parts = bytes.split_at(usize::from(at).min(bytes.len()));
        let mut execute = |text: &[u8]| {
            let script = engine.load(text, false).ok()?;
            let mut reply = Vec::new();
            let mut writer = ReplyWriter::new(&mut reply, Protocol::Resp3);
            let arguments = [parts.0, parts.1];
            let ended = engine.run(&script, &[], &arguments, &mut Nothing, &mut writer, 1 << 16);
            ended.ok().map(|()| reply)
        };
        execute(bytes);
        // A pattern may take long.
        if let Some(reply) = execute(PARSES.as_bytes()) {
            assert_eq!(reply.escape_ascii().to_string(), "$4\\r\\ndone\\r\\n");
        }
    });
}
