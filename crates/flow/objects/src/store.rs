//! Buckets, with their credentials and the addresses of their objects.

use crate::transport::Transport;
use object_store::aws::{AmazonS3, AmazonS3Builder, AmazonS3ConfigKey, Checksum};
use object_store::path::Path;
use object_store::signer::Signer as _;
use object_store::{ObjectStoreExt as _, RetryConfig};
use sprat_flow::copy::{Error, Options};
use sprat_http::client::Caller;
use sprat_http::{Address, Cancel};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;
use tokio::runtime::Runtime;

/// How long a presigned address is valid. This is the longest time that S3 allows.
const SIGNATURE_TIME: Duration = Duration::from_secs(7 * 24 * 3600);

/// Time after which a failed request is no longer retried.
const RETRY_TIME: Duration = Duration::from_secs(120);

const SCHEME: &str = "s3://";

/// Environment variables that provide credentials. If none of them is set, a bucket cannot be
/// opened, because the library would query the network's metadata service for credentials.
const CREDENTIALS: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
];

/// The location of an object: `s3://BUCKET/KEY`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Location {
    /// The bucket.
    pub bucket: String,
    /// The object's key. An empty key, or a key that ends with a slash, means a folder, in which a
    /// file keeps its name.
    pub key: String,
}

impl Location {
    /// Returns whether `text` is an `s3://` address.
    #[must_use]
    pub fn is_location(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// Parses a location. The key is used verbatim.
    ///
    /// # Errors
    /// [`Error::Usage`] if `text` is not `s3://BUCKET/KEY` with a valid bucket, if a part of the
    /// key between slashes is empty, `.` or `..`, or if the library rejects the key.
    pub fn parse(text: &str) -> Result<Self, Error> {
        let wrong = || Error::Usage(format!("{text}: want s3://BUCKET/KEY"));
        let (bucket, key) =
            text.strip_prefix(SCHEME).and_then(|rest| rest.split_once('/')).ok_or_else(wrong)?;
        let named = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
        if bucket.is_empty() || !bucket.bytes().all(named) {
            return Err(wrong());
        }
        let location = Self { bucket: bucket.to_owned(), key: key.to_owned() };
        location.path()?;
        Ok(location)
    }

    /// Returns whether the location is a folder rather than an object.
    #[must_use]
    pub fn is_folder(&self) -> bool {
        self.key.is_empty() || self.key.ends_with('/')
    }

    /// Returns the key as the library's type. The library removes slashes at both ends, and URL
    /// resolution removes `.` and `..`. A key with such parts would address another object, so it
    /// is rejected.
    pub(crate) fn path(&self) -> Result<Path, Error> {
        let key = self.key.strip_suffix('/').unwrap_or(&self.key);
        let leads_elsewhere = |part: &str| matches!(part, "" | "." | "..");
        if !self.key.is_empty() && key.split('/').any(leads_elsewhere) {
            let why = "a key with an empty part, or one that is . or .., has no address";
            return Err(Error::Usage(format!("{self}: {why}; give the object another key")));
        }
        Path::parse(key).map_err(|error| Error::Usage(format!("{self}: {error}")))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{SCHEME}{}/{}", self.bucket, self.key)
    }
}

/// A bucket, and the credentials to access it. It runs the library's asynchronous code on the
/// caller's thread, with a runtime of its own. HTTP requests block other threads of that runtime.
#[derive(Debug)]
pub struct Bucket {
    pub(crate) s3: AmazonS3,
    /// A second client that is never cancelled. It removes parts after all other requests were
    /// cancelled.
    pub(crate) last: AmazonS3,
    /// Cancels requests in progress.
    pub(crate) stop: Cancel,
    pub(crate) runtime: Runtime,
}

impl Bucket {
    /// Opens a bucket with the configuration in the environment: for example, `AWS_ACCESS_KEY_ID`,
    /// `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN` and `AWS_REGION`. `AWS_ENDPOINT_URL` is needed
    /// for a server that is not Amazon's.
    /// # Errors
    /// [`Error::Usage`] if credentials are missing or the configuration is invalid. [`Error::File`]
    /// if the file of certificates cannot be used.
    pub fn open(bucket: &str, options: &Options, cancel: &Cancel) -> Result<Self, Error> {
        if !CREDENTIALS
            .iter()
            .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
        {
            return Err(Error::Usage(format!(
                "{SCHEME}{bucket}: no credentials; set AWS_ACCESS_KEY_ID and \
                 AWS_SECRET_ACCESS_KEY (and AWS_REGION, or AWS_ENDPOINT_URL for a server that is \
                 not Amazon's)"
            )));
        }
        Self::with(AmazonS3Builder::from_env(), bucket, options, cancel)
    }

    /// Opens a bucket with the given endpoint and keys. Ignores the environment.
    /// # Errors
    /// The errors of [`Bucket::open`].
    pub fn with_keys(
        endpoint: &str,
        (key_id, secret): (&str, &str),
        bucket: &str,
        options: &Options,
        cancel: &Cancel,
    ) -> Result<Self, Error> {
        let builder = AmazonS3Builder::new().with_endpoint(endpoint);
        let builder = builder.with_access_key_id(key_id).with_secret_access_key(secret);
        Self::with(builder, bucket, options, cancel)
    }

    fn with(
        builder: AmazonS3Builder,
        bucket: &str,
        options: &Options,
        cancel: &Cancel,
    ) -> Result<Self, Error> {
        let unusable =
            |error: &dyn fmt::Display| Error::Usage(format!("{SCHEME}{bucket}: {error}"));
        let stop = cancel.child();
        let transport = |cancel: &Cancel| {
            Ok::<_, Error>(Transport(Arc::new(Caller::new(&options.into(), cancel)?)))
        };
        // Unless configured otherwise, each part is sent with its checksum, so that the server
        // rejects a corrupt part.
        let configured = builder.get_config_value(&AmazonS3ConfigKey::Checksum);
        let builder = if configured.is_none() {
            builder.with_checksum_algorithm(Checksum::SHA256)
        } else {
            builder
        };
        let retries = usize::try_from(options.retries).unwrap_or(usize::MAX);
        let retry = RetryConfig {
            max_retries: retries,
            retry_timeout: RETRY_TIME,
            ..RetryConfig::default()
        };
        let builder = builder.with_bucket_name(bucket).with_allow_http(true).with_retry(retry);
        let last = builder.clone().with_http_connector(transport(&Cancel::default())?).build();
        let s3 = builder
            .with_http_connector(transport(&stop)?)
            .build()
            .map_err(|error| unusable(&error))?;
        let last = last.map_err(|error| unusable(&error))?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_time()
            .max_blocking_threads(options.streams + 2)
            .build()
            .map_err(|error| unusable(&error))?;
        Ok(Self { s3, last, stop, runtime })
    }

    /// Creates a presigned address of an object. The address is valid for seven days, but not
    /// longer than the keys that signed it. It is displayed as `s3://BUCKET/KEY`.
    /// # Errors
    /// [`Error::Usage`] if the location is a folder, or its key has a part that is empty, `.` or
    /// `..`. [`Error::Denied`] or [`Error::Unreachable`] if the request cannot be signed, for
    /// example because keys are missing.
    pub fn address(&self, location: &Location) -> Result<Address, Error> {
        if location.is_folder() {
            return Err(Error::Usage(format!("{location}: is a folder; name the object")));
        }
        let path = location.path()?;
        let sign = |method| {
            let signed = self.runtime.block_on(self.s3.signed_url(method, &path, SIGNATURE_TIME));
            signed.map_err(|error| copy_error(location, error))
        };
        let (file, head) = (sign(http::Method::GET)?, sign(http::Method::HEAD)?);
        Ok(Address::signed(file.as_str(), head.as_str(), &location.to_string())?)
    }

    /// Returns the length of an object in bytes; `None` if it does not exist.
    ///
    /// # Errors
    /// [`Error::Denied`] if the store denies access. [`Error::Unreachable`] if the store cannot be
    /// reached or reports another error. [`Error::Usage`] if the key has a part that is empty, `.`
    /// or `..`.
    pub fn length(&self, location: &Location) -> Result<Option<u64>, Error> {
        match self.runtime.block_on(self.s3.head(&location.path()?)) {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(copy_error(location, error)),
        }
    }
}

/// Converts an error of the library.
pub(crate) fn copy_error(location: &Location, error: object_store::Error) -> Error {
    let (source_name, why) = (location.to_string(), error.to_string());
    match error {
        object_store::Error::NotFound { .. } => Error::NotFound { source_name, status: 404 },
        object_store::Error::PermissionDenied { .. } => Error::Denied { source_name, status: 403 },
        object_store::Error::Unauthenticated { .. } => Error::Denied { source_name, status: 401 },
        _ => Error::Unreachable { source_name, why },
    }
}
