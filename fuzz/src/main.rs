//! libFuzzer on the target that the environment variable `FUZZ_TARGET` names. One program contains
//! all targets: to link an instrumented program for each took most of the build.
#![no_main]

use libfuzzer_sys::fuzz_target;
use sprat_fuzz::{Run, TARGETS};
use std::sync::LazyLock;

static RUN: LazyLock<Run> = LazyLock::new(|| {
    let name = std::env::var("FUZZ_TARGET").expect("FUZZ_TARGET names the target");
    let target = TARGETS.iter().find(|(known, _)| *known == name);
    target.unwrap_or_else(|| panic!("there is no target {name}")).1
});

fuzz_target!(|bytes: &[u8]| RUN(bytes));
