//! A face for programs that speak to Redis (RESP2).

use crate::bridged::Bridged;
use crate::cell::MAX_BRIDGED_VALUE;
use crate::error::Error;
use crate::resp::Question;
use bytes::{Bytes, BytesMut};
use redis_protocol::resp2::decode::decode_bytes_mut;
use redis_protocol::resp2::encode::extend_encode;
use redis_protocol::resp2::types::BytesFrame;
use std::fmt::Write as _;
use std::sync::Arc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Connections at once. One more waits to be taken.
pub const MAX_CONNECTIONS: usize = 1_024;

/// Bytes of a question that is not complete: the longest value, and keys. A connection with more ends.
pub const MAX_WAITING: usize = MAX_BRIDGED_VALUE + (256 << 10);

/// Answers whoever comes, until it is dropped.
///
/// # Errors
/// The system takes no more connections.
pub async fn serve(listener: TcpListener, bridged: Bridged) -> Result<(), Error> {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(room) = Arc::clone(&room).acquire_owned().await else { return Ok(()) };
        let (stream, _) = listener.accept().await?;
        let bridged = bridged.clone();
        tokio::spawn(async move {
            // Its end is the other side's business.
            drop(connection(stream, &bridged).await);
            drop(room);
        });
    }
}

async fn connection(mut stream: TcpStream, bridged: &Bridged) -> std::io::Result<()> {
    stream.set_nodelay(true)?;
    let (mut asked, mut answers) = (BytesMut::new(), BytesMut::new());
    loop {
        let frame = match decode_bytes_mut(&mut asked) {
            Ok(Some((frame, _, _))) => frame,
            Ok(None) if asked.len() > MAX_WAITING => return refuse(&mut stream, "ERR too long").await,
            Ok(None) => {
                if !answers.is_empty() {
                    stream.write_all(&answers).await?;
                    answers.clear();
                }
                if stream.read_buf(&mut asked).await? == 0 {
                    return Ok(());
                }
                continue;
            }
            Err(_) => return refuse(&mut stream, "ERR not RESP2").await,
        };
        let answer = match Question::of(frame) {
            Ok(Question::Quit) => return stream.write_all(b"+OK\r\n").await,
            Ok(question) => answer(bridged, question).await.unwrap_or_else(|error| wrong(&format!("ERR {error}"))),
            Err(why) => wrong(&why),
        };
        extend_encode(&mut answers, &answer, false).map_err(std::io::Error::other)?;
        // Who sends many questions and reads no answers waits here.
        if answers.len() > MAX_WAITING {
            stream.write_all(&answers).await?;
            answers.clear();
        }
    }
}

async fn answer(bridged: &Bridged, question: Question) -> Result<BytesFrame, Error> {
    let found = |value: Option<Vec<u8>>| value.map_or(BytesFrame::Null, |value| BytesFrame::BulkString(value.into()));
    Ok(match question {
        Question::Ping(None) => BytesFrame::SimpleString(Bytes::from_static(b"PONG")),
        Question::Ping(Some(text)) => BytesFrame::BulkString(text),
        Question::Get(key) => found(bridged.get(&key).await?),
        Question::Mget(keys) => {
            let mut all = Vec::with_capacity(keys.len());
            for key in keys {
                all.push(found(bridged.get(&key).await?));
            }
            BytesFrame::Array(all)
        }
        Question::Set(key, value) => {
            bridged.put(&key, &value).await?;
            BytesFrame::SimpleString(Bytes::from_static(b"OK"))
        }
        Question::Del(keys) => {
            let mut there = 0;
            for key in keys {
                there += i64::from(bridged.get(&key).await?.is_some());
                bridged.delete(&key).await?;
            }
            BytesFrame::Integer(there)
        }
        Question::Info => BytesFrame::BulkString(info(bridged).into()),
        Question::Command | Question::Quit => BytesFrame::Array(Vec::new()),
    })
}

fn info(bridged: &Bridged) -> String {
    let of = bridged.figures();
    let mut text = "# Bridge\r\n".to_owned();
    let numbers = [
        ("hits", of.hits),
        ("misses", of.misses),
        ("writes", of.writes),
        ("applied", of.applied),
        ("failed", of.failed),
        ("evicted", of.evicted),
        ("dirty", of.dirty as u64),
    ];
    for (name, number) in numbers {
        let _ = write!(text, "{name}:{number}\r\n");
    }
    let _ = write!(text, "lag_seconds:{:.3}\r\n", of.lag);
    text
}

fn wrong(why: &str) -> BytesFrame {
    // An error is one line.
    BytesFrame::Error(why.replace(['\r', '\n'], " ").into())
}

async fn refuse(stream: &mut TcpStream, why: &str) -> std::io::Result<()> {
    stream.write_all(format!("-{why}\r\n").as_bytes()).await
}
