# shellcheck shell=bash
# Functions for all scripts here: messages, and a list of skipped steps with the reasons.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"

# The file that lists skipped steps with the reasons, one on each line. `make test` prints it at its
# end. A Rust test that cannot run on this machine appends a line to it.
export SPRAT_SKIPS="${SPRAT_SKIPS:-$PWD/target/skipped.txt}"

say() { printf '==> %s\n' "$*"; }

fail() {
  printf 'error: %s\n' "$*" >&2
  exit 1
}

skip() {
  say "skipped: $*"
  mkdir -p "$(dirname "$SPRAT_SKIPS")"
  printf '%s\n' "$*" >>"$SPRAT_SKIPS"
}

# Ends the script because a step is impossible on this machine. With OPTIONAL=yes (the step is part
# of a longer run) the step counts as skipped; otherwise (the user asked for the step) it fails.
cannot() {
  if [[ "${OPTIONAL:-no}" == yes ]]; then
    skip "$*"
    exit 0
  fi
  fail "$*"
}

# From here on, cargo builds our own crates with clippy's driver, which is the compiler plus the
# lints, so that one pass compiles and lints. `cargo clippy` would check all dependencies and our
# crates once more, which takes five minutes of two processors. The artifacts are other ones than
# those of a plain `cargo test`. The variables are those that `cargo clippy` sets.
build_with_lints() {
  RUSTC_WORKSPACE_WRAPPER="$(rustc --print sysroot)/bin/clippy-driver"
  [[ -x $RUSTC_WORKSPACE_WRAPPER ]] || fail "clippy is missing; run: rustup component add clippy"
  export RUSTC_WORKSPACE_WRAPPER CLIPPY_ARGS=-D__CLIPPY_HACKERY__warnings__CLIPPY_HACKERY__
}

# cargo_tool COMMAND: installs a cargo subcommand into cargo's bin folder, unless it is installed.
cargo_tool() {
  if cargo "${1#cargo-}" --version >/dev/null 2>&1; then
    return
  fi
  say "installing $1 (once; minutes of compiling)"
  # A debug build: to optimise the tool takes longer than all its work here.
  cargo install --debug --locked --quiet "$1" ||
    cannot "$1 could not be installed: see the lines above"
}
