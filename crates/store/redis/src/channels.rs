//! Channels: who has subscribed to which, and the messages that were published.

use crate::glob;
use std::collections::{BTreeMap, BTreeSet};

/// Limit on the length of a channel's name, in bytes.
pub(crate) const MAX_CHANNEL: usize = 1024;

/// Limit on the length of a pattern of channels, in bytes. A message is compared with all patterns.
pub(crate) const MAX_CHANNEL_PATTERN: usize = 256;

/// Limit on the channels to which a client subscribes.
pub(crate) const MAX_SUBSCRIPTIONS: usize = 16 << 10;

/// Limit on the patterns to which a client subscribes.
pub(crate) const MAX_CLIENT_PATTERNS: usize = 64;

/// Limit on the patterns to which all clients subscribe.
pub(crate) const MAX_PATTERNS: usize = 1024;

/// What a client subscribes to.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Subject {
    /// A channel.
    Channel,
    /// All channels whose names match a pattern.
    Pattern,
}

/// The subscriptions of a client.
#[derive(Debug, Default)]
pub(crate) struct Subscriptions {
    channels: BTreeSet<Vec<u8>>,
    patterns: BTreeSet<Vec<u8>>,
    /// Bytes of memory for all names.
    bytes: usize,
}

/// Bytes of memory for a subscription, besides those of its name, which two lists have.
const SUBSCRIPTION_BYTES: usize = 128;

impl Subscriptions {
    pub(crate) fn of(&self, subject: Subject) -> &BTreeSet<Vec<u8>> {
        match subject {
            Subject::Channel => &self.channels,
            Subject::Pattern => &self.patterns,
        }
    }

    pub(crate) fn len(&self) -> usize {
        self.channels.len() + self.patterns.len()
    }

    /// Returns the bytes of memory that they hold.
    pub(crate) fn held(&self) -> usize {
        self.bytes
    }

    fn of_mut(&mut self, subject: Subject) -> &mut BTreeSet<Vec<u8>> {
        match subject {
            Subject::Channel => &mut self.channels,
            Subject::Pattern => &mut self.patterns,
        }
    }
}

fn bytes_of(name: &[u8]) -> usize {
    SUBSCRIPTION_BYTES + 2 * name.len()
}

/// A message that has still to be given to the subscribers.
#[derive(Debug)]
pub(crate) struct Message {
    pub(crate) channel: Vec<u8>,
    pub(crate) payload: Vec<u8>,
}

/// The subscribers of all channels. A connection is known by its slot.
#[derive(Debug, Default)]
pub(crate) struct Channels {
    channels: BTreeMap<Vec<u8>, BTreeSet<usize>>,
    patterns: BTreeMap<Vec<u8>, BTreeSet<usize>>,
    /// What the command at hand has published.
    pub(crate) published: Vec<Message>,
}

impl Channels {
    fn of_mut(&mut self, subject: Subject) -> &mut BTreeMap<Vec<u8>, BTreeSet<usize>> {
        match subject {
            Subject::Channel => &mut self.channels,
            Subject::Pattern => &mut self.patterns,
        }
    }

    /// Returns the channels that have subscribers, each with their number.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&[u8], usize)> {
        self.channels.iter().map(|(name, slots)| (&name[..], slots.len()))
    }

    /// Returns the number of subscribers of a channel, without those of patterns.
    pub(crate) fn subscribers(&self, channel: &[u8]) -> usize {
        self.channels.get(channel).map_or(0, BTreeSet::len)
    }

    /// Returns the number of patterns that have subscribers.
    pub(crate) fn patterns(&self) -> usize {
        self.patterns.len()
    }

    /// Subscribes a connection.
    ///
    /// # Errors
    /// The reply: a limit is reached.
    pub(crate) fn subscribe(
        &mut self,
        (slot, own): (usize, &mut Subscriptions),
        subject: Subject,
        name: &[u8],
    ) -> Result<(), String> {
        let (longest, most) = match subject {
            Subject::Channel => (MAX_CHANNEL, MAX_SUBSCRIPTIONS),
            Subject::Pattern => (MAX_CHANNEL_PATTERN, MAX_CLIENT_PATTERNS),
        };
        if own.of(subject).contains(name) {
            return Ok(());
        }
        if name.len() > longest {
            return Err(format!("ERR a name has {} bytes; the limit is {longest}", name.len()));
        }
        if own.of(subject).len() >= most {
            return Err(format!("ERR a client has at most {most} of these subscriptions"));
        }
        let all = self.of_mut(subject);
        if subject == Subject::Pattern && all.len() >= MAX_PATTERNS && !all.contains_key(name) {
            return Err(format!("ERR all clients have at most {MAX_PATTERNS} patterns"));
        }
        all.entry(name.to_vec()).or_default().insert(slot);
        own.of_mut(subject).insert(name.to_vec());
        own.bytes += bytes_of(name);
        Ok(())
    }

    /// Ends a subscription of a connection, if it has it.
    pub(crate) fn unsubscribe(
        &mut self,
        (slot, own): (usize, &mut Subscriptions),
        subject: Subject,
        name: &[u8],
    ) {
        if !own.of_mut(subject).remove(name) {
            return;
        }
        own.bytes -= bytes_of(name);
        let all = self.of_mut(subject);
        if let Some(slots) = all.get_mut(name) {
            slots.remove(&slot);
            if slots.is_empty() {
                all.remove(name);
            }
        }
    }

    /// Ends all subscriptions of a connection.
    pub(crate) fn unsubscribe_all(&mut self, slot: usize, own: &mut Subscriptions) {
        for subject in [Subject::Channel, Subject::Pattern] {
            while let Some(name) = own.of(subject).first().cloned() {
                self.unsubscribe((slot, &mut *own), subject, &name);
            }
        }
    }

    /// Publishes a message; returns how many times it will be given to a subscriber.
    pub(crate) fn publish(&mut self, channel: &[u8], payload: &[u8]) -> usize {
        let count = self.receivers(channel).count();
        if count > 0 {
            let (channel, payload) = (channel.to_vec(), payload.to_vec());
            self.published.push(Message { channel, payload });
        }
        count
    }

    /// Returns the connections that get what is published in a channel: those of its subscribers,
    /// and those of each pattern that matches, with the pattern.
    pub(crate) fn receivers(&self, channel: &[u8]) -> impl Iterator<Item = (usize, Option<&[u8]>)> {
        let own = self.channels.get(channel).into_iter().flatten().map(|slot| (*slot, None));
        let matching =
            self.patterns.iter().filter(move |(pattern, _)| glob::matches(pattern, channel));
        let others = matching
            .flat_map(|(pattern, slots)| slots.iter().map(move |slot| (*slot, Some(&pattern[..]))));
        own.chain(others)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_connection_that_ends_leaves_nothing() {
        let mut all = Channels::default();
        let (mut one, mut other) = (Subscriptions::default(), Subscriptions::default());
        for name in [&b"a"[..], b"b", b"a"] {
            all.subscribe((1, &mut one), Subject::Channel, name).expect("within the limits");
        }
        all.subscribe((1, &mut one), Subject::Pattern, b"a*").expect("within the limits");
        all.subscribe((2, &mut other), Subject::Channel, b"a").expect("within the limits");
        let receivers: Vec<_> = all.receivers(b"a").collect();
        assert_eq!(receivers, [(1, None), (2, None), (1, Some(&b"a*"[..]))]);
        assert_eq!((all.publish(b"a", b"x"), all.publish(b"none", b"x")), (3, 0));
        assert_eq!(all.published.len(), 1);
        all.unsubscribe_all(1, &mut one);
        assert_eq!((one.len(), one.held()), (0, 0));
        assert_eq!(all.names().collect::<Vec<_>>(), [(&b"a"[..], 1)]);
        assert_eq!(all.patterns(), 0);
        all.unsubscribe((2, &mut other), Subject::Channel, b"a");
        assert_eq!(all.names().count(), 0);
    }

    #[test]
    fn subscriptions_are_limited() {
        let mut all = Channels::default();
        let mut own = Subscriptions::default();
        let long = vec![b'x'; MAX_CHANNEL + 1];
        assert!(all.subscribe((1, &mut own), Subject::Channel, &long).is_err());
        let mut subscribe = |slot, own: &mut Subscriptions, number: usize| {
            all.subscribe((slot, own), Subject::Pattern, number.to_string().as_bytes())
        };
        let mut clients = 0;
        for first in (0..MAX_PATTERNS).step_by(MAX_CLIENT_PATTERNS) {
            let mut own = Subscriptions::default();
            let mut numbers = first..first + MAX_CLIENT_PATTERNS;
            assert!(numbers.all(|number| subscribe(clients, &mut own, number).is_ok()));
            assert!(subscribe(clients, &mut own, first).is_ok(), "it has it");
            assert!(subscribe(clients, &mut own, MAX_PATTERNS).is_err(), "its own limit");
            clients += 1;
        }
        let mut own = Subscriptions::default();
        assert!(subscribe(clients, &mut own, MAX_PATTERNS).is_err(), "the limit of all");
        assert!(subscribe(clients, &mut own, 0).is_ok(), "others have this pattern");
    }
}
