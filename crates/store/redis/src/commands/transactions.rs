//! Transactions: `MULTI`, `EXEC`, `DISCARD`, `WATCH` and `UNWATCH`.
//!
//! A connection keeps the commands after `MULTI`. `EXEC` executes them with nothing in between, and
//! what they change is a group of the log: after a crash all of it is there, or nothing. As in
//! Redis, a command that fails does not undo the others.

use super::{CommandInfo, find};
use crate::call::{Call, ENTRY, Failure, NO_TABLE, Resume, find_in, try_again};
use crate::collections::{ELEMENT, collection_of, elements_len, making_len};
use crate::extended::MAX_SUM;
use crate::objects::{Access, Unready};
use crate::session::{DATABASES, Transaction, Watched};
use sprat_resp::{Command, integer};
use sprat_wire::{MAX_KEY, MAX_VALUE};
use std::collections::{HashMap, HashSet};

/// Limit on the bytes of memory of the commands between `MULTI` and `EXEC`.
pub(crate) const MAX_QUEUED: usize = 16 << 20;

/// Bytes of copies of elements above which no transaction has room for them.
const MAX_COPIES: usize = 1 << 30;

/// Limit on the keys that a connection watches.
pub(crate) const MAX_WATCHED: usize = 16 << 10;

pub(super) fn multi(call: &mut Call<'_>) -> Result<(), Failure> {
    if call.session.transaction.is_some() {
        return Err("ERR MULTI calls can not be nested".into());
    }
    call.session.transaction = Some(Transaction::default());
    call.reply.simple("OK");
    Ok(())
}

pub(super) fn discard(call: &mut Call<'_>) -> Result<(), Failure> {
    if call.session.transaction.is_none() {
        return Err("ERR DISCARD without MULTI".into());
    }
    call.session.end_transaction();
    call.reply.simple("OK");
    Ok(())
}

pub(super) fn watch(call: &mut Call<'_>) -> Result<(), Failure> {
    if call.session.transaction.is_some() {
        return Err("ERR WATCH inside MULTI is not allowed".into());
    }
    call.each_key(|call, key| {
        let version = call.find(key, Access::Read)?.map(|entry| entry.version);
        if call.session.watched.len() >= MAX_WATCHED {
            return Err(format!("ERR a client watches less than {MAX_WATCHED} keys").into());
        }
        let changes = call.server.changes.watch();
        call.session.watch(key, Watched { table: call.table, version, changes });
        Ok(())
    })?;
    call.reply.simple("OK");
    Ok(())
}

pub(super) fn unwatch(call: &mut Call<'_>) -> Result<(), Failure> {
    call.session.unwatch();
    call.reply.simple("OK");
    Ok(())
}

/// Returns whether a command between `MULTI` and `EXEC` is kept, and not executed at once.
pub(crate) fn is_queued(info: &CommandInfo) -> bool {
    !matches!(info.name, "multi" | "exec" | "discard" | "watch" | "quit" | "reset")
}

/// Keeps a command for `EXEC`.
///
/// # Errors
/// The reply; the transaction will not be executed.
pub(crate) fn queue(
    transaction: &mut Transaction,
    info: &CommandInfo,
    command: &Command<'_>,
) -> Result<(), String> {
    let refused = match info.name {
        "flushdb" | "flushall" => {
            let name = info.name.to_ascii_uppercase();
            Some(format!("ERR {name} is not possible in a transaction: send it before MULTI"))
        }
        _ if transaction.commands.held() > MAX_QUEUED => Some(format!(
            "ERR the commands of the transaction have more than {MAX_QUEUED} bytes, the limit"
        )),
        _ => None,
    };
    match refused {
        Some(reply) => {
            transaction.is_broken = true;
            Err(reply)
        }
        None => {
            transaction.commands.push(command);
            Ok(())
        }
    }
}

pub(super) fn exec(call: &mut Call<'_>) -> Result<(), Failure> {
    let Some(transaction) = call.session.transaction.take() else {
        return Err("ERR EXEC without MULTI".into());
    };
    let done = match transaction.is_broken {
        true => Err("EXECABORT Transaction discarded because of previous errors.".into()),
        false => execute(call, &transaction),
    };
    if let Err(Failure::NoTable(_) | Failure::Unready(Unready::Later(_))) = done {
        // It is executed again in a moment.
        call.session.transaction = Some(transaction);
    } else {
        call.session.unwatch();
    }
    done
}

fn execute(call: &mut Call<'_>, transaction: &Transaction) -> Result<(), Failure> {
    if has_changed(call)? {
        call.reply.null_array();
        return Ok(());
    }
    let Needs { log, reply, only_removes } = needs(call, transaction)?;
    if reply > call.room {
        let room = call.room;
        let reason = format!("its replies may have {reply} bytes; the limit is {room}");
        return Err(format!("EXECABORT Transaction discarded because {reason}").into());
    }
    if log > 0 {
        call.objects.begin(log, only_removes)?;
    }
    let before = call.reply.len();
    call.reply.array(transaction.commands.len());
    for command in transaction.commands.iter() {
        run(call, command, before);
    }
    if log > 0 {
        call.objects.end();
    }
    Ok(())
}

/// Returns whether a key that the connection watches is not as it was then.
fn has_changed(call: &mut Call<'_>) -> Result<bool, Failure> {
    let Call { session, server, objects, .. } = call;
    for ((database, key), then) in &session.watched {
        let table = server.tables[*database].ok_or(Failure::NoTable(*database))?;
        let found = find_in(*objects, (*database, table), key, Access::Read)?;
        let version = found.as_ref().map(|entry| entry.version);
        let collection = found.as_ref().and_then(collection_of);
        let is_same = version == then.version
            && (table == then.table || version.is_none())
            && collection.is_none_or(|id| !server.changes.has_changed(table, id, then.changes));
        if !is_same {
            return Ok(true);
        }
    }
    Ok(false)
}

/// What a transaction needs, at most.
struct Needs {
    /// Bytes of the log.
    log: usize,
    /// Bytes of values in the replies.
    reply: usize,
    /// Whether its commands only remove keys, as far as they change any.
    only_removes: bool,
}

/// Makes sure that the commands of a transaction may meet their keys, and returns what they need.
fn needs(call: &mut Call<'_>, transaction: &Transaction) -> Result<Needs, Failure> {
    let mut needs = Needs { log: 0, reply: 0, only_removes: true };
    // The lengths of values, as far as earlier commands will have changed them.
    let mut lengths: HashMap<(usize, &[u8]), usize> = HashMap::new();
    // The collections that may be copied, and the bytes of their elements, also of those that
    // commands may add.
    let copies = |command: Command<'_>| {
        matches!(find(command.name()).map(|info| info.name), Some("copy" | "move"))
    };
    let has_copies = transaction.commands.iter().any(copies);
    let (mut collections, mut elements) = (HashSet::new(), 0);
    let mut database = call.session.database;
    for command in transaction.commands.iter() {
        let info = find(command.name()).expect("checked when it was queued");
        if info.name == "select" {
            let number = command.get(1).and_then(integer).and_then(|it| usize::try_from(it).ok());
            database = number.filter(|number| *number < DATABASES).unwrap_or(database);
        }
        if !info.uses_database {
            continue;
        }
        let table = call.server.tables[database].ok_or(Failure::NoTable(database))?;
        let changes = info.flags.contains(&"write");
        let access = if changes { Access::Change } else { Access::Read };
        let arguments: usize = command.iter().skip(2).map(<[u8]>::len).sum();
        let mut first = None;
        for at in info.key_positions(&command) {
            let key = command.get(at).expect("within the command");
            if key.len() > MAX_KEY {
                continue;
            }
            let found = find_in(call.objects, (database, table), key, access)?;
            let present = found.as_ref().map_or(0, |entry| entry.value.len());
            if let Some(id) = found.as_ref().and_then(collection_of)
                && has_copies
                && collections.insert((table, id))
            {
                elements += elements_len(call.objects, table, id);
            }
            let present = lengths.get(&(database, key)).copied().unwrap_or(present);
            let first = *first.get_or_insert(present);
            if returns_value(info, &command) {
                needs.reply += present;
            }
            if !changes {
                continue;
            }
            let removes = matches!(info.name, "del" | "unlink" | "getdel");
            let next = match info.name {
                _ if removes => 0,
                "incrbyfloat" => MAX_SUM,
                "hincrbyfloat" => arguments + MAX_SUM,
                _ if info.is_collection => arguments,
                "append" => grown(present, present + arguments),
                "setrange" => {
                    let offset = command.get(2).and_then(integer).unwrap_or_default();
                    let offset = usize::try_from(offset).unwrap_or(usize::MAX);
                    let part = command.get(3).map_or(0, <[u8]>::len);
                    grown(present, present.max(offset.saturating_add(part)))
                }
                "mset" | "msetnx" => command.get(at + 1).map_or(0, <[u8]>::len),
                "copy" | "rename" | "renamenx" | "move" => first,
                _ if info.flags.contains(&"denyoom") => arguments,
                _ => present,
            };
            // A key that is moved leaves a tombstone.
            needs.log += 2 * (ENTRY + key.len()) + next;
            needs.only_removes &= removes;
            if info.is_collection {
                // Each argument may be an element.
                needs.log += making_len(key) + ELEMENT * command.len();
                elements += next + ELEMENT * command.len();
                needs.only_removes = false;
                continue;
            }
            lengths.insert((database, key), next);
        }
        if has_copies && copies(command) {
            // Commands before may have given any of the collections this key. The copy may be
            // copied again.
            needs.log += elements;
            elements = MAX_COPIES.min(2 * elements);
        }
    }
    Ok(needs)
}

/// Returns the length of a value that is to grow. A command that makes it too long fails.
fn grown(present: usize, next: usize) -> usize {
    if next <= MAX_VALUE { next } else { present }
}

/// Returns whether the reply to a command may contain the values of its keys.
fn returns_value(info: &CommandInfo, command: &Command<'_>) -> bool {
    match info.name {
        "get" | "mget" | "getrange" | "substr" | "getset" | "getdel" | "getex" => true,
        "set" => command.iter().skip(3).any(|option| option.eq_ignore_ascii_case(b"get")),
        _ => false,
    }
}

/// Executes a command of a transaction, whose reply begins at `before`, to its end.
fn run(call: &mut Call<'_>, command: Command<'_>, before: usize) {
    let info = find(command.name()).expect("checked when it was queued");
    let begin = call.reply.len();
    let mut resume = Resume::default();
    let text = loop {
        let database = call.session.database;
        let Some(table) = call.server.tables[database].or((!info.uses_database).then_some(0))
        else {
            break try_again(NO_TABLE).into();
        };
        let protocol = call.session.protocol;
        let mut reply = call.reply.again();
        reply.speak(protocol);
        let done = (info.run)(&mut Call {
            command,
            name: info.name,
            objects: &mut *call.objects,
            reply,
            session: &mut *call.session,
            server: &mut *call.server,
            resume: &mut resume,
            table,
            // Collections that are read have what the others leave.
            room: call.room.saturating_sub(begin - before),
            in_group: true,
        });
        match done {
            Ok(()) => return,
            Err(Failure::Continue) if resume.keeps_reply => {}
            Err(Failure::Continue) => call.reply.truncate(begin),
            Err(Failure::Error(text)) => break text,
            Err(Failure::Unready(Unready::Refused(text))) => break text.into(),
            Err(Failure::Unready(Unready::Later(reason))) => {
                break try_again(reason).into();
            }
            Err(Failure::NoTable(_) | Failure::Unready(Unready::NoTable)) => {
                break try_again(NO_TABLE).into();
            }
        }
    };
    call.reply.truncate(begin);
    call.reply.error(text.as_bytes());
    call.server.errors += 1;
}
