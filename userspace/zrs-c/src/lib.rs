// SPDX-License-Identifier: GPL-2.0
//! libzrs, the C library: what `include/zrs/zrs.h` declares and describes, on top of the crate `zrs`.
//!
//! A panic ends the process: none leaves an `extern "C"` function.
#![deny(unsafe_code)]

mod errno;
#[allow(unsafe_code)]
pub mod ffi;
