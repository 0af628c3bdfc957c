//! The scripts that an engine keeps.

use mlua::Function;
use ring::digest::{SHA1_FOR_LEGACY_USE_ONLY, digest};
use std::collections::HashMap;

/// Limit on the scripts that are kept which were only executed. Others were loaded, and stay until
/// all are flushed.
pub const MAX_CACHED: usize = 500;

/// Limit on the bytes of the texts of scripts.
pub const MAX_TEXTS: usize = 16 << 20;

/// The hash of a script's text, by which clients name it: SHA-1, in small hexadecimal digits.
pub type Sha = [u8; 40];

/// Returns the SHA-1 of a text in hexadecimal digits.
pub(crate) fn sha1_hex(text: &[u8]) -> Sha {
    let mut hex = [0; 40];
    let hash = digest(&SHA1_FOR_LEGACY_USE_ONLY, text);
    for (pair, byte) in hex.chunks_exact_mut(2).zip(hash.as_ref()) {
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        pair.copy_from_slice(&[DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 15)]]);
    }
    hex
}

/// A script.
#[derive(Clone, Debug)]
pub(crate) struct Script {
    pub(crate) function: Function,
    /// Whether its commands may only read.
    pub(crate) only_reads: bool,
    pub(crate) is_one_line: bool,
}

/// A script that is kept.
#[derive(Debug)]
struct Kept {
    script: Script,
    /// Bytes of its text.
    bytes: usize,
    is_loaded: bool,
    /// When it was used last, as the number of uses of all scripts.
    used: u64,
}

#[derive(Debug, Default)]
pub(crate) struct Cache {
    scripts: HashMap<Sha, Kept>,
    bytes: usize,
    /// Number of the scripts that were only executed.
    executed: usize,
    uses: u64,
}

impl Cache {
    pub(crate) fn contains(&self, sha: &Sha) -> bool {
        self.scripts.contains_key(sha)
    }

    /// Returns a script; from now on it was loaded, if `loads`.
    pub(crate) fn find(&mut self, sha: &Sha, loads: bool) -> Option<Script> {
        let kept = self.scripts.get_mut(sha)?;
        self.uses += 1;
        kept.used = self.uses;
        if loads && !kept.is_loaded {
            kept.is_loaded = true;
            self.executed -= 1;
        }
        Some(kept.script.clone())
    }

    /// Keeps a script that it does not have.
    ///
    /// # Errors
    /// Those that were loaded leave no room for its text.
    pub(crate) fn add(
        &mut self,
        sha: Sha,
        script: Script,
        bytes: usize,
        is_loaded: bool,
    ) -> Result<(), ()> {
        self.executed += usize::from(!is_loaded);
        self.bytes += bytes;
        self.uses += 1;
        let used = self.uses;
        self.scripts.insert(sha, Kept { script, bytes, is_loaded, used });
        while self.executed > MAX_CACHED || self.bytes > MAX_TEXTS {
            let executed = self.scripts.iter().filter(|(_, kept)| !kept.is_loaded);
            let oldest = executed.min_by_key(|(_, kept)| kept.used).map(|(sha, _)| *sha);
            let Some(oldest) = oldest else {
                self.bytes -= bytes;
                self.scripts.remove(&sha);
                return Err(());
            };
            let forgotten = self.scripts.remove(&oldest).expect("it was found");
            self.bytes -= forgotten.bytes;
            self.executed -= 1;
        }
        Ok(())
    }
}
