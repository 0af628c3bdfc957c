//! Handshakes of channels: both roles, and retransmission.

use std::io::IoSlice;
use std::net::SocketAddr;

use sprat_chance::Chance;
use sprat_key::{Certificate, Role};
use sprat_net::{Nanos, Transmit};
use sprat_wire::channel::{
    ANSWER, AnswerPayload, CHANNEL_HEADER_BYTES, CHANNEL_VERSION, HELLO, HELLO_BYTES,
    HandshakeHeader, HelloPayload, NO_CHANNEL, PROOF,
};
use zerocopy::{FromBytes, IntoBytes};

use super::noise::{MAX_MESSAGE, Noise, Split};
use super::seal::{Opening, Sealing};
use super::{Calling, Channel, Channels, HandshakeEvent, Open, Requester, Retransmission, Stage};
use crate::config::{
    HANDSHAKE_TRIES, INITIAL_RTO, MAX_CHANNELS_HALF_OPEN, MAX_RTO, SUSPECT_AFTER, SWEEP_EVERY,
};
use crate::counters::Counters;

/// Bytes that Noise adds to a Hello: an ephemeral key and a tag.
const HELLO_NOISE: usize = 32 + 16;

/// Bytes of a Hello's payload: the greeting, padded with zeros.
const HELLO_PAYLOAD_BYTES: usize = HELLO_BYTES - CHANNEL_HEADER_BYTES - HELLO_NOISE;

const _: () = assert!(size_of::<HelloPayload>() <= HELLO_PAYLOAD_BYTES);

/// Number of bytes at the end of a Proof by which a repeated Proof is recognized.
const PROOF_END: usize = 16;

impl Retransmission {
    fn new(now: Nanos, frame: Vec<u8>) -> Self {
        Self { frame, tries: 1, at: now + INITIAL_RTO }
    }

    /// Returns the frame, or an inner `None` if it is not due yet. An outer `None` means that the
    /// frame was sent as often as allowed.
    fn due(&mut self, now: Nanos) -> Option<Option<&[u8]>> {
        if now < self.at {
            return Some(None);
        }
        if self.tries >= HANDSHAKE_TRIES {
            return None;
        }
        self.at = now + (INITIAL_RTO * (1 << self.tries.min(8))).min(MAX_RTO);
        self.tries += 1;
        Some(Some(&self.frame))
    }
}

fn header(kind: u8, to: u32, from: u32, nonce: u32) -> Vec<u8> {
    let shake = HandshakeHeader {
        kind,
        version: CHANNEL_VERSION,
        reserved: [0; 2],
        to: to.into(),
        from: from.into(),
        nonce: nonce.into(),
    };
    shake.as_bytes().to_vec()
}

impl Channels {
    /// Returns the channel to an address, and begins one if there is none. Returns [`NO_CHANNEL`]
    /// if the table of channels is full.
    pub(crate) fn route_to<T: Transmit + ?Sized>(
        &mut self,
        now: Nanos,
        address: SocketAddr,
        random: &mut Chance,
        tx: &mut T,
    ) -> u32 {
        if let Some(&index) = self.to.get(&address) {
            return index;
        }
        let Some(index) = self.begin(now, address, None, random, tx) else { return NO_CHANNEL };
        self.to.insert(address, index);
        index
    }

    /// Probes an open channel that this end began, on which a client waits for an answer, if the
    /// peer has been silent for [`SUSPECT_AFTER`] and no probe is in progress.
    pub(crate) fn suspect<T: Transmit + ?Sized>(
        &mut self,
        now: Nanos,
        index: u32,
        random: &mut Chance,
        tx: &mut T,
    ) {
        let Some(channel) = self.all.get(index) else { return };
        let silent = now.since(channel.last_heard) >= SUSPECT_AFTER;
        let (Stage::Open(open), true) = (&channel.stage, channel.begun_here && silent) else {
            return;
        };
        if open.probe.is_some() || open.unconfirmed.is_some() {
            return;
        }
        let probe = self.begin(now, channel.peer, Some(index), random, tx);
        if let Some(Channel { stage: Stage::Open(open), .. }) = self.all.get_mut(index) {
            open.probe = probe;
        }
    }

    fn begin<T: Transmit + ?Sized>(
        &mut self,
        now: Nanos,
        peer: SocketAddr,
        old: Option<u32>,
        random: &mut Chance,
        tx: &mut T,
    ) -> Option<u32> {
        let index = self.all.vacant()?;
        let nonce = random.draw_u32();
        let mut hello_payload = HelloPayload { old: NO_CHANNEL.into(), name: [0; 8] };
        if let Some(Channel { peer_index, stage: Stage::Open(open), .. }) =
            old.and_then(|old| self.all.get(old))
        {
            hello_payload = HelloPayload { old: (*peer_index).into(), name: open.name };
        }
        let mut padded = [0; HELLO_PAYLOAD_BYTES];
        padded[..size_of::<HelloPayload>()].copy_from_slice(hello_payload.as_bytes());
        let mut noise = Noise::new(&mut self.credentials, nonce, true);
        let mut frame = header(HELLO, 0, index, nonce);
        noise.write(&padded, &mut frame);
        assert!(frame.len() == HELLO_BYTES, "a Hello has one length");
        tx.send(peer, &[IoSlice::new(&frame)]);
        let stage = Stage::Calling(Calling { noise, hello: Retransmission::new(now, frame), old });
        let given = self.add(now, (peer, NO_CHANNEL, nonce), true, stage);
        assert!(given == Some(index), "the number that was free");
        self.waiting.push(index);
        Some(index)
    }

    fn add(
        &mut self,
        now: Nanos,
        (peer, peer_index, nonce): (SocketAddr, u32, u32),
        begun_here: bool,
        stage: Stage,
    ) -> Option<u32> {
        let requester = Requester { role: Some(Role::Client), number: NO_CHANNEL };
        let channel = Channel {
            peer,
            peer_index,
            nonce,
            begun_here,
            requester,
            last_heard: now,
            until: Nanos::NEVER,
            stage,
        };
        self.sweep_at = self.sweep_at.min(now + SWEEP_EVERY);
        self.all.insert(channel)
    }

    /// Handles a frame of a handshake.
    pub(crate) fn shake<T: Transmit + ?Sized>(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        frame: &[u8],
        tx: &mut T,
        counters: &mut Counters,
    ) -> HandshakeEvent {
        let Ok((shake, message)) = HandshakeHeader::ref_from_prefix(frame) else {
            counters.malformed_short += 1;
            return HandshakeEvent::None;
        };
        if shake.version != CHANNEL_VERSION || shake.reserved != [0; 2] {
            counters.malformed_meaning += 1;
            return HandshakeEvent::None;
        }
        let news = match shake.kind {
            HELLO => self.hello(now, from, (shake, message), tx, counters),
            ANSWER => self.answer(now, from, (shake, message), tx, counters),
            _ => self.proof(now, from, (shake, message), tx, counters),
        };
        news.unwrap_or(HandshakeEvent::None)
    }

    /// Handles a Hello and answers it. A repeated Hello gets the stored Answer again. For any
    /// other, nothing is stored or sent before the message has been decrypted.
    fn hello<T: Transmit + ?Sized>(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        (shake, message): (&HandshakeHeader, &[u8]),
        tx: &mut T,
        counters: &mut Counters,
    ) -> Option<HandshakeEvent> {
        if message.len() + CHANNEL_HEADER_BYTES != HELLO_BYTES {
            counters.malformed_meaning += 1;
            return None;
        }
        let (peer_index, nonce) = (shake.from.get(), shake.nonce.get());
        if let Some(&index) = self.from.get(&(from, peer_index, nonce)) {
            // A repeated Hello: send the Answer again, unless the channel is open already.
            if let Some(Channel { stage: Stage::Answered(_, answer), .. }) = self.all.get(index) {
                tx.send(from, &[IoSlice::new(answer)]);
            }
            return None;
        }
        let mut noise = Noise::new(&mut self.credentials, nonce, false);
        let mut buffer = [0; MAX_MESSAGE];
        let Some(payload) = noise.read(message, &mut buffer) else {
            counters.strangers += 1;
            return None;
        };
        let (hello_payload, _) = HelloPayload::ref_from_prefix(payload).ok()?;
        let old = hello_payload.old.get();
        if let Some(Channel { peer, begun_here: false, stage: Stage::Open(open), .. }) =
            self.all.get(old)
            && *peer == from
            && open.name == hello_payload.name
        {
            self.send_empty(old, tx);
            return None;
        }
        if !self.pace.take(now) {
            counters.handshakes_late += 1;
            return None;
        }
        if self.half_open.len() >= MAX_CHANNELS_HALF_OPEN
            && let Some((oldest, nonce)) = self.half_open.pop_front()
        {
            self.give_up(oldest, nonce);
        }
        if self.all.vacant().is_none() {
            self.evict_oldest(now);
        }
        let index = self.all.vacant()?;
        let mut answer = header(ANSWER, peer_index, index, nonce);
        let reply = AnswerPayload { channel: index.into() };
        noise.write(
            &[reply.as_bytes(), self.credentials.identity.certificate_bytes()].concat(),
            &mut answer,
        );
        if answer.len() > HELLO_BYTES {
            return None; // An answer longer than the Hello would amplify a forged sender's traffic.
        }
        tx.send(from, &[IoSlice::new(&answer)]);
        counters.handshakes += 1;
        self.add(now, (from, peer_index, nonce), false, Stage::Answered(noise, answer));
        self.from.insert((from, peer_index, nonce), index);
        self.half_open.push_back((index, nonce));
        Some(HandshakeEvent::None)
    }

    /// Removes a channel if it is half open and has this nonce.
    fn give_up(&mut self, index: u32, nonce: u32) {
        if let Some(Channel { nonce: this, stage: Stage::Answered(..), .. }) = self.all.get(index)
            && *this == nonce
        {
            self.remove(index);
        }
    }

    /// Makes room for a later channel when the table is full. Of the channels that peers began, the
    /// one that was silent for longest ends at the next sweep, which is due at once.
    fn evict_oldest(&mut self, now: Nanos) {
        let begun_elsewhere = self.all.iter().filter(|(_, channel)| !channel.begun_here);
        let oldest =
            begun_elsewhere.min_by_key(|(_, channel)| channel.last_heard).map(|(index, _)| index);
        if let Some(channel) = oldest.and_then(|index| self.all.get_mut(index)) {
            channel.until = now;
            self.sweep_at = now;
        }
    }

    /// Handles an Answer: verifies the responder's certificate and sends the Proof.
    fn answer<T: Transmit + ?Sized>(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        (shake, message): (&HandshakeHeader, &[u8]),
        tx: &mut T,
        counters: &mut Counters,
    ) -> Option<HandshakeEvent> {
        let (index, nonce) = (shake.to.get(), shake.nonce.get());
        let channel = self
            .all
            .get_mut(index)
            .filter(|channel| (channel.peer, channel.nonce) == (from, nonce))?;
        let Stage::Calling(Calling { noise, old, .. }) = &mut channel.stage else { return None };
        let old = *old;
        let mut buffer = [0; MAX_MESSAGE];
        let Some(payload) = noise.read(message, &mut buffer) else {
            counters.strangers += 1;
            return None;
        };
        let (reply, presented) = AnswerPayload::ref_from_prefix(payload).ok()?;
        let peer_index = reply.channel.get();
        let verified = self.credentials.identity.verify_peer(
            presented,
            noise.peer_key(),
            self.credentials.unix_at(now),
        );
        let Some(certificate) =
            verified.ok().filter(|certificate| certificate.role == Role::Server)
        else {
            counters.untrusted += 1;
            self.remove(index);
            return None;
        };
        let mut proof = header(PROOF, peer_index, index, nonce);
        noise.write(self.credentials.identity.certificate_bytes(), &mut proof);
        tx.send(from, &[IoSlice::new(&proof)]);
        let (keys, name) = noise.split();
        let until = self.expiry_of(&certificate);
        let channel = self.all.get_mut(index)?;
        channel.peer_index = peer_index;
        (channel.last_heard, channel.until) = (now, until);
        let unconfirmed = Some(Retransmission::new(now, proof));
        channel.stage =
            Stage::Open(Box::new(Open::new(keys, true, name, [0; PROOF_END], unconfirmed)));
        counters.channels_opened += 1;
        self.to.insert(from, index);
        let old = old.filter(|&old| self.all.get(old).is_some());
        if let Some(old) = old {
            if let Some(Channel { stage: Stage::Open(open), .. }) = self.all.get_mut(old) {
                open.probe = None;
            }
            self.remove(old);
            self.to.insert(from, index);
        }
        Some(HandshakeEvent::Opened(index, old))
    }

    /// Handles a Proof: verifies the initiator's certificate and opens the channel.
    fn proof<T: Transmit + ?Sized>(
        &mut self,
        now: Nanos,
        from: SocketAddr,
        (shake, message): (&HandshakeHeader, &[u8]),
        tx: &mut T,
        counters: &mut Counters,
    ) -> Option<HandshakeEvent> {
        let (index, peer_index, nonce) = (shake.to.get(), shake.from.get(), shake.nonce.get());
        let channel = self.all.get_mut(index).filter(|channel| {
            !channel.begun_here
                && (channel.peer, channel.peer_index, channel.nonce) == (from, peer_index, nonce)
        })?;
        let end = *message.last_chunk::<PROOF_END>()?;
        let noise = match &mut channel.stage {
            Stage::Answered(noise, _) => noise,
            Stage::Open(open) if open.proof == end => {
                self.send_empty(index, tx);
                return None;
            }
            _ => return None,
        };
        let mut buffer = [0; MAX_MESSAGE];
        let Some(presented) = noise.read(message, &mut buffer) else {
            counters.strangers += 1;
            return None;
        };
        let verified = self.credentials.identity.verify_peer(
            presented,
            noise.peer_key(),
            self.credentials.unix_at(now),
        );
        let Ok(certificate) = verified else {
            counters.untrusted += 1;
            self.remove(index);
            return None;
        };
        let (keys, name) = noise.split();
        let until = self.expiry_of(&certificate);
        let channel = self.all.get_mut(index)?;
        let requester = Requester { role: Some(certificate.role), number: index };
        (channel.requester, channel.last_heard, channel.until) = (requester, now, until);
        channel.stage = Stage::Open(Box::new(Open::new(keys, false, name, end, None)));
        counters.channels_opened += 1;
        self.send_empty(index, tx);
        self.half_open.retain(|&(half, _)| half != index);
        Some(HandshakeEvent::Admitted(requester, Box::new(certificate)))
    }

    /// Returns the time at which the first of both ends' certificates expires.
    fn expiry_of(&self, peer: &Certificate) -> Nanos {
        let first = peer.until.min(self.credentials.identity.certificate().until);
        self.credentials.to_nanos(first)
    }

    /// Sends again the frames that are due, and returns the channels that were given up.
    pub(super) fn retransmit_due<T: Transmit + ?Sized>(
        &mut self,
        now: Nanos,
        tx: &mut T,
    ) -> Vec<u32> {
        let mut gone = Vec::new();
        for &index in &self.waiting {
            let Some(channel) = self.all.get_mut(index) else { continue };
            let again = match &mut channel.stage {
                Stage::Calling(calling) => Some(&mut calling.hello),
                Stage::Open(open) => open.unconfirmed.as_mut(),
                Stage::Answered(..) => None,
            };
            match again.and_then(|again| again.due(now)) {
                Some(Some(frame)) => tx.send(channel.peer, &[IoSlice::new(frame)]),
                Some(None) => {}
                None => gone.push(index),
            }
        }
        gone.iter().for_each(|&index| self.remove(index));
        gone
    }

    /// Returns the time at which a frame of the channel is to be sent again; `None` if none is.
    pub(super) fn retransmit_at(&self, index: u32) -> Option<Nanos> {
        match &self.all.get(index)?.stage {
            Stage::Calling(calling) => Some(calling.hello.at),
            Stage::Open(open) => open.unconfirmed.as_ref().map(|again| again.at),
            Stage::Answered(..) => None,
        }
    }
}

impl Open {
    fn new(
        keys: Split,
        began: bool,
        name: [u8; 8],
        proof: [u8; PROOF_END],
        unconfirmed: Option<Retransmission>,
    ) -> Self {
        let (out, back) = if began { (&keys.0, &keys.1) } else { (&keys.1, &keys.0) };
        Self {
            sealing: Sealing::new(out),
            opening: Opening::new(back),
            name,
            proof,
            unconfirmed,
            probe: None,
        }
    }
}
