// SPDX-License-Identifier: GPL-2.0

//! Safe wrappers of kernel interfaces that the kernel crate does not have (yet).
//!
//! One of the two rooms where raw bindings and unsafe code live (the other is `rust/ib`). One file
//! for one thing, in the shape that the kernel crate would give it; no policy of ZRS in here.
//! Nothing here knows the socket, link or pool code: they come in as generic parameters.

#![allow(unreachable_pub)]

pub mod anonfile;
pub mod area;
pub mod barrier;
pub mod chardev;
pub mod contig;
pub mod cpu;
pub mod errno;
pub mod fault;
pub mod folios;
pub mod keys;
pub mod layout;
pub mod lockdep;
pub mod memcg;
pub mod module;
pub mod net;
pub mod param;
pub mod percpu;
pub mod pernet;
pub mod pin;
pub mod regfile;
pub mod shared;
pub mod sock;
pub mod sysctl;
pub mod task;
pub mod timer;
pub mod trace;
pub mod uapi;
pub mod vma;
pub mod wait;
pub mod work;
