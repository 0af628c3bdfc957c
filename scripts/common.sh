# shellcheck shell=bash
# Functions that every script here uses: they print progress, and record what was skipped and why.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
export PATH="$PATH:${CARGO_HOME:-$HOME/.cargo}/bin"

# The file that lists what was skipped and why, one a line. `make test` prints it at its end. A Rust
# test that cannot run on this machine appends a line to it.
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

# cannot REASON: ends the script with an error, or, with OPTIONAL=yes, skips the script.
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
  # Not optimised, because an optimised build takes longer than all runs of the tool.
  cargo install --debug --locked --quiet "$1" || cannot "$1 is not installed and could not be: see the lines above"
}
