//! The files that may contain `unsafe`, with the reasons. ARCHITECTURE.md repeats this list for
//! readers.

use crate::Finding;
use crate::source::Source;

/// A file, or a folder if it ends in `/`, that may contain `unsafe`.
#[derive(Clone, Copy, Debug)]
pub struct UnsafePlace {
    /// Path from the root.
    pub path: &'static str,
    /// The reason: what safe code cannot do.
    pub reason: &'static str,
}

/// The files and folders that may contain `unsafe`.
pub const PLACES: &[UnsafePlace] = &[
    UnsafePlace {
        path: "crates/store/log/src/arena.rs",
        reason: "reserves address space, shares parts of it, gives pages back",
    },
    UnsafePlace {
        path: "crates/base/net/src/bypass/dpdk/sys/",
        reason: "DPDK is a C library; safe types say who owns a frame and a device",
    },
    UnsafePlace {
        path: "crates/base/net/src/bypass/memif/region.rs",
        reason: "maps memory that another process writes to; bytes are copied in and out, never \
                 referred to",
    },
    UnsafePlace {
        path: "crates/flow/pace/src/sys.rs",
        reason: "socket options, and programs for the kernel: one call each, with memory of the \
                 caller's",
    },
    UnsafePlace {
        path: "crates/lab/lab/src/port/sys.rs",
        reason: "requests that make and set up interfaces, and packet sockets",
    },
    UnsafePlace {
        path: "crates/lab/lab/src/filter/libpcap.rs",
        reason: "libpcap is a C library; its compiler's program is copied, verified, and run in \
                 safe code",
    },
    UnsafePlace {
        path: "crates/base/net/src/stamp.rs",
        reason: "reads the processor's time stamp counter",
    },
    UnsafePlace {
        path: "crates/base/net/tests/no_allocation.rs",
        reason: "a test's allocator, which counts and passes on to the system's",
    },
    UnsafePlace {
        path: "crates/base/disk/src/ring.rs",
        reason: "io_uring reads and writes at addresses the kernel keeps while a request is under \
                 way",
    },
    UnsafePlace {
        path: "crates/grape/vector/src/code.rs",
        reason: "maps machine code of kernels and calls it, with buffers as long as it was \
                 compiled for",
    },
    UnsafePlace {
        path: "bindings/c/src/calls.rs",
        reason: "functions that C calls: they are handed addresses, as the header says of each",
    },
];

/// Finds `unsafe` outside `places`.
#[must_use]
pub fn check(source: &Source, places: &[UnsafePlace]) -> Vec<Finding> {
    let allowed = places.iter().any(|place| {
        source.path == place.path
            || (place.path.ends_with('/') && source.path.starts_with(place.path))
    });
    if allowed {
        return Vec::new();
    }
    source
        .find(&["unsafe"])
        .map(|found| {
            let remedy = "do it in safe Rust, or add the file, with a reason, to the table in \
                        crates/tools/style/src/unsafety.rs and to ARCHITECTURE.md";
            Finding::new(
                &source.path,
                found[0].line,
                "`unsafe` outside the places that may have it",
                remedy,
            )
        })
        .collect()
}

/// Finds places that no longer exist, contain no `unsafe`, or are missing in `architecture`, the
/// text of ARCHITECTURE.md.
#[must_use]
pub fn check_places(
    places: &[UnsafePlace],
    sources: &[Source],
    architecture: &str,
) -> Vec<Finding> {
    let mut findings = Vec::new();
    for place in places {
        let used = sources
            .iter()
            .filter(|source| source.path.starts_with(place.path))
            .any(|source| source.find(&["unsafe"]).next().is_some());
        if !used {
            let problem = format!("{} is listed for `unsafe` and has none", place.path);
            findings.push(Finding::new(
                "crates/tools/style/src/unsafety.rs",
                1,
                problem,
                "take it off the table",
            ));
        }
        if !architecture.contains(place.path) {
            let problem =
                format!("{} may have `unsafe`, and this page does not say so", place.path);
            findings.push(Finding::new(
                "ARCHITECTURE.md",
                1,
                problem,
                "name it in that page's list of `unsafe`",
            ));
        }
    }
    findings
}
