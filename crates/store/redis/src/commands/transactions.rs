//! Transactions: `MULTI`, `EXEC`, `DISCARD`, `WATCH` and `UNWATCH`.
//!
//! A connection keeps the commands after `MULTI`. `EXEC` executes them with nothing in between, and
//! what they change is a group of the log: after a crash all of it is there, or nothing. As in
//! Redis, a command that fails does not undo the others.

use super::{CommandInfo, find, lists, sorted};
use crate::call::{Call, ENTRY, Failure, NO_TABLE, Resume, find_in, try_again};
use crate::collections::{
    ELEMENT, MAX_AT_ONCE, collection_of, element_len, making_len, visit_ends,
};
use crate::extended::MAX_SUM;
use crate::objects::{Access, Unready};
use crate::session::{DATABASES, Transaction, Watched};
use sprat_resp::{Command, integer};
use sprat_wire::entry::Entry;
use sprat_wire::{MAX_KEY, MAX_VALUE};
use std::collections::{HashMap, HashSet};

/// Limit on the bytes of memory of the commands between `MULTI` and `EXEC`.
pub(crate) const MAX_QUEUED: usize = 16 << 20;

/// The number of members that `SPOP` takes from a set of any size in a transaction.
const FEW: i64 = 8;

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
    // The bytes of all elements that may be copied, also of those that commands may add.
    let has_copies = transaction.commands.iter().any(copies);
    let (mut collections, mut elements, mut added) = (HashSet::new(), 0, 0);
    // The elements at the ends of collections that may be removed or moved.
    let (removed, moved) = from_ends(transaction);
    let (mut ends, mut longest) = (0, 0);
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
        if let Some(other) = other_database(info, &command) {
            call.server.tables[other].ok_or(Failure::NoTable(other))?;
        }
        let table = call.server.tables[database].ok_or(Failure::NoTable(database))?;
        let changes = info.flags.contains(&"write");
        let access = if changes { Access::Change } else { Access::Read };
        let arguments: usize = command.iter().skip(2).map(<[u8]>::len).sum();
        longest = longest.max(ELEMENT + arguments);
        if let "ltrim" | "lrem" | "zremrangebylex" | "zremrangebyrank" | "zremrangebyscore" =
            info.name
        {
            needs.log += removed_len(call, info, command, table, added)?;
        }
        if info.name == "spop" && !copies(command) {
            needs.log += usize::try_from(FEW).expect("a few") * (ELEMENT + MAX_KEY);
        }
        added += command.len();
        let mut first = None;
        for at in info.key_positions(&command) {
            let key = command.get(at).expect("within the command");
            if key.len() > MAX_KEY {
                continue;
            }
            let found = find_in(call.objects, (database, table), key, access)?;
            let present = found.as_ref().map_or(0, |entry| entry.value.len());
            let id = found.as_ref().and_then(collection_of);
            if let Some(id) = id.filter(|id| collections.insert((table, *id))) {
                if has_copies {
                    let mut add = |entry: &Entry<'_>| elements += element_len(entry);
                    visit_ends(call.objects, table, id, MAX_AT_ONCE, &mut add);
                }
                visit_ends(call.objects, table, id, removed + moved, &mut |entry| {
                    ends += ELEMENT + entry.key.len();
                    longest = longest.max(element_len(entry));
                });
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
        if is_move(info) {
            elements += lists::REMOVED + longest;
        }
        if copies(command) {
            // Any of the collections may have this key now, and no more elements than all have had,
            // with those that were added: what a command makes of several has no others.
            needs.log += elements;
        }
    }
    // An element may be moved several times.
    needs.log += ends + removed * lists::REMOVED + moved * (lists::REMOVED + longest);
    Ok(needs)
}

/// Returns the database to which a command copies or moves its key, if it is another one.
fn other_database(info: &CommandInfo, command: &Command<'_>) -> Option<usize> {
    let number = match info.name {
        "move" => command.get(2),
        "copy" => command.iter().skip_while(|part| !part.eq_ignore_ascii_case(b"db")).nth(1),
        _ => None,
    };
    let number = number.and_then(integer).and_then(|number| usize::try_from(number).ok());
    number.filter(|number| *number < DATABASES)
}

/// Returns whether a command may write or remove any elements of its collections.
fn copies(command: Command<'_>) -> bool {
    let name = find(command.name()).map_or("", |info| info.name);
    let count = command.get(2).and_then(integer).unwrap_or(1);
    matches!(name, "copy" | "move" | "linsert" | "sort")
        || name.ends_with("store")
        || name == "spop" && count > FEW
}

/// Returns whether a command moves an element from one list to another.
fn is_move(info: &CommandInfo) -> bool {
    matches!(info.name, "lmove" | "blmove" | "rpoplpush" | "brpoplpush")
}

/// Returns how many elements at the ends of collections a transaction may remove, and how many it
/// may move.
fn from_ends(transaction: &Transaction) -> (usize, usize) {
    let (mut removed, mut moved) = (0, 0);
    for command in transaction.commands.iter() {
        let number = |at| {
            let number = command.get(at).and_then(integer);
            number.and_then(|number| usize::try_from(number).ok()).unwrap_or(1)
        };
        let info = find(command.name());
        match info.map_or("", |info| info.name) {
            "lpop" | "rpop" | "zpopmin" | "zpopmax" => removed += number(2).min(MAX_AT_ONCE),
            "lmpop" | "blmpop" | "zmpop" | "bzmpop" => {
                removed += number(command.len() - 1).min(MAX_AT_ONCE);
            }
            "blpop" | "brpop" | "bzpopmin" | "bzpopmax" => removed += 1,
            _ if info.is_some_and(is_move) => moved += 1,
            _ => {}
        }
    }
    (removed.min(MAX_AT_ONCE), moved.min(MAX_AT_ONCE))
}

/// Returns the bytes of the log that a command needs for elements that it chooses. Commands before
/// it may have added up to `added` elements.
fn removed_len(
    call: &mut Call<'_>,
    info: &'static CommandInfo,
    command: Command<'_>,
    table: u32,
    added: usize,
) -> Result<usize, Failure> {
    let mut resume = Resume::default();
    let mut part = part(call, (info, command), table, &mut resume);
    let len = match info.name {
        "ltrim" | "lrem" => lists::removed_len(&mut part, added),
        _ => sorted::removed_len(&mut part),
    };
    match len {
        // The command will fail.
        Err(Failure::Error(_)) => Ok(0),
        len => len,
    }
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

/// Returns a command of a transaction, to be executed.
fn part<'c>(
    call: &'c mut Call<'_>,
    (info, command): (&'static CommandInfo, Command<'c>),
    table: u32,
    resume: &'c mut Resume,
) -> Call<'c> {
    let Call { objects, reply, session, server, room, now, .. } = call;
    let mut reply = reply.again();
    reply.speak(session.protocol);
    Call {
        command,
        name: info.name,
        objects: &mut **objects,
        reply,
        session,
        server,
        resume,
        table,
        room: *room,
        in_group: true,
        now: *now,
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
        // Collections that are read have what the others leave.
        let room = call.room.saturating_sub(begin - before);
        let mut part = part(call, (info, command), table, &mut resume);
        part.room = room;
        let done = (info.run)(&mut part);
        match done {
            Ok(()) => return,
            Err(Failure::Continue) if resume.keeps_reply => {}
            Err(Failure::Continue) => call.reply.truncate(begin),
            Err(Failure::Wait(_)) => unreachable!("a command of a transaction does not wait"),
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
