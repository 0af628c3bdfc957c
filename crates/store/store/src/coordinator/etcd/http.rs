//! One request to one etcd.

use super::EtcdError;
use http_body_util::{BodyExt as _, Full, Limited};
use hyper::Request;
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::timeout;
use url::Url;

/// Longest answer that is read, bytes: what the largest catalog takes is half of it.
const MAX_ANSWER: usize = 16 << 20;

/// Longest part of an error that is told, characters.
const MAX_REASON: usize = 200;

/// A URL of etcd's.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    host: String,
    port: u16,
}

/// Why there is no answer.
pub(super) enum Fault {
    /// Nothing was sent.
    NotSent(String),
    /// It may have been executed.
    Perhaps(String),
    /// It was not executed.
    Refused(String),
}

impl Endpoint {
    pub(super) fn parse(text: &str) -> Result<Self, EtcdError> {
        let fault = |fault| EtcdError::Url { url: text.to_owned(), fault };
        let url = Url::parse(text)
            .map_err(|_| fault("not a URL; write for example http://10.0.0.1:2379"))?;
        match url.scheme() {
            "http" => {}
            "https" => {
                return Err(fault(
                    "TLS to etcd is not there yet: reach it over a network you trust, by http",
                ));
            }
            _ => return Err(fault("not a URL; write for example http://10.0.0.1:2379")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(fault("users of etcd are not there yet: leave name and password out"));
        }
        if !matches!(url.path(), "" | "/") || url.query().is_some() {
            return Err(fault("a URL of etcd ends behind the port"));
        }
        let host = url.host_str().ok_or_else(|| fault("names no host"))?;
        let port = url.port().ok_or_else(|| fault("names no port; etcd's is 2379"))?;
        Ok(Self { host: host.trim_matches(['[', ']']).to_owned(), port })
    }

    pub(super) fn url(&self) -> String {
        format!("http://{}", self.authority())
    }

    fn authority(&self) -> String {
        let Self { host, port } = self;
        if host.contains(':') { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// Asks; `limits` are those of the time to connect, and of all of it.
pub(super) async fn post(
    endpoint: &Endpoint,
    path: &str,
    question: String,
    (to_connect, in_all): (Duration, Duration),
) -> Result<Value, Fault> {
    let place = (endpoint.host.as_str(), endpoint.port);
    let stream = match timeout(to_connect, TcpStream::connect(place)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(cause)) => return Err(Fault::NotSent(format!("cannot connect: {cause}"))),
        Err(_) => return Err(Fault::NotSent(format!("cannot connect within {to_connect:?}"))),
    };
    let request = Request::post(path)
        .header(HOST, endpoint.authority())
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(question)))
        .map_err(|cause| Fault::NotSent(cause.to_string()))?;
    let exchange = async {
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|cause| cause.to_string())?;
        let carried = tokio::spawn(connection);
        let answered = async {
            let answer = sender.send_request(request).await.map_err(|cause| cause.to_string())?;
            let status = answer.status();
            let body = Limited::new(answer.into_body(), MAX_ANSWER).collect().await;
            Ok::<_, String>((status, body.map_err(|cause| cause.to_string())?.to_bytes()))
        };
        let answered = answered.await;
        carried.abort(); // nobody asks over this connection again
        answered
    };
    match timeout(in_all, exchange).await {
        Ok(Ok((status, body))) if status.is_success() => serde_json::from_slice(&body)
            .map_err(|cause| Fault::Perhaps(format!("not JSON: {cause}"))),
        Ok(Ok((status, body))) => {
            let reason = reason(&body).unwrap_or_else(|| status.to_string());
            // What etcd does not understand, or has no room for, it has not done; of anything else
            // it cannot be sure itself.
            Err(if status.is_client_error() {
                Fault::Refused(reason)
            } else {
                Fault::Perhaps(reason)
            })
        }
        Ok(Err(cause)) => Err(Fault::Perhaps(cause)),
        Err(_) => Err(Fault::Perhaps(format!("no answer within {in_all:?}"))),
    }
}

/// What etcd says of an error.
fn reason(body: &[u8]) -> Option<String> {
    let told: Value = serde_json::from_slice(body).ok()?;
    let text = told.get("message").or_else(|| told.get("error"))?.as_str()?;
    Some(text.chars().take(MAX_REASON).collect())
}
