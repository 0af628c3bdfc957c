//! A report in one HTML file: machine, goals, tables, and drawings of the distributions.

pub mod html;
pub mod svg;

pub use html::Report;
