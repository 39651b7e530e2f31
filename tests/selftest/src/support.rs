// SPDX-License-Identifier: GPL-2.0
//! What the programs share: system calls, patterns of bytes, results, arguments.

pub mod args;
#[allow(unsafe_code)]
pub mod calls;
pub mod checks;
#[allow(unsafe_code)]
pub mod fds;
pub mod pattern;
#[allow(unsafe_code)]
pub mod process;
#[allow(unsafe_code)]
pub mod raw;
pub mod rx;
#[allow(unsafe_code)]
pub mod uring;
pub mod verified;
#[allow(unsafe_code)]
pub mod wild;
