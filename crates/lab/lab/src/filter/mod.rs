//! The packet filter: rules that say what to do with packets that match an expression in tcpdump's
//! language (pcap-filter(7)).
//!
//! libpcap's own compiler compiles the expressions, so that they mean the same here as in tcpdump.
//! libpcap is loaded when the first expression is compiled. [`Program::run`] then runs the program.
//! The program was verified after it was compiled, so running it needs neither libpcap nor the
//! kernel, and allocates nothing.

mod action;
mod libpcap;
mod program;
mod rewrite;
mod rules;
mod words;

pub use action::{Action, ActionError, MAX_CHANGES};
pub use libpcap::{CompileError, Compiler, MAX_EXPRESSION};
pub use program::{Instruction, MAX_INSTRUCTIONS, Program, Unverified};
pub use rewrite::{Change, Ecn, ParseChangeError};
pub use rules::{Counters, MAX_FILTER_PORTS, MAX_RULES, Rule, Rules, Verdict};
pub use words::{RuleError, RulePlan, RuleWords};
