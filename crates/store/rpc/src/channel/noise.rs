//! The handshake of the Noise protocol. Its randomness comes from the seed that the endpoint's
//! owner gave, and the public half of each key is computed only once.

use super::Credentials;
use curve25519_dalek::MontgomeryPoint;
use ring::hmac;
use snow::params::{CipherChoice, DHChoice, HashChoice};
use snow::resolvers::{CryptoResolver, RingResolver};
use snow::types::{Cipher, Dh, Hash, Random};
use snow::{Builder, Error, HandshakeState};
use sprat_wire::certificate::KEY_BYTES;
use sprat_wire::channel::CHANNEL_VERSION;

/// The only Noise suite in use.
const SUITE: &str = "Noise_XXpsk0_25519_AESGCM_SHA256";

/// Data on which both ends must agree, besides version and nonce.
const PROLOGUE: &[u8] = b"sprat channel";

/// Capacity of the buffers for handshake messages, in bytes.
pub(super) const MAX_MESSAGE: usize = 2048;

/// One end of a handshake in progress.
pub(super) struct Noise(Box<HandshakeState>);

/// The keys that a handshake yields: first the key with which the initiator sends, then the
/// responder's.
pub(super) type Split = ([u8; KEY_BYTES], [u8; KEY_BYTES]);

impl Noise {
    pub(super) fn new(credentials: &mut Credentials, nonce: u32, begins: bool) -> Self {
        let identity = &credentials.identity;
        let key = hmac::Key::new(hmac::HMAC_SHA256, credentials.seed.draw().as_ref());
        let known = Known { secret: *identity.secret(), public: identity.certificate().key };
        let resolver = Resolver { seed: key, known };
        let prologue = [PROLOGUE, &[CHANNEL_VERSION], &nonce.to_le_bytes()].concat();
        let builder =
            Builder::with_resolver(SUITE.parse().expect("a suite of Noise's"), Box::new(resolver))
                .local_private_key(identity.secret())
                .and_then(|builder| builder.psk(0, identity.door_key()))
                .and_then(|builder| builder.prologue(&prologue));
        let state = builder.and_then(|builder| {
            if begins { builder.build_initiator() } else { builder.build_responder() }
        });
        Self(Box::new(state.expect("everything the suite wants is there")))
    }

    /// Appends the next handshake message, with `payload` in it, to a frame.
    pub(super) fn write(&mut self, payload: &[u8], frame: &mut Vec<u8>) {
        let mut message = [0; MAX_MESSAGE];
        let len = self
            .0
            .write_message(payload, &mut message)
            .expect("it is our turn, and messages are short");
        frame.extend_from_slice(&message[..len]);
    }

    /// Reads the next handshake message and returns its payload. `None` if the sender lacks the
    /// keys, or the message was changed on the way or is not the next of this handshake.
    pub(super) fn read<'a>(
        &mut self,
        message: &[u8],
        buffer: &'a mut [u8; MAX_MESSAGE],
    ) -> Option<&'a [u8]> {
        if message.len() > MAX_MESSAGE || self.0.is_my_turn() {
            return None;
        }
        let len = self.0.read_message(message, buffer).ok()?;
        Some(&buffer[..len])
    }

    /// Returns the peer's public key. The peer has proven that it has the secret half once the
    /// handshake is over.
    pub(super) fn peer_key(&self) -> &[u8] {
        self.0.get_remote_static().unwrap_or(&[])
    }

    /// Returns the keys of a finished handshake, and the channel's name, which is unique.
    pub(super) fn split(&mut self) -> (Split, [u8; 8]) {
        assert!(self.0.is_handshake_finished(), "a handshake has three messages");
        let name = *self.0.get_handshake_hash().first_chunk().expect("a hash has 32 bytes");
        (self.0.dangerously_get_raw_split(), name)
    }
}

/// Random bytes derived from a seed: the same seed gives the same bytes.
pub(super) struct Seed {
    key: hmac::Key,
    count: u64,
}

impl Seed {
    pub(super) fn new(seed: &[u8; KEY_BYTES]) -> Self {
        Self { key: hmac::Key::new(hmac::HMAC_SHA256, seed), count: 0 }
    }

    fn of(key: &hmac::Key) -> Self {
        Self { key: key.clone(), count: 0 }
    }

    /// Draws the next 32 bytes.
    pub(super) fn draw(&mut self) -> hmac::Tag {
        self.count += 1;
        hmac::sign(&self.key, &self.count.to_le_bytes())
    }
}

impl Random for Seed {
    fn try_fill_bytes(&mut self, out: &mut [u8]) -> Result<(), Error> {
        for chunk in out.chunks_mut(KEY_BYTES) {
            chunk.copy_from_slice(&self.draw().as_ref()[..chunk.len()]);
        }
        Ok(())
    }
}

struct Resolver {
    seed: hmac::Key,
    known: Known,
}

impl CryptoResolver for Resolver {
    fn resolve_rng(&self) -> Option<Box<dyn Random>> {
        Some(Box::new(Seed::of(&self.seed)))
    }

    fn resolve_dh(&self, _: &DHChoice) -> Option<Box<dyn Dh>> {
        Some(Box::new(Curve {
            known: self.known,
            pair: Known { secret: [0; KEY_BYTES], public: [0; KEY_BYTES] },
        }))
    }

    fn resolve_hash(&self, choice: &HashChoice) -> Option<Box<dyn Hash>> {
        RingResolver.resolve_hash(choice)
    }

    fn resolve_cipher(&self, choice: &CipherChoice) -> Option<Box<dyn Cipher>> {
        RingResolver.resolve_cipher(choice)
    }
}

/// A secret key and its public half.
#[derive(Clone, Copy)]
struct Known {
    secret: [u8; KEY_BYTES],
    public: [u8; KEY_BYTES],
}

/// X25519. It does not compute the public half of the identity's own key again, so that a
/// stranger's first message costs no multiplication.
struct Curve {
    known: Known,
    pair: Known,
}

impl Dh for Curve {
    fn name(&self) -> &'static str {
        "25519"
    }

    fn pub_len(&self) -> usize {
        KEY_BYTES
    }

    fn priv_len(&self) -> usize {
        KEY_BYTES
    }

    fn set(&mut self, secret: &[u8]) {
        let secret = secret.try_into().expect("a key has 32 bytes");
        self.pair = match secret == self.known.secret {
            true => self.known,
            false => Known { secret, public: MontgomeryPoint::mul_base_clamped(secret).to_bytes() },
        };
    }

    fn generate(&mut self, random: &mut dyn Random) -> Result<(), Error> {
        let mut secret = [0; KEY_BYTES];
        random.try_fill_bytes(&mut secret)?;
        self.set(&secret);
        Ok(())
    }

    fn pubkey(&self) -> &[u8] {
        &self.pair.public
    }

    fn privkey(&self) -> &[u8] {
        &self.pair.secret
    }

    fn dh(&self, public: &[u8], out: &mut [u8]) -> Result<(), Error> {
        let public = public.first_chunk::<KEY_BYTES>().ok_or(Error::Dh)?;
        let shared = MontgomeryPoint(*public).mul_clamped(self.pair.secret).to_bytes();
        // With a point of low order the shared secret is zero, which everybody knows.
        if shared == [0; KEY_BYTES] {
            return Err(Error::Dh);
        }
        out[..KEY_BYTES].copy_from_slice(&shared);
        Ok(())
    }
}
