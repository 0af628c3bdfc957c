//! The packet filter: rules of an expression, as tcpdump has them (pcap-filter(7)), and what to do
//! with the packets that match.
//!
//! libpcap's own compiler makes a program of an expression, so that expressions mean here what they
//! mean elsewhere; it is loaded when the first one is compiled, and not before. The program then
//! runs here, in [`Program::run`]: it was verified when it was loaded, and needs neither libpcap
//! nor the kernel, nor any allocation, on the way of a packet.

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
