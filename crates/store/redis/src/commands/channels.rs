//! Commands on channels: `SUBSCRIBE`, `PUBLISH` and what belongs to them.

use super::{help, wrong_subcommand};
use crate::call::{Call, Failure};
use crate::channels::Subject;
use crate::glob;
use crate::session::Session;
use sprat_resp::{Protocol, ReplyWriter};

/// Replies to the subscription, or the end of one, to a channel or pattern.
fn confirm(reply: &mut ReplyWriter<'_>, kind: &str, name: Option<&[u8]>, count: usize) {
    reply.push(3);
    reply.bulk(kind.as_bytes());
    match name {
        Some(name) => reply.bulk(name),
        None => reply.null(),
    }
    reply.integer(i64::try_from(count).expect("subscriptions are limited"));
}

fn subscribe_to(call: &mut Call<'_>, subject: Subject) -> Result<(), Failure> {
    for name in call.command.iter().skip(1) {
        let Session { slot, subscriptions, .. } = call.session;
        if let Err(refused) =
            call.server.channels.subscribe((*slot, &mut *subscriptions), subject, name)
        {
            // The channels before are confirmed.
            call.server.errors += 1;
            call.reply.error(refused);
            break;
        }
        confirm(&mut call.reply, call.name, Some(name), subscriptions.len());
    }
    Ok(())
}

fn unsubscribe_from(call: &mut Call<'_>, subject: Subject) -> Result<(), Failure> {
    let Session { slot, subscriptions, .. } = call.session;
    let names: Vec<Vec<u8>> = match call.command.len() {
        1 => subscriptions.of(subject).iter().cloned().collect(),
        _ => call.command.iter().skip(1).map(<[u8]>::to_vec).collect(),
    };
    for name in &names {
        call.server.channels.unsubscribe((*slot, &mut *subscriptions), subject, name);
        confirm(&mut call.reply, call.name, Some(name), subscriptions.len());
    }
    if names.is_empty() {
        confirm(&mut call.reply, call.name, None, subscriptions.len());
    }
    Ok(())
}

pub(super) fn subscribe(call: &mut Call<'_>) -> Result<(), Failure> {
    subscribe_to(call, Subject::Channel)
}

pub(super) fn psubscribe(call: &mut Call<'_>) -> Result<(), Failure> {
    subscribe_to(call, Subject::Pattern)
}

pub(super) fn unsubscribe(call: &mut Call<'_>) -> Result<(), Failure> {
    unsubscribe_from(call, Subject::Channel)
}

pub(super) fn punsubscribe(call: &mut Call<'_>) -> Result<(), Failure> {
    unsubscribe_from(call, Subject::Pattern)
}

pub(super) fn publish(call: &mut Call<'_>) -> Result<(), Failure> {
    let count = call.server.channels.publish(call.argument(1), call.argument(2));
    call.reply.integer(i64::try_from(count).expect("connections are limited"));
    Ok(())
}

pub(super) fn pubsub(call: &mut Call<'_>) -> Result<(), Failure> {
    let count = |number: usize| i64::try_from(number).expect("connections are limited");
    let channels = &call.server.channels;
    match (&call.argument(1).to_ascii_lowercase()[..], call.command.len()) {
        (b"channels", 2 | 3) => {
            let pattern = call.command.get(2).map(|_| call.pattern(2)).transpose()?;
            let is_wanted = |name: &[u8]| pattern.is_none_or(|it| glob::matches(it, name));
            let names: Vec<_> = channels.names().filter(|(name, _)| is_wanted(name)).collect();
            call.reply.array(names.len());
            names.iter().for_each(|(name, _)| call.reply.bulk(name));
        }
        (b"numsub", _) => {
            call.reply.array(2 * (call.command.len() - 2));
            for name in call.command.iter().skip(2) {
                call.reply.bulk(name);
                call.reply.integer(count(channels.subscribers(name)));
            }
        }
        (b"help", 2) => help(
            call,
            &[
                "PUBSUB <subcommand> [<arg> [value] [opt] ...]. Subcommands are:",
                "CHANNELS [<pattern>]",
                "    Return the channels that have subscribers.",
                "NUMPAT",
                "    Return the number of patterns that have subscribers.",
                "NUMSUB [<channel> ...]",
                "    Return the number of subscribers of channels.",
            ],
        ),
        (b"numpat", 2) => call.reply.integer(count(channels.patterns())),
        _ => return Err(wrong_subcommand(call, &["channels", "numpat", "help"])),
    }
    Ok(())
}

/// Returns why a client that has subscriptions may not send a command. In RESP2 the reply could be
/// taken for a message.
pub(super) fn refusal(session: &Session, name: &str) -> Option<String> {
    let is_allowed = session.protocol != Protocol::Resp2
        || session.subscriptions.len() == 0
        || matches!(
            name,
            "subscribe" | "unsubscribe" | "psubscribe" | "punsubscribe" | "ping" | "quit" | "reset"
        );
    (!is_allowed).then(|| {
        format!(
            "ERR Can't execute '{name}': only (P|S)SUBSCRIBE / (P|S)UNSUBSCRIBE / PING / QUIT / \
             RESET are allowed in this context"
        )
    })
}

/// Writes a message to a subscriber. `pattern` is the one by which the subscriber gets it, if any.
pub(crate) fn write_message(
    reply: &mut ReplyWriter<'_>,
    pattern: Option<&[u8]>,
    channel: &[u8],
    payload: &[u8],
) {
    match pattern {
        Some(pattern) => {
            reply.push(4);
            reply.bulk(b"pmessage");
            reply.bulk(pattern);
        }
        None => {
            reply.push(3);
            reply.bulk(b"message");
        }
    }
    reply.bulk(channel);
    reply.bulk(payload);
}
