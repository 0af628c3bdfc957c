//! Buckets: who we are to them, and how their objects are addressed.

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

/// How long a signed address is good for: the longest that S3 takes.
const GOOD_FOR: Duration = Duration::from_secs(7 * 24 * 3600);

/// How long a request is tried again.
const RETRY_TIME: Duration = Duration::from_secs(120);

const SCHEME: &str = "s3://";

/// What says who we are, any of it: without one the library would ask the network around for it.
const CREDENTIALS: &[&str] = &[
    "AWS_ACCESS_KEY_ID",
    "AWS_CONTAINER_CREDENTIALS_FULL_URI",
    "AWS_CONTAINER_CREDENTIALS_RELATIVE_URI",
    "AWS_WEB_IDENTITY_TOKEN_FILE",
];

/// An object's place: `s3://BUCKET/KEY`.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Location {
    /// The bucket.
    pub bucket: String,
    /// The object's key. Empty, or with a slash at its end: a folder, in which an object keeps its
    /// file's name.
    pub key: String,
}

impl Location {
    /// Whether `text` is one.
    #[must_use]
    pub fn is_one(text: &str) -> bool {
        text.starts_with(SCHEME)
    }

    /// Reads one. The key is taken as it stands.
    ///
    /// # Errors
    /// [`Error::Usage`].
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

    /// Whether it is a folder rather than an object.
    #[must_use]
    pub fn is_folder(&self) -> bool {
        self.key.is_empty() || self.key.ends_with('/')
    }

    /// The key as the library has it. It leaves out slashes at both ends, and what resolves
    /// addresses takes `.` and `..` out of them: a key with such parts would become another one's,
    /// so it is refused.
    pub(crate) fn path(&self) -> Result<Path, Error> {
        let key = self.key.strip_suffix('/').unwrap_or(&self.key);
        let leads_elsewhere = |part: &str| matches!(part, "" | "." | "..");
        if !self.key.is_empty() && key.split('/').any(leads_elsewhere) {
            let why = "a key with an empty part, or one that is . or .., cannot be asked for by an address";
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

/// A bucket that we may be allowed to use.
#[derive(Debug)]
pub struct Store {
    pub(crate) s3: AmazonS3,
    /// The same when everything else was stopped: for what is to be cleared away then.
    pub(crate) last: AmazonS3,
    /// Ends what is under way.
    pub(crate) stop: Cancel,
    pub(crate) runtime: Runtime,
}

impl Store {
    /// The bucket, as the environment tells of it: `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`,
    /// `AWS_SESSION_TOKEN`; `AWS_REGION`; and `AWS_ENDPOINT_URL` for one that is not Amazon's.
    ///
    /// # Errors
    /// [`Error::Usage`] when that is not enough, [`Error::File`] of certificates.
    pub fn open(bucket: &str, options: &Options, cancel: &Cancel) -> Result<Self, Error> {
        if !CREDENTIALS
            .iter()
            .any(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
        {
            return Err(Error::Usage(format!(
                "{SCHEME}{bucket}: nothing says who we are there; set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (and AWS_REGION, or \
                 AWS_ENDPOINT_URL for a server that is not Amazon's)"
            )));
        }
        Self::with(AmazonS3Builder::from_env(), bucket, options, cancel)
    }

    /// The same with an endpoint and keys that are given; in place of all that the environment
    /// tells.
    ///
    /// # Errors
    /// As [`Store::open`].
    pub fn at(
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
        // Unless told: what a part must be is said with it, so that one that arrives as another is
        // not taken.
        let told = builder.get_config_value(&AmazonS3ConfigKey::Checksum);
        let builder = if told.is_none() {
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

    /// The address by which an object is fetched for the next seven days, or as long as temporary
    /// keys last. It is shown as `s3://BUCKET/KEY`.
    ///
    /// # Errors
    /// [`Error`]: a folder, or keys that cannot be had.
    pub fn address(&self, location: &Location) -> Result<Address, Error> {
        if location.is_folder() {
            return Err(Error::Usage(format!("{location}: is a folder; name the object")));
        }
        let path = location.path()?;
        let sign = |method| {
            let signed = self.runtime.block_on(self.s3.signed_url(method, &path, GOOD_FOR));
            signed.map_err(|error| told(location, error))
        };
        let (file, head) = (sign(http::Method::GET)?, sign(http::Method::HEAD)?);
        Ok(Address::signed(file.as_str(), head.as_str(), &location.to_string())?)
    }

    /// The length of an object, bytes; none if there is no such object.
    ///
    /// # Errors
    /// [`Error`].
    pub fn length(&self, location: &Location) -> Result<Option<u64>, Error> {
        match self.runtime.block_on(self.s3.head(&location.path()?)) {
            Ok(meta) => Ok(Some(meta.size)),
            Err(object_store::Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(told(location, error)),
        }
    }
}

/// An error of the library's, as a copy's.
pub(crate) fn told(location: &Location, error: object_store::Error) -> Error {
    let (source_name, why) = (location.to_string(), error.to_string());
    match error {
        object_store::Error::NotFound { .. } => Error::NotFound { source_name, status: 404 },
        object_store::Error::PermissionDenied { .. } => Error::Denied { source_name, status: 403 },
        object_store::Error::Unauthenticated { .. } => Error::Denied { source_name, status: 401 },
        _ => Error::Unreachable { source_name, why },
    }
}
