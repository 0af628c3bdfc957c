//! Commands on the connection itself.

use super::{help, wrong_subcommand};
use crate::call::{Call, Failure, SYNTAX};
use crate::session::Session;
use sprat_resp::{Protocol, integer};
use std::fmt::Write as _;

/// The version of Redis whose commands and errors these are. Clients decide by it what they send.
pub(super) const REDIS_VERSION: &str = "7.0.15";

/// Limit on the length of a client's name, in bytes.
const MAX_CLIENT_NAME: usize = 256;

pub(super) fn ping(call: &mut Call<'_>) -> Result<(), Failure> {
    let Session { protocol, subscriptions, .. } = &call.session;
    let is_subscriber = *protocol == Protocol::Resp2 && subscriptions.len() > 0;
    match call.command.len() {
        1 | 2 if is_subscriber => {
            call.reply.array(2);
            call.reply.bulk(b"pong");
            call.reply.bulk(call.command.get(1).unwrap_or_default());
        }
        1 => call.reply.simple("PONG"),
        2 => call.reply.bulk(call.argument(1)),
        _ => return Err("ERR wrong number of arguments for 'ping' command".into()),
    }
    Ok(())
}

pub(super) fn echo(call: &mut Call<'_>) -> Result<(), Failure> {
    call.reply.bulk(call.argument(1));
    Ok(())
}

pub(super) fn quit(call: &mut Call<'_>) -> Result<(), Failure> {
    call.session.ends = true;
    call.reply.simple("OK");
    Ok(())
}

pub(super) fn reset(call: &mut Call<'_>) -> Result<(), Failure> {
    let Session { id, slot, peer, since, .. } = *call.session;
    call.server.channels.unsubscribe_all(slot, &mut call.session.subscriptions);
    let is_authenticated = !call.server.has_password();
    *call.session = Session { since, ..Session::new((id, slot), peer, is_authenticated) };
    call.reply.speak(call.session.protocol);
    call.reply.simple("RESET");
    Ok(())
}

pub(super) fn select(call: &mut Call<'_>) -> Result<(), Failure> {
    call.session.database = call.database(1)?;
    call.reply.simple("OK");
    Ok(())
}

/// Checks a name that a client gives to itself.
fn check_name(name: &[u8]) -> Result<(), Failure> {
    if name.len() > MAX_CLIENT_NAME {
        return Err(format!("ERR a client's name has at most {MAX_CLIENT_NAME} bytes").into());
    }
    match name.iter().all(|byte| (b'!'..=b'~').contains(byte)) {
        true => Ok(()),
        false => {
            Err("ERR Client names cannot contain spaces, newlines or special characters.".into())
        }
    }
}

/// Checks the user and password of a client. The only user is Redis' default user.
fn authenticate(call: &mut Call<'_>, user: &[u8], password: &[u8]) -> Result<(), Failure> {
    if user != b"default" || !call.server.is_password(password) {
        return Err("WRONGPASS invalid username-password pair or user is disabled.".into());
    }
    call.session.is_authenticated = true;
    Ok(())
}

pub(super) fn auth(call: &mut Call<'_>) -> Result<(), Failure> {
    match call.command.len() {
        2 if !call.server.has_password() => {
            return Err("ERR AUTH <password> called without any password configured for the \
                        default user. Are you sure your configuration is correct?"
                .into());
        }
        2 => authenticate(call, b"default", call.argument(1))?,
        3 => authenticate(call, call.argument(1), call.argument(2))?,
        _ => return Err(SYNTAX.into()),
    }
    call.reply.simple("OK");
    Ok(())
}

pub(super) fn hello(call: &mut Call<'_>) -> Result<(), Failure> {
    let mut protocol = call.session.protocol;
    if let Some(version) = call.command.get(1) {
        protocol = match integer(version) {
            Some(2) => Protocol::Resp2,
            Some(3) => Protocol::Resp3,
            Some(_) => return Err("NOPROTO unsupported protocol version".into()),
            None => return Err("ERR Protocol version is not an integer or out of range".into()),
        };
    }
    let (mut name, mut at) = (None, 2);
    while let Some(option) = call.command.get(at) {
        let more = call.command.len() - 1 - at;
        match &option.to_ascii_lowercase()[..] {
            b"auth" if more >= 2 => {
                authenticate(call, call.argument(at + 1), call.argument(at + 2))?;
                at += 2;
            }
            b"setname" if more >= 1 => {
                check_name(call.argument(at + 1))?;
                name = Some(call.argument(at + 1));
                at += 1;
            }
            _ => {
                let option = String::from_utf8_lossy(option);
                return Err(format!("ERR Syntax error in HELLO option '{option}'").into());
            }
        }
        at += 1;
    }
    if !call.session.is_authenticated {
        return Err(
            "NOAUTH HELLO must be called with the client already authenticated, otherwise \
                    the HELLO AUTH <user> <pass> option can be used to authenticate the client \
                    and select the RESP protocol version at the same time"
                .into(),
        );
    }
    if let Some(name) = name {
        call.session.name = name.to_vec();
    }
    call.session.protocol = protocol;
    call.reply.speak(protocol);
    call.reply.map(7);
    for (key, value) in [("server", "redis"), ("version", REDIS_VERSION)] {
        call.reply.bulk(key.as_bytes());
        call.reply.bulk(value.as_bytes());
    }
    call.reply.bulk(b"proto");
    call.reply.integer(if protocol == Protocol::Resp2 { 2 } else { 3 });
    call.reply.bulk(b"id");
    call.reply.integer(call.session.id.cast_signed());
    for (key, value) in [("mode", "standalone"), ("role", "master")] {
        call.reply.bulk(key.as_bytes());
        call.reply.bulk(value.as_bytes());
    }
    call.reply.bulk(b"modules");
    call.reply.array(0);
    Ok(())
}

/// What `CLIENT HELP` shows.
const CLIENT_HELP: &[&str] = &[
    "CLIENT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
    "GETNAME",
    "    Return the name of the current connection.",
    "ID",
    "    Return the ID of the current connection.",
    "INFO",
    "    Return information about the current client connection.",
    "NO-EVICT (ON|OFF)",
    "    Accepted; no client of this server is closed to save memory while it reads its replies.",
    "SETINFO (LIB-NAME|LIB-VER) <value>",
    "    Accepted.",
    "SETNAME <name>",
    "    Assign the name <name> to the current connection.",
];

pub(super) fn client(call: &mut Call<'_>) -> Result<(), Failure> {
    let name = call.argument(1).to_ascii_lowercase();
    let parts = match &name[..] {
        b"id" | b"getname" | b"info" | b"help" => 2,
        b"setname" | b"no-evict" => 3,
        b"setinfo" => 4,
        _ => 0,
    };
    if call.command.len() != parts {
        let known = ["id", "getname", "info", "help", "setname", "no-evict", "setinfo"];
        return Err(wrong_subcommand(call, &known));
    }
    match &name[..] {
        b"id" => call.reply.integer(call.session.id.cast_signed()),
        b"getname" if call.session.name.is_empty() => call.reply.null(),
        b"getname" => call.reply.bulk(&call.session.name),
        b"info" => call.reply.bulk(describe(call.session).as_bytes()),
        b"help" => help(call, CLIENT_HELP),
        b"setname" => {
            check_name(call.argument(2))?;
            call.session.name = call.argument(2).to_vec();
            call.reply.simple("OK");
        }
        b"no-evict" => match &call.argument(2).to_ascii_lowercase()[..] {
            b"on" | b"off" => call.reply.simple("OK"),
            _ => return Err(SYNTAX.into()),
        },
        _ => match &call.argument(2).to_ascii_lowercase()[..] {
            b"lib-name" | b"lib-ver" => call.reply.simple("OK"),
            other => {
                let option = String::from_utf8_lossy(other);
                return Err(format!("ERR Unrecognized option '{option}'").into());
            }
        },
    }
    Ok(())
}

fn describe(session: &Session) -> String {
    let Session { id, peer, since, name, database, protocol, .. } = session;
    let mut line = format!("id={id} addr={peer} name={}", String::from_utf8_lossy(name));
    let age = since.elapsed().as_secs();
    let version = if *protocol == Protocol::Resp2 { 2 } else { 3 };
    let _ = write!(line, " age={age} flags=N db={database} cmd=client|info user=default");
    let _ = writeln!(line, " resp={version}");
    line
}
