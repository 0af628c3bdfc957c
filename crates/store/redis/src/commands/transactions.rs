//! Transactions: `MULTI`, `EXEC`, `DISCARD`, `WATCH` and `UNWATCH`.
//!
//! A connection keeps the commands after `MULTI`. `EXEC` executes them with nothing in between, and
//! what they change is a group of the log (see [`crate::staged`]): after a crash all of it is
//! there, or nothing. As in Redis, a command that fails does not undo the others.

use super::{CommandInfo, find};
use crate::call::{Call, Failure, Resume, find_in};
use crate::collections::collection_of;
use crate::objects::{Access, Unready};
use crate::session::{Transaction, Watched};
use sprat_resp::Command;

/// Limit on the bytes of memory of the commands between `MULTI` and `EXEC`.
pub(crate) const MAX_QUEUED: usize = 16 << 20;

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
            transaction.commands.push(command.iter());
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
    call.staged(|call| {
        let begin = call.reply.len();
        call.reply.array(transaction.commands.len());
        for command in transaction.commands.iter() {
            let room = call.room.checked_sub(call.reply.len() - begin);
            let info = find(command.name()).expect("checked when it was queued");
            run_staged(call, info, command, room.ok_or_else(|| too_long(call.room))?)?;
        }
        match call.reply.len() - begin > call.room {
            true => Err(too_long(call.room)),
            false => Ok(()),
        }
    })
}

fn too_long(room: usize) -> Failure {
    let reason = format!("its replies have more than {room} bytes, the limit");
    format!("EXECABORT Transaction discarded because {reason}").into()
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

/// Executes a command whose changes are kept back, to its end. Its reply may have up to `room`
/// bytes of values, and may be an error.
///
/// # Errors
/// All commands must be executed again later.
pub(crate) fn run_staged(
    call: &mut Call<'_>,
    info: &CommandInfo,
    command: Command<'_>,
    room: usize,
) -> Result<(), Failure> {
    let begin = call.reply.len();
    let mut resume = Resume::default();
    let text = loop {
        let Call { objects, reply, session, server, now, .. } = call;
        let database = session.database;
        let table = match server.tables[database] {
            None if info.uses_database => return Err(Failure::NoTable(database)),
            table => table.unwrap_or_default(),
        };
        let mut reply = reply.again();
        reply.speak(session.protocol);
        let done = (info.run)(&mut Call {
            command,
            name: info.name,
            objects: &mut **objects,
            reply,
            session,
            server,
            resume: &mut resume,
            table,
            room,
            in_group: true,
            now: *now,
        });
        match done {
            Ok(()) => return Ok(()),
            Err(Failure::Continue) if resume.keeps_reply => {}
            Err(Failure::Continue) => call.reply.truncate(begin),
            Err(Failure::Wait(_)) => unreachable!("a command in a group does not wait"),
            Err(Failure::Error(text)) => break text,
            Err(Failure::Unready(Unready::Refused(text))) => break text.into(),
            Err(Failure::Unready(Unready::NoTable)) => return Err(Failure::NoTable(database)),
            Err(later @ (Failure::NoTable(_) | Failure::Unready(Unready::Later(_)))) => {
                return Err(later);
            }
        }
    };
    call.reply.truncate(begin);
    call.reply.error(text.as_bytes());
    call.server.errors += 1;
    Ok(())
}
