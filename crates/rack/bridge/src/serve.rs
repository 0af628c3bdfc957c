//! A server for Redis clients (RESP2).

use crate::bridged::BridgedTable;
use crate::error::Error;
use crate::resp::{MAX_COMMAND, RedisCommand, RedisReply, parse_command};
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
    let (mut received, mut replies) = (Vec::new(), Vec::new());
    loop {
        let mut begin = 0;
        loop {
            let parts = match parse_command(&received[begin..]) {
                Ok(Some(parts)) => parts,
                Ok(None) => break,
                Err(why) => {
                    RedisReply::Error(why.to_owned()).encode(&mut replies);
                    return stream.write_all(&replies).await;
                }
            };
            let reply = match RedisCommand::from_parts(&parts.parts) {
                Ok(RedisCommand::Quit) => {
                    RedisReply::Simple("OK").encode(&mut replies);
                    return stream.write_all(&replies).await;
                }
                Ok(command) => execute(table, command)
                    .await
                    .unwrap_or_else(|why| RedisReply::Error(format!("ERR {why}"))),
                Err(why) => RedisReply::Error(why),
            };
            reply.encode(&mut replies);
            begin += parts.len;
            // A client that sends many commands and reads no replies has to wait here.
            if replies.len() > MAX_COMMAND {
                stream.write_all(&replies).await?;
                replies.clear();
            }
        }
        received.drain(..begin);
        stream.write_all(&replies).await?;
        replies.clear();
        if stream.read_buf(&mut received).await? == 0 {
            return Ok(());
        }
    }
}

async fn execute(table: &BridgedTable, command: RedisCommand<'_>) -> Result<RedisReply, Error> {
    Ok(match command {
        RedisCommand::Ping(None) => RedisReply::Simple("PONG"),
        RedisCommand::Ping(Some(text)) => RedisReply::Bulk(Some(text.to_vec())),
        RedisCommand::Get(key) => RedisReply::Bulk(table.get(key).await?),
        RedisCommand::Mget(keys) => {
            let (mut all, mut bytes) = (Vec::with_capacity(keys.len()), 0);
            for key in keys {
                let value = table.get(key).await?;
                bytes += value.as_ref().map_or(0, Vec::len);
                if bytes > MAX_REPLY {
                    return Ok(RedisReply::Error(format!(
                        "ERR the answer is longer than {MAX_REPLY} bytes; ask for fewer keys"
                    )));
                }
                all.push(RedisReply::Bulk(value));
            }
            RedisReply::Array(all)
        }
        RedisCommand::Set(key, value) => {
            table.put(key, value).await?;
            RedisReply::Simple("OK")
        }
        RedisCommand::Del(keys) => {
            let mut there = 0;
            for key in keys {
                there += i64::from(table.get(key).await?.is_some());
                table.delete(key).await?;
            }
            RedisReply::Integer(there)
        }
        RedisCommand::Info => RedisReply::Bulk(Some(info(table).into_bytes())),
        RedisCommand::Command | RedisCommand::Quit => RedisReply::Array(Vec::new()),
    })
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
