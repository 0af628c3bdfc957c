# shellcheck shell=bash
# What every script here uses: speaking aloud, and keeping a list of what was not done and why.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"

# Reasons for what was skipped, one a line. `make test` reads it out at its end; a Rust test that
# cannot run on this machine appends its own line to the file that SPRAT_SKIPS names.
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

# Either a reason to stop (asked for by name) or one to go on without (part of a longer run).
cannot() {
  if [[ "${OPTIONAL:-no}" == yes ]]; then
    skip "$*"
    exit 0
  fi
  fail "$*"
}

# cargo_tool COMMAND: installs the cargo subcommand once; it stays in cargo's bin folder.
cargo_tool() {
  if cargo "${1#cargo-}" --version >/dev/null 2>&1; then
    return
  fi
  say "installing $1 (once; minutes of compiling)"
  # Not optimised: building it so takes longer than all it does.
  cargo install --debug --locked --quiet "$1" || cannot "$1 is not installed and could not be: see the lines above"
}
