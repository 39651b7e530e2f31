// SPDX-License-Identifier: GPL-2.0
//! libzrs, the C library: the functions of `include/zrs/zrs.h`, on top of the crate `zrs`.
//!
//! A panic ends the process: none leaves an `extern "C"` function.
#![deny(unsafe_code)]

mod errno;
#[allow(unsafe_code)]
pub mod ffi;
