//! Scripts: `EVAL`, `EVALSHA`, their forms that only read, and `SCRIPT`.
//!
//! [`sprat_lua`] executes them. What the commands of a script change is kept back until its end
//! (see [`crate::staged`]), so all of it counts, or nothing if the script takes too long.

use super::transactions::run_staged;
use super::{NO_MANDATORY_KEYS, find, help, wrong_subcommand};
use crate::call::{Call, Failure, NOT_AN_INTEGER};
use sprat_lua::{Ended, Engine, Host, Sha, Stop, TIME_LIMIT};
use sprat_resp::{Command, Protocol, ReplyWriter, integer};
use std::time::Duration;

/// The flags of the commands that execute scripts.
pub(super) const FLAGS: &[&str] =
    &["noscript", "stale", "skip_monitor", NO_MANDATORY_KEYS, "movablekeys"];
pub(super) const READ_FLAGS: &[&str] =
    &["readonly", "noscript", "stale", "skip_monitor", NO_MANDATORY_KEYS, "movablekeys"];

/// How long a client waits after a script that took too long, so that others have their turn.
const PENALTY: Duration = Duration::from_secs(5);

const NO_SCRIPT: &str = "NOSCRIPT No matching script. Please use EVAL.";

/// The reply to a command that scripts may not execute.
const NOT_ALLOWED: &str = "ERR This Redis command is not allowed from script";

pub(super) fn eval(call: &mut Call<'_>) -> Result<(), Failure> {
    execute(call, false, false)
}

pub(super) fn eval_ro(call: &mut Call<'_>) -> Result<(), Failure> {
    execute(call, false, true)
}

pub(super) fn evalsha(call: &mut Call<'_>) -> Result<(), Failure> {
    execute(call, true, false)
}

pub(super) fn evalsha_ro(call: &mut Call<'_>) -> Result<(), Failure> {
    execute(call, true, true)
}

/// Executes a script, given its text or its hash.
fn execute(call: &mut Call<'_>, by_sha: bool, only_reads: bool) -> Result<(), Failure> {
    let count = integer(call.argument(2)).ok_or(NOT_AN_INTEGER)?;
    let rest: Vec<_> = call.command.iter().skip(3).collect();
    let count = match usize::try_from(count) {
        Err(_) => return Err("ERR Number of keys can't be negative".into()),
        Ok(count) if count > rest.len() => {
            return Err("ERR Number of keys can't be greater than number of args".into());
        }
        Ok(count) => count,
    };
    let (keys, arguments) = rest.split_at(count);
    let mut engine = take_engine(call);
    let sha = match by_sha {
        true => parse_sha(call.argument(1)).filter(|sha| engine.has(sha)).ok_or(NO_SCRIPT.into()),
        false => engine.load(call.argument(1), false),
    };
    let done = sha.map_err(Failure::from).and_then(|sha| {
        let only_reads = only_reads || engine.only_reads(&sha) == Some(true);
        let database = call.session.database;
        let done = call.staged(|call| {
            let mut reply = Vec::new();
            let mut writer = ReplyWriter::new(&mut reply, call.session.protocol);
            let room = call.room;
            let mut host = ScriptHost { call: &mut *call, only_reads, failure: None };
            let ended = engine.run(&sha, keys, arguments, &mut host, &mut writer, room);
            let failure = host.failure;
            match ended {
                Ok(()) => {
                    call.reply.raw(&reply);
                    Ok(())
                }
                Err(Ended::Stopped) => Err(failure.expect("the host has stopped the script")),
                Err(ended) => {
                    if ended == Ended::Time {
                        // The time of the call is that before the script.
                        call.session.not_before = call.now + TIME_LIMIT + PENALTY;
                    }
                    Err(ended.to_string().into())
                }
            }
        });
        // What a script selects is for the script.
        call.session.database = database;
        done
    });
    call.server.scripts = Some(engine);
    done
}

/// Takes the engine while a script is loaded or executed.
fn take_engine(call: &mut Call<'_>) -> Box<Engine> {
    match call.server.scripts.take() {
        Some(engine) => engine,
        None => Box::new(Engine::new(call.server.random())),
    }
}

/// Returns the hash of a script that an argument names, in either case.
fn parse_sha(argument: &[u8]) -> Option<Sha> {
    let mut sha = Sha::try_from(argument).ok()?;
    sha.make_ascii_lowercase();
    Some(sha)
}

/// Executes the commands of a script.
struct ScriptHost<'a, 'c> {
    call: &'a mut Call<'c>,
    only_reads: bool,
    /// Why the script must not go on.
    failure: Option<Failure>,
}

impl ScriptHost<'_, '_> {
    /// Returns why a command is refused; `None` if it is executed.
    fn refusal(&self, command: &Command<'_>) -> Option<&'static str> {
        let Some(info) = find(command.name()) else {
            return Some("ERR Unknown Redis command called from script");
        };
        if !info.has_arity_for(command) {
            return Some("ERR Wrong number of args calling Redis command from script");
        }
        let is_allowed = match info.uses_database {
            // As in Redis, two commands that wait may be in scripts, and do not wait there.
            true => match info.name {
                "blmpop" | "bzmpop" => true,
                "watch" => false,
                _ => !info.has("noscript") && !info.has("blocking"),
            },
            false => matches!(
                info.name,
                "command" | "echo" | "info" | "ping" | "publish" | "pubsub" | "select" | "time"
            ),
        };
        if matches!(info.name, "flushall" | "flushdb") {
            return Some("ERR FLUSHALL and FLUSHDB are not possible in a script");
        }
        if !is_allowed {
            return Some(NOT_ALLOWED);
        }
        let changes = info.has("write") && self.only_reads;
        changes.then_some("ERR Write commands are not allowed from read-only scripts.")
    }
}

impl Host for ScriptHost<'_, '_> {
    fn call(
        &mut self,
        command: Command<'_>,
        protocol: Protocol,
        reply: &mut Vec<u8>,
    ) -> Result<(), Stop> {
        if let Some(refusal) = self.refusal(&command) {
            ReplyWriter::new(reply, protocol).error(refusal);
            return Ok(());
        }
        let info = find(command.name()).expect("it is known");
        let call = &mut *self.call;
        let spoken = std::mem::replace(&mut call.session.protocol, protocol);
        let begin = call.reply.len();
        let done = run_staged(call, info, command, call.room);
        reply.append(&mut call.reply.split_off(begin));
        call.session.protocol = spoken;
        done.map_err(|failure| {
            self.failure = Some(failure);
            Stop
        })
    }
}

pub(super) fn script(call: &mut Call<'_>) -> Result<(), Failure> {
    let mut engine = take_engine(call);
    let done = manage(call, &mut engine);
    call.server.scripts = Some(engine);
    done
}

fn manage(call: &mut Call<'_>, engine: &mut Engine) -> Result<(), Failure> {
    match (&call.argument(1).to_ascii_lowercase()[..], call.command.len()) {
        (b"load", 3) => {
            let sha = engine.load(call.argument(2), true)?;
            call.reply.bulk(&sha);
        }
        (b"exists", 3..) => {
            call.reply.array(call.command.len() - 2);
            for name in call.command.iter().skip(2) {
                let exists = parse_sha(name).is_some_and(|sha| engine.has(&sha));
                call.reply.integer(exists.into());
            }
        }
        (b"flush", 2 | 3) => {
            let is_way = |way: &[u8]| {
                way.eq_ignore_ascii_case(b"sync") || way.eq_ignore_ascii_case(b"async")
            };
            if !call.command.get(2).is_none_or(is_way) {
                return Err("ERR SCRIPT FLUSH only support SYNC|ASYNC option".into());
            }
            engine.flush();
            call.reply.simple("OK");
        }
        (b"help", 2) => help(
            call,
            &[
                "SCRIPT <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "EXISTS <sha1> [<sha1> ...]",
                "    Return which scripts the server has.",
                "FLUSH [ASYNC|SYNC]",
                "    Forget all scripts.",
                "KILL",
                "    Accepted; a script that takes too long is ended in any case.",
                "LOAD <script>",
                "    Load a script without executing it.",
            ],
        ),
        // A script is executed at once, or ended.
        (b"kill", 2) => return Err("NOTBUSY No scripts in execution right now.".into()),
        _ => return Err(wrong_subcommand(call, &["load", "exists", "flush", "kill", "help"])),
    }
    Ok(())
}
