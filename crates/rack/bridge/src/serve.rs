//! A server for Redis clients.

use crate::bridged::BridgedTable;
use crate::error::Error;
use crate::resp::{COMMAND_LIMITS, RedisCommand};
use sprat_resp::{CommandReader, Next, Protocol, ReplyWriter};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Limit on the open connections. Further connections wait to be accepted.
pub const MAX_CONNECTIONS: usize = 1_024;

/// Limit on the bytes of values in one reply. A command whose reply would be longer gets an error.
pub const MAX_REPLY: usize = 64 << 20;

/// Bytes to receive at once.
const RECEIVED: usize = 64 << 10;

/// Pause after a failed accept: the system lacks some resource, or the client has gone.
const REST: Duration = Duration::from_millis(50);

/// Accepts connections and executes their commands. Never returns; the caller drops the future to
/// stop accepting.
pub async fn serve(listener: TcpListener, table: BridgedTable) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(room) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(REST).await;
            continue;
        };
        let table = table.clone();
        tokio::spawn(async move {
            // An error of a connection concerns only its client.
            drop(connection(stream, &table).await);
            drop(room);
        });
    }
}

async fn connection(mut stream: TcpStream, table: &BridgedTable) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let mut reader = CommandReader::new(COMMAND_LIMITS);
    let (mut received, mut replies) = (vec![0; RECEIVED], Vec::new());
    loop {
        loop {
            let mut writer = ReplyWriter::new(&mut replies, Protocol::Resp2);
            match reader.next() {
                Ok(Next::Incomplete) => break,
                Ok(Next::Refused(excess)) => writer.error(excess.to_string()),
                Ok(Next::Command(command)) => match RedisCommand::of(command) {
                    Ok(RedisCommand::Quit) => {
                        writer.simple("OK");
                        return stream.write_all(&replies).await;
                    }
                    Ok(command) => execute(table, command, &mut writer)
                        .await
                        .unwrap_or_else(|why| writer.error(format!("ERR {why}"))),
                    Err(why) => writer.error(why),
                },
                Err(why) => {
                    writer.error(why.to_string());
                    return stream.write_all(&replies).await;
                }
            }
            // A client that sends many commands and reads no replies has to wait here.
            if replies.len() > COMMAND_LIMITS.command {
                stream.write_all(&replies).await?;
                replies.clear();
            }
        }
        stream.write_all(&replies).await?;
        replies.clear();
        match stream.read(&mut received).await? {
            0 => return Ok(()),
            len => reader.extend(&received[..len]),
        }
    }
}

/// Executes a command and writes the reply, unless there is an error.
async fn execute(
    table: &BridgedTable,
    command: RedisCommand<'_>,
    reply: &mut ReplyWriter<'_>,
) -> Result<(), Error> {
    match command {
        RedisCommand::Ping(None) => reply.simple("PONG"),
        RedisCommand::Ping(Some(text)) => reply.bulk(text),
        RedisCommand::Get(key) => reply_with_value(reply, table.get(key).await?),
        RedisCommand::Mget(keys) => {
            let (mut all, mut bytes) = (Vec::with_capacity(keys.len()), 0);
            for key in keys {
                let value = table.get(key).await?;
                bytes += value.as_ref().map_or(0, Vec::len);
                if bytes > MAX_REPLY {
                    reply.error(format!(
                        "ERR the answer is longer than {MAX_REPLY} bytes; ask for fewer keys"
                    ));
                    return Ok(());
                }
                all.push(value);
            }
            reply.array(all.len());
            all.into_iter().for_each(|value| reply_with_value(reply, value));
        }
        RedisCommand::Set(key, value) => {
            table.put(key, value).await?;
            reply.simple("OK");
        }
        RedisCommand::Del(keys) => {
            let mut there = 0;
            for key in keys {
                there += i64::from(table.get(key).await?.is_some());
                table.delete(key).await?;
            }
            reply.integer(there);
        }
        RedisCommand::Info => reply.bulk(info(table).as_bytes()),
        RedisCommand::Command | RedisCommand::Quit => reply.array(0),
    }
    Ok(())
}

fn reply_with_value(reply: &mut ReplyWriter<'_>, value: Option<Vec<u8>>) {
    match value {
        Some(value) => reply.bulk(&value),
        None => reply.null(),
    }
}

fn info(table: &BridgedTable) -> String {
    let of = table.stats();
    let mut text = "# Bridge\r\n".to_owned();
    let numbers = [
        ("hits", of.hits),
        ("misses", of.misses),
        ("writes", of.writes),
        ("applied", of.applied),
        ("failed", of.failed),
        ("evicted", of.evicted),
        ("sweeps", of.sweeps),
        ("dirty", of.dirty as u64),
    ];
    for (name, number) in numbers {
        let _ = write!(text, "{name}:{number}\r\n");
    }
    let _ = write!(text, "lag_seconds:{:.3}\r\n", of.lag);
    if let Some(error) = of.last_error {
        let _ = write!(text, "trouble:{}\r\n", error.replace(['\r', '\n'], " "));
    }
    text
}
