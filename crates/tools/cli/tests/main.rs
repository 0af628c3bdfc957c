//! All integration tests of the crate in one program, because each program links all of the crate's
//! dependencies. `cargo test -p sprat-cli --test cli NAME::` runs the tests of one file.

mod backup;
mod bench_lab;
mod breakdown;
mod browser;
mod browser_host;
mod bypass;
mod check;
mod cluster;
mod coordinators;
mod cp;
mod distribution;
mod documented;
mod golden;
mod grape;
mod input;
mod kill;
mod lab;
mod lab_ctl;
mod lab_seeing;
mod lab_up;
mod nodes;
mod partitions;
mod ping;
mod rack_bridge;
mod rack_change;
mod rack_ring;
mod rack_store;
mod rack_tune;
mod ranks;
mod secured;
mod share;
mod spread;
mod support;
mod trouble;
mod upload;
