//! Sends a request to one etcd endpoint.

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
use tokio::time::{Instant, timeout, timeout_at};
use url::Url;

/// The longest response that is read, in bytes: more than twice what the largest catalog takes. A
/// longer response is an error.
const MAX_RESPONSE: usize = 16 << 20;

/// The number of characters of etcd's error message that are reported; the rest is cut off.
const MAX_REASON: usize = 200;

/// A URL of etcd.
#[derive(Clone, Debug)]
pub(super) struct Endpoint {
    host: String,
    port: u16,
}

/// Why a request failed, with the reason.
pub(super) enum Fault {
    /// The request was not sent.
    NotSent(String),
    /// etcd may have executed the request.
    Unknown(String),
    /// etcd has not executed the request.
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
                    "TLS to etcd is not supported: use http, over a network you trust",
                ));
            }
            _ => return Err(fault("not a URL; write for example http://10.0.0.1:2379")),
        }
        if !url.username().is_empty() || url.password().is_some() {
            return Err(fault("etcd users are not supported: leave out name and password"));
        }
        if !matches!(url.path(), "" | "/") || url.query().is_some() {
            return Err(fault("an etcd URL ends after the port"));
        }
        let host = url.host_str().ok_or_else(|| fault("names no host"))?;
        let port = url.port().ok_or_else(|| fault("names no port; etcd's default is 2379"))?;
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

/// Time limits of a request.
#[derive(Clone, Copy)]
pub(super) struct Limits {
    /// Time to connect.
    pub(super) connect: Duration,
    /// Time from the beginning, connecting included, to the end of the response: the arithmetic of
    /// leases counts on it.
    pub(super) in_all: Duration,
}

/// Posts `body` over a new connection and returns the JSON of the response.
pub(super) async fn post(
    endpoint: &Endpoint,
    path: &str,
    body: String,
    limits: Limits,
) -> Result<Value, Fault> {
    let Limits { connect, in_all } = limits;
    let until = Instant::now() + in_all;
    let address = (endpoint.host.as_str(), endpoint.port);
    let stream = match timeout(connect, TcpStream::connect(address)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(cause)) => return Err(Fault::NotSent(format!("cannot connect: {cause}"))),
        Err(_) => return Err(Fault::NotSent(format!("cannot connect within {connect:?}"))),
    };
    let request = Request::post(path)
        .header(HOST, endpoint.authority())
        .header(CONTENT_TYPE, "application/json")
        .body(Full::new(Bytes::from(body)))
        .map_err(|cause| Fault::NotSent(cause.to_string()))?;
    let exchange = async {
        let (mut sender, connection) =
            http1::handshake(TokioIo::new(stream)).await.map_err(|cause| cause.to_string())?;
        let connection = tokio::spawn(connection);
        let response = async {
            let response = sender.send_request(request).await.map_err(|cause| cause.to_string())?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_RESPONSE).collect().await;
            Ok::<_, String>((status, body.map_err(|cause| cause.to_string())?.to_bytes()))
        };
        let response = response.await;
        connection.abort(); // each request has a connection of its own
        response
    };
    match timeout_at(until, exchange).await {
        Ok(Ok((status, body))) if status.is_success() => serde_json::from_slice(&body)
            .map_err(|cause| Fault::Unknown(format!("not JSON: {cause}"))),
        Ok(Ok((status, body))) => {
            let reason = reason(&body).unwrap_or_else(|| status.to_string());
            // etcd has not executed a request that it rejects as malformed or too large. After any
            // other error etcd itself does not know whether it has, for example when its own leader
            // changed.
            Err(if status.is_client_error() {
                Fault::Refused(reason)
            } else {
                Fault::Unknown(reason)
            })
        }
        Ok(Err(cause)) => Err(Fault::Unknown(cause)),
        Err(_) => Err(Fault::Unknown(format!("no answer within {in_all:?}"))),
    }
}

/// Extracts the message of an error response.
fn reason(body: &[u8]) -> Option<String> {
    let error: Value = serde_json::from_slice(body).ok()?;
    let text = error.get("message").or_else(|| error.get("error"))?.as_str()?;
    Some(text.chars().take(MAX_REASON).collect())
}
