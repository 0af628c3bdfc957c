//! Commands on the server: what it is, and what it can do.

use super::connection::REDIS_VERSION;
use super::{COMMANDS, CommandInfo, NO_MANDATORY_KEYS, find, help, wrong_subcommand};
use crate::call::{Call, Failure};
use crate::glob;
use crate::session::DATABASES;
use sprat_resp::{CommandList, integer};
use sprat_wire::MAX_VALUE;
use std::fmt::Write as _;
use std::time::{SystemTime, UNIX_EPOCH};

/// Limit on the arguments of `COMMAND INFO` and `CONFIG GET`.
const MAX_NAMES: usize = 1024;

pub(super) fn time(call: &mut Call<'_>) -> Result<(), Failure> {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    call.reply.array(2);
    call.reply.bulk(now.as_secs().to_string().as_bytes());
    call.reply.bulk(now.subsec_micros().to_string().as_bytes());
    Ok(())
}

/// `WAIT`: every reply before this one has waited for all copies that there are.
pub(super) fn wait(call: &mut Call<'_>) -> Result<(), Failure> {
    call.integer(1)?;
    match integer(call.argument(2)) {
        None => return Err("ERR timeout is not an integer or out of range".into()),
        Some(..0) => return Err("ERR timeout is negative".into()),
        Some(_) => {}
    }
    call.reply.integer(0);
    Ok(())
}

/// Refuses a command that asks for very many names.
fn check_names(call: &Call<'_>) -> Result<(), Failure> {
    match call.command.len() > MAX_NAMES {
        true => Err(format!("ERR more than {MAX_NAMES} arguments; ask for less at once").into()),
        false => Ok(()),
    }
}

/// Replies with what is known of a command.
fn describe(call: &mut Call<'_>, info: &CommandInfo) {
    call.reply.array(10);
    call.reply.bulk(info.name.as_bytes());
    call.reply.integer(info.arity.into());
    call.reply.set(info.flags.len());
    info.flags.iter().for_each(|flag| call.reply.simple(flag));
    let (first, last, step) = info.keys;
    [first, last, step].into_iter().for_each(|number| call.reply.integer(number.into()));
    // No categories of access, hints, key specifications or subcommands.
    call.reply.set(0);
    (0..3).for_each(|_| call.reply.array(0));
}

pub(super) fn command(call: &mut Call<'_>) -> Result<(), Failure> {
    let Some(subcommand) = call.command.get(1) else {
        call.reply.array(COMMANDS.len());
        COMMANDS.iter().for_each(|info| describe(call, info));
        return Ok(());
    };
    match (&subcommand.to_ascii_lowercase()[..], call.command.len()) {
        (b"count", 2) => call.reply.integer(i64::try_from(COMMANDS.len()).expect("few")),
        (b"list", 2) => {
            call.reply.array(COMMANDS.len());
            COMMANDS.iter().for_each(|info| call.reply.bulk(info.name.as_bytes()));
        }
        (b"info", 2) => {
            call.reply.array(COMMANDS.len());
            COMMANDS.iter().for_each(|info| describe(call, info));
        }
        (b"info", _) => {
            check_names(call)?;
            call.reply.array(call.command.len() - 2);
            for name in call.command.iter().skip(2) {
                match find(name) {
                    Some(info) => describe(call, info),
                    None => call.reply.null_array(),
                }
            }
        }
        (b"docs", _) => call.reply.map(0),
        (b"help", 2) => help(
            call,
            &[
                "COMMAND [<subcommand> [<arg> [value] [opt] ...]]. Subcommands are:",
                "(no subcommand)",
                "    Return what is known of all commands.",
                "COUNT",
                "    Return the number of commands.",
                "DOCS [<command-name> [...]]",
                "    Accepted; there are none.",
                "GETKEYS <full-command>",
                "    Return the keys of a command.",
                "INFO [<command-name> ...]",
                "    Return what is known of commands.",
                "LIST",
                "    Return the names of all commands.",
            ],
        ),
        (b"getkeys", 4..) => keys_of_command(call)?,
        _ => return Err(wrong_subcommand(call, &["count", "list", "getkeys", "help"])),
    }
    Ok(())
}

/// Replies with the keys of the command that is among the arguments.
fn keys_of_command(call: &mut Call<'_>) -> Result<(), Failure> {
    let mut list = CommandList::default();
    list.push(call.command.iter().skip(2));
    let command = list.iter().next().expect("it was added");
    let info = find(command.name()).ok_or("ERR Invalid command specified")?;
    if !info.has_keys() {
        return Err("ERR The command has no key arguments".into());
    }
    if !info.has_arity_for(&command) {
        return Err("ERR Invalid number of arguments specified for command".into());
    }
    let keys: Vec<_> = info.key_positions(&command).collect();
    let is_wrong = info.numbered_at > 0 && !info.has(NO_MANDATORY_KEYS) && {
        let count = command.get(info.numbered_at).and_then(integer).unwrap_or_default();
        usize::try_from(count).is_ok_and(|count| count == 0 || count > keys.len())
    };
    if is_wrong || keys.is_empty() && !info.has(NO_MANDATORY_KEYS) {
        return Err("ERR Invalid arguments specified for command".into());
    }
    call.reply.array(keys.len());
    for at in keys {
        call.reply.bulk(command.get(at).expect("within the command"));
    }
    Ok(())
}

pub(super) fn config(call: &mut Call<'_>) -> Result<(), Failure> {
    match &call.argument(1).to_ascii_lowercase()[..] {
        b"get" if call.command.len() > 2 => {
            let settings = [
                ("appendfsync", "always".to_owned()),
                ("appendonly", "yes".to_owned()),
                ("databases", DATABASES.to_string()),
                ("maxclients", crate::front::MAX_CONNECTIONS.to_string()),
                ("maxmemory", "0".to_owned()),
                ("maxmemory-policy", "noeviction".to_owned()),
                ("port", call.server.port.to_string()),
                ("proto-max-bulk-len", MAX_VALUE.to_string()),
                ("save", String::new()),
                ("timeout", "0".to_owned()),
            ];
            check_names(call)?;
            let patterns = (2..call.command.len()).map(|at| call.pattern(at));
            let patterns = patterns.collect::<Result<Vec<_>, _>>()?;
            let is_wanted = |name: &str| {
                let matches =
                    |pattern: &&[u8]| glob::matches(&pattern.to_ascii_lowercase(), name.as_bytes());
                patterns.iter().any(matches)
            };
            let found: Vec<_> = settings.iter().filter(|(name, _)| is_wanted(name)).collect();
            call.reply.map(found.len());
            for (name, value) in found {
                call.reply.bulk(name.as_bytes());
                call.reply.bulk(value.as_bytes());
            }
        }
        b"set" if call.command.len() > 3 => {
            return Err("ERR CONFIG SET is not supported: options of `sprat server` set what can \
                        be set"
                .into());
        }
        b"resetstat" if call.command.len() == 2 => call.reply.simple("OK"),
        b"help" if call.command.len() == 2 => help(
            call,
            &[
                "CONFIG <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "GET <pattern> [<pattern> ...]",
                "    Return settings and their values.",
                "RESETSTAT",
                "    Accepted.",
            ],
        ),
        _ => return Err(wrong_subcommand(call, &["get", "set", "resetstat", "help"])),
    }
    Ok(())
}

pub(super) fn info(call: &mut Call<'_>) -> Result<(), Failure> {
    let mut text = String::new();
    for (name, lines) in sections(call) {
        let is_wanted = call.command.len() == 1
            || call.command.iter().skip(1).any(|wanted| {
                [name, "default", "all", "everything"]
                    .iter()
                    .any(|known| wanted.eq_ignore_ascii_case(known.as_bytes()))
            });
        if is_wanted {
            let separator = if text.is_empty() { "" } else { "\r\n" };
            let _ = write!(text, "{separator}# {name}\r\n");
            for (key, value) in lines {
                let _ = write!(text, "{key}:{value}\r\n");
            }
        }
    }
    call.reply.bulk(text.as_bytes());
    Ok(())
}

type Section = (&'static str, Vec<(String, String)>);

fn sections(call: &Call<'_>) -> Vec<Section> {
    let server = &call.server;
    let line = |key: &str, value: &dyn std::fmt::Display| (key.to_owned(), value.to_string());
    let about = vec![
        line("redis_version", &REDIS_VERSION),
        line("redis_mode", &"standalone"),
        line("sprat_version", &env!("CARGO_PKG_VERSION")),
        line("os", &"Linux"),
        line("arch_bits", &64),
        line("process_id", &std::process::id()),
        line("tcp_port", &server.port),
        line("uptime_in_seconds", &server.began.elapsed().as_secs()),
    ];
    let clients = vec![
        line("connected_clients", &server.connections),
        line("maxclients", &crate::front::MAX_CONNECTIONS),
        line("blocked_clients", &server.waiting.len()),
    ];
    let persistence = vec![
        line("loading", &0),
        line("aof_enabled", &1),
        line("aof_last_write_status", &if call.objects.stopped().is_some() { "err" } else { "ok" }),
    ];
    let stats = vec![
        line("total_connections_received", &server.accepted),
        line("rejected_connections", &server.refused),
        line("total_commands_processed", &server.commands),
        line("total_error_replies", &server.errors),
    ];
    let replication = vec![line("role", &"master"), line("connected_slaves", &0)];
    let keyspace = (0..DATABASES)
        .filter_map(|at| Some((at, call.objects.count(server.tables[at]?))))
        .filter(|(_, count)| *count > 0)
        .map(|(at, count)| line(&format!("db{at}"), &format_args!("keys={count}")));
    vec![
        ("Server", about),
        ("Clients", clients),
        ("Persistence", persistence),
        ("Stats", stats),
        ("Replication", replication),
        ("Keyspace", keyspace.collect()),
    ]
}
