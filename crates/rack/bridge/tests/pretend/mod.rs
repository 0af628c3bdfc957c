//! A simulated store and a simulated home, on one thread, which are slow and fail as a test
//! requires. Tests with a real store and a real Cassandra are in `rack_bridge.rs` of `cli`.

use sprat_bridge::{Cell, Delivery, Error, HomeRow};
use sprat_client::{Condition, Error as StoreError, Object, ValueType};
use std::collections::BTreeMap;
use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard};
use std::task::Poll;
use std::time::Duration;

#[derive(Debug, Default)]
struct World {
    choices: Vec<u8>,
    at: usize,
    faults: u8,
    memory: BTreeMap<u8, (u64, Vec<u8>)>,
    /// A version above those of all removed objects.
    safe: u64,
    /// All writes, by key and version.
    written: BTreeMap<u8, BTreeMap<u64, Option<u64>>>,
    home: BTreeMap<u8, (i64, Option<Vec<u8>>)>,
    /// Deliveries that their senders have given up, and that may still arrive.
    late: Vec<(u8, i64, Option<Vec<u8>>)>,
}

/// The shared state of store and home.
#[derive(Clone, Debug)]
pub(crate) struct Shared(Arc<Mutex<World>>);

impl Shared {
    pub(crate) fn new(choices: &[u8], faults: u8) -> Self {
        Self(Arc::new(Mutex::new(World {
            choices: choices.to_vec(),
            faults,
            safe: 1,
            ..World::default()
        })))
    }

    fn world(&self) -> MutexGuard<'_, World> {
        self.0.lock().expect("one thread")
    }

    pub(crate) fn choose(&self, of: usize) -> usize {
        self.world().choose(of)
    }

    pub(crate) fn fails(&self) -> bool {
        self.world().fails()
    }

    /// Stops all faults, and lets pending deliveries arrive.
    pub(crate) fn stop_faults(&self) {
        let mut world = self.world();
        world.faults = 0;
        for (key, stamp, value) in std::mem::take(&mut world.late) {
            world.arrive(key, stamp, value);
        }
    }

    pub(crate) fn object(&self, key: u8) -> Option<Vec<u8>> {
        self.world().memory.get(&key).map(|(_, value)| value.clone())
    }

    pub(crate) fn is_dirty(&self, key: u8) -> bool {
        self.object(key).is_some_and(|bytes| !Cell::parse(&bytes).expect("a cell").may_be_evicted())
    }

    pub(crate) fn row(&self, key: u8) -> Option<HomeRow> {
        let world = self.world();
        let (stamp, value) = world.home.get(&key)?.clone();
        value.map(|value| HomeRow { value, stamp })
    }

    pub(crate) fn written(&self, key: u8) -> BTreeMap<u64, Option<u64>> {
        self.world().written.get(&key).cloned().unwrap_or_default()
    }

    /// Returns the last value of a key, and its version.
    pub(crate) fn last_written(&self, key: u8) -> Option<(Option<u64>, u64)> {
        self.written(key).last_key_value().map(|(version, value)| (*value, *version))
    }
}

impl World {
    fn next(&mut self) -> u8 {
        self.at += 1;
        let choice = self.choices[self.at % self.choices.len()];
        // After its end, the sequence of choices is repeated, multiplied by another number.
        choice.wrapping_mul(
            1 + 2 * u8::try_from(self.at / self.choices.len() % 100).expect("below a hundred"),
        )
    }

    fn choose(&mut self, of: usize) -> usize {
        usize::from(self.next()) % of
    }

    fn fails(&mut self) -> bool {
        self.next() < self.faults
    }

    fn arrive(&mut self, key: u8, stamp: i64, value: Option<Vec<u8>>) {
        match self.home.get(&key) {
            Some((known, _)) if *known > stamp => {}
            Some((known, had)) if *known == stamp => {
                assert_eq!(*had, value, "one write timestamp, one value")
            }
            _ => drop(self.home.insert(key, (stamp, value))),
        }
    }

    fn holds(&self, key: u8, condition: Condition) -> Result<(), StoreError> {
        let current = self.memory.get(&key).map(|(version, _)| *version);
        let holds = match condition {
            Condition::None => true,
            Condition::Absent => current.is_none(),
            Condition::Exists => current.is_some(),
            Condition::Version(version) => current == Some(version),
        };
        if holds { Ok(()) } else { Err(StoreError::Conflict { current }) }
    }

    fn put(&mut self, key: u8, value: &[u8], condition: Condition) -> Result<u64, StoreError> {
        self.holds(key, condition)?;
        if condition != Condition::None && self.fails() {
            return Err(StoreError::MemoryFull);
        }
        let version = self.memory.get(&key).map_or(self.safe, |(version, _)| version + 1);
        let wrote = match Cell::parse(value).expect("a cell") {
            Cell::Dirty(value) => {
                Some(Some(u64::from_le_bytes(value.try_into().expect("a number"))))
            }
            Cell::Gone => Some(None),
            Cell::Clean(_) | Cell::Loading => None,
        };
        if let Some(wrote) = wrote {
            self.written.entry(key).or_default().insert(version, wrote);
        }
        self.memory.insert(key, (version, value.to_vec()));
        Ok(version)
    }

    fn remove(&mut self, key: u8, condition: Condition) -> Result<Option<u64>, StoreError> {
        self.holds(key, condition)?;
        let Some((version, _)) = self.memory.remove(&key) else { return Ok(None) };
        self.safe = self.safe.max(version + 1);
        Ok(Some(version))
    }
}

/// The simulated store.
#[derive(Debug)]
pub(crate) struct Near(pub(crate) Shared);

impl Near {
    /// Executes a request between its start and its answer; sometimes the answer is lost.
    async fn request<T>(
        &self,
        what: impl FnOnce(&mut World) -> Result<T, StoreError> + Send,
    ) -> Result<T, StoreError> {
        yield_once().await;
        let done = what(&mut self.0.world());
        yield_once().await;
        if self.0.fails() {
            return Err(StoreError::Indeterminate {
                server: "one".to_owned(),
                waited: Duration::ZERO,
            });
        }
        done
    }
}

impl sprat_bridge::MemoryTable for Near {
    fn get(&self, key: &[u8]) -> impl Future<Output = Result<Option<Object>, StoreError>> + Send {
        let key = key[0];
        self.request(move |world| {
            let value_type = ValueType::Bytes;
            let object = |(version, value): &(u64, Vec<u8>)| Object {
                version: *version,
                value: value.clone(),
                value_type,
                ttl: None,
            };
            Ok(world.memory.get(&key).map(object))
        })
    }

    fn put(
        &self,
        key: &[u8],
        value: &[u8],
        condition: Condition,
    ) -> impl Future<Output = Result<u64, StoreError>> + Send {
        let (key, value) = (key[0], value.to_vec());
        self.request(move |world| world.put(key, &value, condition))
    }

    fn remove(
        &self,
        key: &[u8],
        condition: Condition,
    ) -> impl Future<Output = Result<Option<u64>, StoreError>> + Send {
        let key = key[0];
        self.request(move |world| world.remove(key, condition))
    }
}

/// The simulated home.
#[derive(Debug)]
pub(crate) struct Far(pub(crate) Shared);

impl sprat_bridge::HomeTable for Far {
    async fn read(&self, key: &[u8]) -> Result<Option<HomeRow>, Error> {
        yield_once().await;
        let row = self.0.row(key[0]);
        yield_once().await;
        if self.0.fails() { Err(unreachable_home()) } else { Ok(row) }
    }

    async fn apply(&self, key: &[u8], delivery: &Delivery<'_>) -> Result<(), Error> {
        yield_once().await;
        let (key, stamp, value) = (key[0], delivery.stamp, delivery.value.map(<[u8]>::to_vec));
        let fate = {
            let mut world = self.0.world();
            let fate = if world.fails() { world.choose(3) } else { 3 };
            match fate {
                0 => {}
                1 => world.late.push((key, stamp, value)),
                _ => world.arrive(key, stamp, value),
            }
            // A delivery that was given up long ago arrives at some time.
            if !world.late.is_empty() && world.choose(4) == 0 {
                let (key, stamp, value) = world.late.swap_remove(0);
                world.arrive(key, stamp, value);
            }
            fate
        };
        yield_once().await;
        if fate < 3 { Err(unreachable_home()) } else { Ok(()) }
    }
}

fn unreachable_home() -> Error {
    Error::Home { doing: "a question".to_owned(), error: "no answer".to_owned() }
}

/// Lets other tasks run.
async fn yield_once() {
    let mut been = false;
    std::future::poll_fn(move |_| {
        if std::mem::replace(&mut been, true) { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
