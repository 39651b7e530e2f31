// SPDX-License-Identifier: GPL-2.0
//! The BPF program that makes the sockets of chosen control groups ZRS sockets.
//!
//! The kernel calls `update_socket_protocol()` in socket(2) with the arguments of the call, and lets
//! BPF programs of type `BPF_MODIFY_RETURN` replace its result. The program does that for stream
//! sockets of tasks in a control group that a map has, or below one: they become ZRS sockets that
//! also use TCP. Program, link and map are
//! pinned below [`DIR`], so that they stay when the process that loaded them is gone.
//!
//! [`btf`] finds the function in the kernel's type information, [`insn`] writes instructions,
//! [`program`] is the program, and [`Pinned`] the pinned map.

pub mod btf;
pub mod insn;
mod pinned;
pub mod program;
mod sys;

pub use pinned::{Loaded, Pinned, DIR, MOST};
