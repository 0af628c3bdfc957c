//! The async client: futures over a thread that does the waiting.

use crate::blocking::Options;
use crate::core::{Core, check};
use crate::error::Error;
use crate::types::{Object, Table};
use sprat_host::{lock, random};
use sprat_net::{Idle, Nanos, Policy, Waker as Bell};
use sprat_wire::op::{Answer, Condition, Records, Request, Status};
use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::mpsc::{Receiver, SyncSender, TrySendError, sync_channel};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::thread;
use std::time::{Duration, Instant};
use zerocopy::IntoBytes;

/// Operations handed over and not yet begun; one more is refused.
const MAX_QUEUED: usize = 4096;

/// How errors name who answered: the thread does not tell which server it was.
const SERVER: &str = "the server";

/// Ends an operation with its answer.
type Finish = Box<dyn FnOnce(&mut Core, Result<Answer<'_>, Error>) + Send>;

struct Order {
    request: Vec<u8>,
    finish: Finish,
}

/// A connection to a cluster that can be cloned and shared. The thread behind it ends when the last
/// clone is gone and what is under way has ended.
#[derive(Clone)]
pub struct AsyncClient {
    orders: SyncSender<Order>,
    bell: Bell,
}

/// An operation under way. Dropping it does not undo the operation.
pub struct Call<T> {
    shared: Arc<Mutex<Shared<T>>>,
}

impl<T> Call<T> {
    /// One that came to nothing before it began.
    fn ended(error: Error) -> Self {
        Self { shared: Arc::new(Mutex::new(Shared { result: Some(Err(error)), waker: None })) }
    }
}

struct Shared<T> {
    result: Option<Result<T, Error>>,
    waker: Option<Waker>,
}

impl<T> Future for Call<T> {
    type Output = Result<T, Error>;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Self::Output> {
        let mut shared = lock(&self.shared);
        match shared.result.take() {
            Some(result) => Poll::Ready(result),
            None => {
                shared.waker = Some(context.waker().clone());
                Poll::Pending
            }
        }
    }
}

/// The thread's end of a call: whoever waits hears of it, also when the thread ends without an
/// answer.
struct End<T> {
    shared: Arc<Mutex<Shared<T>>>,
    told: bool,
}

impl<T> End<T> {
    fn tell(&mut self, result: Result<T, Error>) {
        self.told = true;
        let mut shared = lock(&self.shared);
        shared.result = Some(result);
        if let Some(waker) = shared.waker.take() {
            waker.wake();
        }
    }
}

impl<T> Drop for End<T> {
    fn drop(&mut self) {
        if !self.told {
            self.tell(Err(Error::Endpoint("the client's thread has ended".into())));
        }
    }
}

impl AsyncClient {
    /// Connects to a cluster and starts the thread.
    ///
    /// # Errors
    /// [`Error::Endpoint`] when the locator is of no use or no thread can be had.
    pub fn connect(options: &Options) -> Result<Self, Error> {
        let (coordinator, local) = options.locators()?;
        let (orders, inbox) = sync_channel(MAX_QUEUED);
        let (report, opened) = sync_channel(1);
        let options = options.clone();
        let run = move || {
            let seed = random();
            let opened = Core::new(&coordinator, local, options.identity.as_ref(), seed).and_then(
                |mut core| {
                    if options.patient {
                        core.wait_for_coordinators();
                    }
                    let idle = Idle::new(Policy::of(options.waiting), Nanos(0));
                    Ok((
                        core,
                        idle.map_err(|cause| {
                            Error::Endpoint(format!("cannot make an eventfd: {cause}"))
                        })?,
                    ))
                },
            );
            match opened {
                Ok((core, idle)) => {
                    let bell = idle.waker();
                    if report.send(Ok(bell)).is_ok() {
                        Runner {
                            core,
                            idle,
                            inbox,
                            timeout: options.timeout,
                            under_way: HashMap::new(),
                        }
                        .run();
                    }
                }
                Err(error) => drop(report.send(Err(error))),
            }
        };
        thread::Builder::new().name("sprat-client".into()).spawn(run).map_err(|cause| {
            Error::Endpoint(format!("cannot start the client's thread: {cause}"))
        })?;
        let bell = opened
            .recv()
            .map_err(|_| Error::Endpoint("the client's thread ended at once".into()))??;
        Ok(Self { orders, bell })
    }

    /// The object of a key; `None` when there is none.
    pub fn get(&self, table: Table, key: &[u8]) -> Call<Option<Object>> {
        self.call(&Request::Read { table: table.0, key }, |answer| {
            Ok((answer.status == Status::Ok).then(|| Object::of(answer)))
        })
    }

    /// Stores an object if the condition holds. Gives its version.
    pub fn put(&self, table: Table, key: &[u8], value: &[u8], condition: Condition) -> Call<u64> {
        self.call(&Request::Write { table: table.0, key, value, condition }, |answer| {
            Ok(answer.number)
        })
    }

    /// Removes an object if the condition holds. Gives the version it had; `None` when there was
    /// none.
    pub fn remove(&self, table: Table, key: &[u8], condition: Condition) -> Call<Option<u64>> {
        self.call(&Request::Remove { table: table.0, key, condition }, |answer| {
            Ok((answer.status == Status::Ok).then_some(answer.number))
        })
    }

    /// Adds to a 64-bit integer; an absent one counts as zero. Gives the sum and the object's
    /// version.
    pub fn increment_i64(&self, table: Table, key: &[u8], delta: i64) -> Call<(i64, u64)> {
        self.call(&Request::IncrementI64 { table: table.0, key, delta }, |answer| {
            let sum = answer
                .body
                .try_into()
                .map_err(|_| Error::Protocol { server: "the server".into() })?;
            Ok((i64::from_le_bytes(sum), answer.number))
        })
    }

    /// Makes a table, unless there is one of that name.
    pub fn create_table(&self, name: &str) -> Call<Table> {
        self.find(name, &Request::CreateTable { name, tablets: 0 })
    }

    /// The table of a name.
    pub fn table(&self, name: &str) -> Call<Table> {
        self.find(name, &Request::FindTable { name })
    }

    fn find(&self, name: &str, request: &Request<'_>) -> Call<Table> {
        let name = name.to_owned();
        self.order(request, move |core, answer| {
            let answer = Error::judge(&answer?, SERVER, 0, &name)?;
            let table = Records::new(answer.body).table();
            let table =
                table.ok_or_else(|| Error::Protocol { server: "the coordinator".into() })?;
            core.learn(&table)?;
            Ok(Table(table.id))
        })
    }

    fn call<T: Send + 'static>(
        &self,
        request: &Request<'_>,
        take: impl FnOnce(&Answer<'_>) -> Result<T, Error> + Send + 'static,
    ) -> Call<T> {
        let table = request.table().unwrap_or_default();
        self.order(request, move |_, answer| take(&Error::judge(&answer?, SERVER, table, "")?))
    }

    fn order<T: Send + 'static>(
        &self,
        request: &Request<'_>,
        take: impl FnOnce(&mut Core, Result<Answer<'_>, Error>) -> Result<T, Error> + Send + 'static,
    ) -> Call<T> {
        if let Err(error) = check(request) {
            return Call::ended(error);
        }
        let shared = Arc::new(Mutex::new(Shared { result: None, waker: None }));
        let mut end = End { shared: Arc::clone(&shared), told: false };
        let finish: Finish = Box::new(move |core, answer| end.tell(take(core, answer)));
        let (header, key, value) = request.parts();
        let order = Order { request: [header.as_bytes(), key, value].concat(), finish };
        match self.orders.try_send(order) {
            Ok(()) => self.bell.ring(),
            Err(TrySendError::Full(_)) => return Call::ended(Error::TooManyPending(MAX_QUEUED)),
            Err(TrySendError::Disconnected(_)) => {} // the order is dropped, and says so
        }
        Call { shared }
    }
}

/// The thread's state.
struct Runner {
    core: Core,
    idle: Idle,
    inbox: Receiver<Order>,
    timeout: Duration,
    under_way: HashMap<u64, Finish>,
}

/// How long the thread sleeps at most before it looks whether anybody is left.
const LOOK_AROUND: Duration = Duration::from_millis(100);

impl Runner {
    fn run(mut self) {
        let start = Instant::now();
        let (mut tag, mut connected) = (0, true);
        while connected || !self.under_way.is_empty() {
            let now = Nanos(0) + start.elapsed();
            let mut worked = false;
            loop {
                match self.inbox.try_recv() {
                    Ok(order) => {
                        tag += 1;
                        worked = true;
                        self.begin(now, tag, order);
                    }
                    Err(error) => {
                        connected = error != std::sync::mpsc::TryRecvError::Disconnected;
                        break;
                    }
                }
            }
            let mut ended = Vec::new();
            let polled = self.core.poll(now, &mut |tag, answer| {
                let answer = answer.map(|answer| (answer, answer.body.to_vec()));
                ended.push((
                    tag,
                    answer.map(|(answer, body)| (answer.status, answer.count, answer.number, body)),
                ));
            });
            for (tag, answer) in ended {
                worked = true;
                let Some(finish) = self.under_way.remove(&tag) else { continue };
                match answer {
                    Ok((status, count, number, body)) => {
                        finish(
                            &mut self.core,
                            Ok(Answer { status, more: false, count, number, body: &body }),
                        );
                    }
                    Err(error) => finish(&mut self.core, Err(error)),
                }
            }
            if let Err(error) = polled {
                // Without a driver nothing more can come.
                for (_, finish) in self.under_way.drain() {
                    finish(&mut self.core, Err(error.clone()));
                }
                return;
            }
            if worked {
                self.idle.worked(now);
                continue;
            }
            let deadline = self.core.next_deadline().min(now + LOOK_AROUND);
            if self.idle.rest(now, || (deadline, self.core.sources())).is_err() {
                return;
            }
        }
    }

    fn begin(&mut self, now: Nanos, tag: u64, order: Order) {
        let request = Request::parse(&order.request);
        let begun = match request {
            Ok(request) => self.core.submit(now, tag, &request, now + self.timeout),
            Err(malformed) => {
                Err(Error::Refused { server: "this client".into(), reason: malformed.to_string() })
            }
        };
        match begun {
            Ok(()) => drop(self.under_way.insert(tag, order.finish)),
            Err(error) => (order.finish)(&mut self.core, Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::task::Wake;

    struct Woken(std::sync::atomic::AtomicBool);

    impl Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.store(true, std::sync::atomic::Ordering::Relaxed);
        }
    }

    #[test]
    fn whoever_waits_hears_that_nobody_will_answer() {
        let shared = Arc::new(Mutex::new(Shared { result: None, waker: None }));
        let end: End<u64> = End { shared: Arc::clone(&shared), told: false };
        let mut call = Call { shared };
        let woken = Arc::new(Woken(false.into()));
        let waker = Waker::from(Arc::clone(&woken));
        assert!(Pin::new(&mut call).poll(&mut Context::from_waker(&waker)).is_pending());
        drop(end);
        assert!(woken.0.load(std::sync::atomic::Ordering::Relaxed));
        let Poll::Ready(Err(Error::Endpoint(why))) =
            Pin::new(&mut call).poll(&mut Context::from_waker(&waker))
        else {
            panic!("it has ended")
        };
        assert!(why.contains("has ended"), "{why}");
    }
}
