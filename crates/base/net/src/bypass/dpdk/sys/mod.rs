//! DPDK behind safe types: who owns a frame, who may use a device, what is done once a process.
//!
//! All `unsafe` of the driver is here, most of it calls of the C side in `shim/dpdk.c`.

#![allow(unsafe_code, reason = "DPDK is a C library; each block says why it is sound")]

mod bell;
mod device;
mod eal;
mod ffi;
mod frames;
mod programs;

pub(in crate::bypass) use bell::{Before, Bell};
pub(in crate::bypass) use device::{Device, Joint, Setup};
pub(in crate::bypass) use eal::{Seat, start};
pub(in crate::bypass) use frames::{Buffers, Burst, Draft, Parcel, Pool};
pub(in crate::bypass) use programs::program_is;
