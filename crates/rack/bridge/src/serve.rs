//! A face for programs that speak to Redis (RESP2).

use crate::bridged::Bridged;
use crate::error::Error;
use crate::resp::{Answer, MAX_QUESTION, Question, parse};
use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

/// Connections at once. One more waits to be taken.
pub const MAX_CONNECTIONS: usize = 1_024;

/// Bytes of values in one answer.
pub const MAX_ANSWER: usize = 64 << 20;

/// Rest after a connection could not be taken: the system is short of something, or the other side
/// has gone.
const REST: Duration = Duration::from_millis(50);

/// Answers whoever comes, until it is dropped.
pub async fn serve(listener: TcpListener, bridged: Bridged) {
    let room = Arc::new(Semaphore::new(MAX_CONNECTIONS));
    loop {
        let Ok(room) = Arc::clone(&room).acquire_owned().await else { return };
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(REST).await;
            continue;
        };
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
    let (mut asked, mut answers) = (Vec::new(), Vec::new());
    loop {
        let mut begin = 0;
        loop {
            let parts = match parse(&asked[begin..]) {
                Ok(Some(parts)) => parts,
                Ok(None) => break,
                Err(why) => {
                    Answer::Error(why.to_owned()).encode(&mut answers);
                    return stream.write_all(&answers).await;
                }
            };
            let answer = match Question::of(&parts.parts) {
                Ok(Question::Quit) => {
                    Answer::Simple("OK").encode(&mut answers);
                    return stream.write_all(&answers).await;
                }
                Ok(question) => answer(bridged, question)
                    .await
                    .unwrap_or_else(|why| Answer::Error(format!("ERR {why}"))),
                Err(why) => Answer::Error(why),
            };
            answer.encode(&mut answers);
            begin += parts.len;
            // Who sends many questions and reads no answers waits here.
            if answers.len() > MAX_QUESTION {
                stream.write_all(&answers).await?;
                answers.clear();
            }
        }
        asked.drain(..begin);
        stream.write_all(&answers).await?;
        answers.clear();
        if stream.read_buf(&mut asked).await? == 0 {
            return Ok(());
        }
    }
}

async fn answer(bridged: &Bridged, question: Question<'_>) -> Result<Answer, Error> {
    Ok(match question {
        Question::Ping(None) => Answer::Simple("PONG"),
        Question::Ping(Some(text)) => Answer::Bulk(Some(text.to_vec())),
        Question::Get(key) => Answer::Bulk(bridged.get(key).await?),
        Question::Mget(keys) => {
            let (mut all, mut bytes) = (Vec::with_capacity(keys.len()), 0);
            for key in keys {
                let value = bridged.get(key).await?;
                bytes += value.as_ref().map_or(0, Vec::len);
                if bytes > MAX_ANSWER {
                    return Ok(Answer::Error(format!(
                        "ERR the answer is longer than {MAX_ANSWER} bytes; ask for fewer keys"
                    )));
                }
                all.push(Answer::Bulk(value));
            }
            Answer::Array(all)
        }
        Question::Set(key, value) => {
            bridged.put(key, value).await?;
            Answer::Simple("OK")
        }
        Question::Del(keys) => {
            let mut there = 0;
            for key in keys {
                there += i64::from(bridged.get(key).await?.is_some());
                bridged.delete(key).await?;
            }
            Answer::Integer(there)
        }
        Question::Info => Answer::Bulk(Some(info(bridged).into_bytes())),
        Question::Command | Question::Quit => Answer::Array(Vec::new()),
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
        ("sweeps", of.sweeps),
        ("dirty", of.dirty as u64),
    ];
    for (name, number) in numbers {
        let _ = write!(text, "{name}:{number}\r\n");
    }
    let _ = write!(text, "lag_seconds:{:.3}\r\n", of.lag);
    if let Some(trouble) = of.trouble {
        let _ = write!(text, "trouble:{}\r\n", trouble.replace(['\r', '\n'], " "));
    }
    text
}
