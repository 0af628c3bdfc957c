//! Safe types for DPDK, which express who owns a frame, who may use a device, and what is done once
//! per process.
//!
//! All `unsafe` of the driver is here, most of it calls of the C shim in `shim/dpdk.c`.

#![allow(unsafe_code, reason = "DPDK is a C library; each block says why it is sound")]

mod bell;
mod device;
mod eal;
mod ffi;
mod frames;
mod programs;

pub(in crate::bypass) use bell::{Bell, SocketSnapshot};
pub(in crate::bypass) use device::{Device, Setup, SharedDevice};
pub(in crate::bypass) use eal::{ThreadRegistration, start};
pub(in crate::bypass) use frames::{Buffers, Burst, Draft, Parcel, Pool};
pub(in crate::bypass) use programs::program_is;
