//! Makes a backup of a running store.

use crate::copier::{Copied, CopiedSegment, Copier, Question, Reply};
use crate::error::Error;
use crate::folder::Folder;
use crate::point::{Point, PointServer, utc};
use base64::Engine as _;
use sprat_client::{AsyncClient, Call, CopiedPiece, Options, thread_waker};
use sprat_net::Nanos;
use sprat_store::coordinator::{Catalog, MetadataMemory};
use std::pin::Pin;
use std::sync::mpsc::{SyncSender, TrySendError, sync_channel};
use std::task::{Context, Poll};
use std::thread::{self, park_timeout};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Interval between two calls that show the progress.
const SHOW_INTERVAL: Duration = Duration::from_millis(100);

/// Number of segments that wait to be stored.
const QUEUED: usize = 4;

/// The increment that gives a thread the lowest priority.
const LOWEST: i32 = 19;

/// How a backup is made.
#[derive(Clone, Copy, Debug)]
pub struct CreateOptions {
    /// Bytes a second that it copies from each server at most.
    pub rate: u64,
}

/// A backup that was made.
#[derive(Clone, Debug)]
pub struct Created {
    /// The backup.
    pub point: Point,
    /// The longest time for which servers held back answers to clients.
    pub held: Duration,
}

/// A question that is under way.
enum Asked {
    Catalog(Call<(u64, Vec<u8>)>),
    Log(Call<CopiedPiece>),
}

impl Asked {
    fn new(client: &AsyncClient, question: &Question) -> Self {
        match question {
            Question::Catalog => Self::Catalog(client.copy_catalog()),
            Question::Log(locator, question) => {
                Self::Log(client.copy_log(locator, question.step()))
            }
        }
    }

    fn poll(&mut self, context: &mut Context<'_>) -> Poll<Result<Reply, sprat_client::Error>> {
        let catalog = |(version, bytes)| Reply::Catalog(version, bytes);
        match self {
            Self::Catalog(call) => Pin::new(call).poll(context).map(|answer| answer.map(catalog)),
            Self::Log(call) => Pin::new(call).poll(context).map(|answer| answer.map(Reply::Piece)),
        }
    }
}

/// Makes a backup of all tables of a cluster: adds a point to the folder, which must be
/// [locked](Folder::lock). Calls `show` several times a second with the bytes copied so far.
///
/// # Errors
/// [`Error`] when the folder has backups of another cluster or cannot be written; when the cluster
/// does not answer, this client has no right to administer it, or a failed server's tablets are not
/// recovered within [`RECOVERY_WAIT`](crate::RECOVERY_WAIT); and when another backup copies the
/// logs.
pub fn create(
    options: &Options,
    folder: &mut Folder,
    how: CreateOptions,
    show: &mut dyn FnMut(u64),
) -> Result<Created, Error> {
    let client = AsyncClient::connect(options)?;
    let cluster = cluster_of(&client.copy_catalog().wait()?.1)?;
    folder.claim(cluster)?;
    let folder = &*folder;
    let (begun, made) = (Instant::now(), SystemTime::now());
    let mut copier = Copier::new(folder.known()?, how.rate);
    let copied = run(&client, folder, &mut copier, &|| Nanos(0) + begun.elapsed(), show)?;
    let Copied { cut_at, held, catalog, servers, copied_bytes } = copied;
    let made = made + cut_at.since(Nanos(0));
    let made_ms = made.duration_since(UNIX_EPOCH).unwrap_or_default().as_millis();
    let servers = servers.into_iter().map(|(id, segments)| PointServer { id, segments });
    let point = Point {
        name: name(folder, made)?,
        made_ms: u64::try_from(made_ms).unwrap_or(u64::MAX),
        sprat: env!("CARGO_PKG_VERSION").to_owned(),
        cluster: format!("{cluster:016x}"),
        catalog: base64::engine::general_purpose::STANDARD.encode(catalog),
        servers: servers.collect(),
        copied_bytes,
    };
    folder.add_point(&point)?;
    Ok(Created { point, held })
}

/// Runs the copier, and stores what it copies, on another thread: storing may take longer than a
/// server keeps a cut for a client that asks for nothing.
fn run(
    client: &AsyncClient,
    folder: &Folder,
    copier: &mut Copier,
    now: &dyn Fn() -> Nanos,
    show: &mut dyn FnMut(u64),
) -> Result<Copied, Error> {
    let asker = thread::current();
    thread::scope(|scope| {
        let (sender, segments) = sync_channel::<CopiedSegment>(QUEUED);
        let writer = scope.spawn(move || {
            // Nothing waits for it, so it yields to servers and clients on the same processor. On
            // Linux this concerns the calling thread alone. A refusal only makes them slower.
            let _ = rustix::process::nice(LOWEST);
            segments.iter().try_for_each(|CopiedSegment { server, file, bytes }| {
                folder.add_segment(server, &file, &bytes)?;
                asker.unpark();
                Ok::<_, Error>(())
            })
        });
        let copied = ask(client, copier, &sender, now, show);
        drop(sender);
        writer.join().expect("the writer does not panic")?;
        copied.expect("the writer ends early only with an error")
    })
}

/// Asks what the copier wants to know, and passes on what it has copied, until it is done. Returns
/// `None` if the segments are not taken any more.
fn ask(
    client: &AsyncClient,
    copier: &mut Copier,
    segments: &SyncSender<CopiedSegment>,
    now: &dyn Fn() -> Nanos,
    show: &mut dyn FnMut(u64),
) -> Option<Result<Copied, Error>> {
    let waker = thread_waker();
    let mut context = Context::from_waker(&waker);
    let mut asked: Vec<(u64, Asked)> = Vec::new();
    let mut waiting = None;
    loop {
        while let Some(segment) = waiting.take().or_else(|| copier.take_segment()) {
            match segments.try_send(segment) {
                Ok(()) => show(copier.copied_bytes()),
                Err(TrySendError::Full(segment)) => {
                    waiting = Some(segment);
                    break;
                }
                Err(TrySendError::Disconnected(_)) => return None,
            }
        }
        if waiting.is_none()
            && let Some(result) = copier.take_result()
        {
            return Some(result);
        }
        while let Some((tag, question)) = copier.question(now(), waiting.is_none()) {
            asked.push((tag, Asked::new(client, &question)));
        }
        let before = asked.len();
        asked.retain_mut(|(tag, call)| match call.poll(&mut context) {
            Poll::Ready(answer) => {
                copier.answer(now(), *tag, answer);
                false
            }
            Poll::Pending => true,
        });
        if asked.len() == before {
            let due = copier.next_deadline().filter(|_| waiting.is_none());
            park_timeout(due.unwrap_or(Nanos::NEVER).since(now()).min(SHOW_INTERVAL));
        }
    }
}

fn cluster_of(catalog: &[u8]) -> Result<u64, Error> {
    let catalog = Catalog::<MetadataMemory>::from_copy(catalog)
        .map_err(|what| Error::Server { server: 0, what: format!("its catalog: {what}") })?;
    Ok(catalog.cluster())
}

/// Returns the name of a point that is made now.
fn name(folder: &Folder, made: SystemTime) -> Result<String, Error> {
    let plain: String = utc(made).chars().filter(|char| !matches!(char, '-' | ':')).collect();
    let names = folder.names()?;
    let numbered = (2_u32..).map(|number| format!("{plain}-{number}"));
    let mut free = std::iter::once(plain.clone()).chain(numbered);
    Ok(free.find(|name| !names.contains(name)).expect("one of many"))
}
