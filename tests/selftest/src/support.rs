// SPDX-License-Identifier: GPL-2.0
//! What the programs share: system calls, patterns of bytes, results, arguments.

pub mod args;
#[allow(unsafe_code)]
pub mod calls;
pub mod checks;
pub mod pattern;
#[allow(unsafe_code)]
pub mod raw;
pub mod rx;
#[allow(unsafe_code)]
pub mod uring;
pub mod verified;
#[allow(unsafe_code)]
pub mod wild;
