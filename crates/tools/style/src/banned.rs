//! Calls that are banned in some places, each with its reason.

use crate::Finding;
use crate::source::Source;

/// Where a call is banned.
#[derive(Clone, Copy, Debug)]
pub enum Scope {
    /// In every file whose path begins with none of these prefixes.
    AllBut(&'static [&'static str]),
    /// In files whose path begins with one of these prefixes.
    Only(&'static [&'static str]),
}

impl Scope {
    fn covers(self, path: &str) -> bool {
        match self {
            Self::AllBut(prefixes) => !prefixes.iter().any(|prefix| path.starts_with(prefix)),
            Self::Only(prefixes) => prefixes.iter().any(|prefix| path.starts_with(prefix)),
        }
    }
}

/// A banned call. Test code is exempt from all bans.
#[derive(Clone, Copy, Debug)]
pub struct Ban {
    /// The tokens of the call, one after another.
    pub call: &'static [&'static str],
    /// The paths in which the call is banned.
    pub within: Scope,
    /// Why the call is banned.
    pub reason: &'static str,
    /// What to write instead.
    pub remedy: &'static str,
}

// The build script prints to cargo, and the crate `testing` prints to the terminal of a test.
const PRINTS: &[&str] = &[
    "crates/tools/cli/",
    "crates/tools/bench/",
    "crates/base/net/build.rs",
    "crates/base/testing/",
];
const PRINT_REASON: &str = "a library does not talk to the terminal";
const PRINT_REMEDY: &str = "return it, or count it; the cli and the bench print";

/// Crates that must behave in the simulator as they do on a machine.
const SANS_IO: &[&str] = &["crates/store/wire/", "crates/store/rpc/", "crates/store/log/"];
const SANS_IO_REASON: &str =
    "here time, threads and chance come only from the caller, so that a seed reproduces a history";
const SANS_IO_REMEDY: &str = "take it as an argument, as the rest of the crate does";

/// Crates whose code runs only on a node's thread. The store also has control threads; there, a
/// lint that `clippy.toml` configures requires a reason for each sleep.
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
const CAST_REMEDY: &str = "use From or TryFrom, or take the bytes apart";

/// The bans.
pub const BANS: &[Ban] = &[
    Ban {
        call: &[".", "unwrap", "(", ")"],
        within: Scope::AllBut(&[]),
        reason: "it panics without saying what was expected",
        remedy: "return a typed error, or `expect` with why it cannot fail",
    },
    Ban {
        call: &["println", "!"],
        within: Scope::AllBut(PRINTS),
        reason: PRINT_REASON,
        remedy: PRINT_REMEDY,
    },
    Ban {
        call: &["print", "!"],
        within: Scope::AllBut(PRINTS),
        reason: PRINT_REASON,
        remedy: PRINT_REMEDY,
    },
    Ban {
        call: &["eprintln", "!"],
        within: Scope::AllBut(PRINTS),
        reason: PRINT_REASON,
        remedy: PRINT_REMEDY,
    },
    Ban {
        call: &["eprint", "!"],
        within: Scope::AllBut(PRINTS),
        reason: PRINT_REASON,
        remedy: PRINT_REMEDY,
    },
    Ban {
        call: &["thread", "::", "sleep"],
        within: Scope::Only(NODE),
        reason: "a node never sleeps by itself: its loop owns waiting",
        remedy: "set a timer and return to the loop",
    },
    Ban {
        call: &["process", "::", "exit"],
        within: Scope::AllBut(&["crates/tools/cli/src/main.rs"]),
        reason: "it skips every destructor, and the caller's plans",
        remedy: "return an error up to main",
    },
    Ban {
        call: &["Instant", "::", "now"],
        within: Scope::Only(SANS_IO),
        reason: SANS_IO_REASON,
        remedy: SANS_IO_REMEDY,
    },
    Ban {
        call: &["SystemTime"],
        within: Scope::Only(SANS_IO),
        reason: SANS_IO_REASON,
        remedy: SANS_IO_REMEDY,
    },
    Ban {
        call: &["thread", "::", "spawn"],
        within: Scope::Only(SANS_IO),
        reason: SANS_IO_REASON,
        remedy: SANS_IO_REMEDY,
    },
    Ban {
        call: &["RandomState"],
        within: Scope::Only(SANS_IO),
        reason: SANS_IO_REASON,
        remedy: SANS_IO_REMEDY,
    },
    // The lints know types and find lossy casts everywhere. Only the crate wire may never switch
    // them off.
    Ban {
        call: &["clippy", "::", "cast_possible_truncation"],
        within: Scope::Only(WIRE),
        reason: CAST_REASON,
        remedy: CAST_REMEDY,
    },
    Ban {
        call: &["clippy", "::", "cast_possible_wrap"],
        within: Scope::Only(WIRE),
        reason: CAST_REASON,
        remedy: CAST_REMEDY,
    },
    Ban {
        call: &["clippy", "::", "cast_sign_loss"],
        within: Scope::Only(WIRE),
        reason: CAST_REASON,
        remedy: CAST_REMEDY,
    },
];

/// Finds banned calls, and lints that are switched off without a reason.
#[must_use]
pub fn check(source: &Source) -> Vec<Finding> {
    let mut findings = Vec::new();
    for ban in BANS.iter().filter(|ban| ban.within.covers(&source.path)) {
        for found in source.find(ban.call).filter(|found| !found[0].in_test) {
            let problem = format!("`{}`: {}", ban.call.concat(), ban.reason);
            findings.push(Finding::new(&source.path, found[0].line, problem, ban.remedy));
        }
    }
    for lint in ["allow", "expect"] {
        for found in source.find(&["[", lint, "("]) {
            let inside = found.iter().take_while(|token| token.text != "]");
            let words: Vec<&str> = inside.map(|token| &token.text[..]).collect();
            // The reasons for `unsafe` are in [`PLACES`](crate::unsafety::PLACES).
            if !words.contains(&"reason") && !words.contains(&"unsafe_code") {
                let problem = format!("`#[{lint}(...)]` without a reason");
                findings.push(Finding::new(
                    &source.path,
                    found[0].line,
                    problem,
                    "add `reason = \"...\"`",
                ));
            }
        }
    }
    findings
}
