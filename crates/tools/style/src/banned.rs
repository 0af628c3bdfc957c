//! Calls that do not belong where they stand, each with its reason.

use crate::Finding;
use crate::source::Source;

/// Where a call is banned.
#[derive(Clone, Copy, Debug)]
pub enum Where {
    /// In every file whose path begins with none of these.
    AllBut(&'static [&'static str]),
    /// In files whose path begins with one of these.
    Only(&'static [&'static str]),
}

impl Where {
    fn covers(self, path: &str) -> bool {
        match self {
            Self::AllBut(prefixes) => !prefixes.iter().any(|prefix| path.starts_with(prefix)),
            Self::Only(prefixes) => prefixes.iter().any(|prefix| path.starts_with(prefix)),
        }
    }
}

/// A ban. Test code is free of all of them.
#[derive(Clone, Copy, Debug)]
pub struct Ban {
    /// The tokens, one after the other.
    pub call: &'static [&'static str],
    /// Where.
    pub within: Where,
    /// Why.
    pub reason: &'static str,
    /// What to write instead.
    pub mend: &'static str,
}

// The last two talk to cargo, and to the terminal of a test.
const PRINTS: &[&str] = &[
    "crates/tools/cli/",
    "crates/tools/bench/",
    "crates/base/net/build.rs",
    "crates/base/testing/",
];
const PRINT_REASON: &str = "a library does not talk to the terminal";
const PRINT_MEND: &str = "return it, or count it; the cli and the bench print";

/// Crates that must run the same in the simulator as on a machine.
const SANS_IO: &[&str] = &["crates/store/wire/", "crates/store/rpc/", "crates/store/log/"];
const SANS_IO_REASON: &str =
    "here time, threads and chance come only from the caller, so that a seed reproduces a history";
const SANS_IO_MEND: &str = "take it as an argument, as the rest of the crate does";

/// Crates whose code runs on a node's thread and nowhere else. The store has control threads too:
/// there the lint that `clippy.toml` sets asks each sleep for its reason.
const NODE: &[&str] = &[
    "crates/store/wire/",
    "crates/base/disk/",
    "crates/base/net/",
    "crates/store/rpc/",
    "crates/store/log/",
    "crates/store/sim/",
];

const WIRE: &[&str] = &["crates/store/wire/"];
const CAST_REASON: &str = "a cast that loses bits in a layout writes a wrong byte silently";
const CAST_MEND: &str = "use From or TryFrom, or take the bytes apart";

/// The bans.
pub const BANS: &[Ban] = &[
    Ban {
        call: &[".", "unwrap", "(", ")"],
        within: Where::AllBut(&[]),
        reason: "it panics without saying what was expected",
        mend: "return a typed error, or `expect` with why it cannot fail",
    },
    Ban {
        call: &["println", "!"],
        within: Where::AllBut(PRINTS),
        reason: PRINT_REASON,
        mend: PRINT_MEND,
    },
    Ban {
        call: &["print", "!"],
        within: Where::AllBut(PRINTS),
        reason: PRINT_REASON,
        mend: PRINT_MEND,
    },
    Ban {
        call: &["eprintln", "!"],
        within: Where::AllBut(PRINTS),
        reason: PRINT_REASON,
        mend: PRINT_MEND,
    },
    Ban {
        call: &["eprint", "!"],
        within: Where::AllBut(PRINTS),
        reason: PRINT_REASON,
        mend: PRINT_MEND,
    },
    Ban {
        call: &["thread", "::", "sleep"],
        within: Where::Only(NODE),
        reason: "a node never sleeps by itself: its loop owns waiting",
        mend: "set a timer and return to the loop",
    },
    Ban {
        call: &["process", "::", "exit"],
        within: Where::AllBut(&["crates/tools/cli/src/main.rs"]),
        reason: "it skips every destructor, and the caller's plans",
        mend: "return an error up to main",
    },
    Ban {
        call: &["Instant", "::", "now"],
        within: Where::Only(SANS_IO),
        reason: SANS_IO_REASON,
        mend: SANS_IO_MEND,
    },
    Ban {
        call: &["SystemTime"],
        within: Where::Only(SANS_IO),
        reason: SANS_IO_REASON,
        mend: SANS_IO_MEND,
    },
    Ban {
        call: &["thread", "::", "spawn"],
        within: Where::Only(SANS_IO),
        reason: SANS_IO_REASON,
        mend: SANS_IO_MEND,
    },
    Ban {
        call: &["RandomState"],
        within: Where::Only(SANS_IO),
        reason: SANS_IO_REASON,
        mend: SANS_IO_MEND,
    },
    // The lints see types and find lossy casts everywhere; only wire may never switch them off.
    Ban {
        call: &["clippy", "::", "cast_possible_truncation"],
        within: Where::Only(WIRE),
        reason: CAST_REASON,
        mend: CAST_MEND,
    },
    Ban {
        call: &["clippy", "::", "cast_possible_wrap"],
        within: Where::Only(WIRE),
        reason: CAST_REASON,
        mend: CAST_MEND,
    },
    Ban {
        call: &["clippy", "::", "cast_sign_loss"],
        within: Where::Only(WIRE),
        reason: CAST_REASON,
        mend: CAST_MEND,
    },
];

/// Banned calls, and lints switched off without a reason.
#[must_use]
pub fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for ban in BANS.iter().filter(|ban| ban.within.covers(&source.path)) {
        for found in source.find(ban.call).filter(|found| !found[0].in_test) {
            let what = format!("`{}`: {}", ban.call.concat(), ban.reason);
            findings.push(Finding::new(&source.path, found[0].line, what, ban.mend));
        }
    }
    for lint in ["allow", "expect"] {
        for found in source.find(&["[", lint, "("]) {
            let inside = found.iter().take_while(|token| token.text != "]");
            let words: Vec<&str> = inside.map(|token| &token.text[..]).collect();
            // The reasons for `unsafe` stand in the table of the files that may have it.
            if !words.contains(&"reason") && !words.contains(&"unsafe_code") {
                let what = format!("`#[{lint}(...)]` without a reason");
                findings.push(Finding::new(
                    &source.path,
                    found[0].line,
                    what,
                    "add `reason = \"...\"`",
                ));
            }
        }
    }
    findings
}
