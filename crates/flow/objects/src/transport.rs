//! Carries the library's requests over `sprat-http`'s connections. Each request runs on a thread
//! that may block.

use async_trait::async_trait;
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use object_store::ClientOptions;
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use sprat_flow::copy::Error;
use sprat_http::client::{Call, Caller, Reply};
use std::sync::Arc;

/// The HTTP client that the library uses.
#[derive(Clone, Debug)]
pub(crate) struct Transport(pub(crate) Arc<Caller>);

impl HttpConnector for Transport {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(self.clone()))
    }
}

#[async_trait]
impl HttpService for Transport {
    async fn call(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let (parts, mut body) = request.into_parts();
        let mut pieces: Vec<Bytes> = Vec::new();
        while let Some(frame) = body.frame().await {
            pieces.extend(frame?.into_data().ok());
        }
        let caller = self.0.clone();
        let work = move || {
            let fields: Vec<_> = parts
                .headers
                .iter()
                .filter(|(name, _)| {
                    !matches!(name.as_str(), "host" | "content-length" | "user-agent")
                })
                .filter_map(|(name, value)| {
                    Some((name.to_string(), value.to_str().ok()?.to_owned()))
                })
                .collect();
            let body: Vec<&[u8]> = pieces.iter().map(|piece| &piece[..]).collect();
            let (method, url) = (parts.method.as_str(), parts.uri.to_string());
            caller
                .call(Call { method, url: &url, fields: &fields, body: &body })
                .map_err(Error::from)
        };
        let done = tokio::task::spawn_blocking(work).await;
        match done.map_err(|error| HttpError::new(HttpErrorKind::Unknown, error))? {
            Ok(reply) => answer(reply),
            Err(error) => {
                let passing = matches!(error, Error::Unreachable { .. });
                let kind = if passing { HttpErrorKind::Connect } else { HttpErrorKind::Unknown };
                Err(HttpError::new(kind, error))
            }
        }
    }
}

/// Converts a response. Keeps only the header fields that the library reads.
fn answer(reply: Reply) -> Result<HttpResponse, HttpError> {
    let Reply { head, body } = reply;
    let mut answer = http::Response::builder().status(head.status);
    let length = head.length.map(|length| length.to_string());
    let fields = [
        ("content-length", length),
        ("content-type", Some(head.kind).filter(|kind| !kind.is_empty())),
        ("etag", head.tag),
        ("last-modified", head.modified),
        ("location", head.location),
    ];
    for (name, value) in fields {
        if let Some(value) = value {
            answer = answer.header(name, value);
        }
    }
    for (name, value) in &head.own {
        answer = answer.header(name, value);
    }
    let body = Full::new(Bytes::from(body)).map_err(|never| match never {});
    let answer = answer.body(HttpResponseBody::new(body));
    answer.map_err(|error| HttpError::new(HttpErrorKind::Decode, error))
}
