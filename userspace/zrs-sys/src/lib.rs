// SPDX-License-Identifier: GPL-2.0
//! The interface of the ZRS kernel module.
//!
//! [`abi`] repeats `uapi/linux/zrs.h` and is tested equal to it. The other modules are what the
//! rest of userspace needs to stay free of `unsafe`, one kind of descriptor or mapping each:
//! [`Device`] for `/dev/zrs`, [`sock`] for the socket's options and the doorbell, [`region`] for
//! regions of memory nodes, [`MemQueue`] for queued operations on them, [`Map`] for a mapping,
//! [`Ring`] for the receive ring, [`Area`] for mapped receives, [`View`] for bytes that a peer may
//! write, [`PageBuf`] for page-aligned memory, and [`keyring`] for the kernel's keyrings.

pub mod abi;
mod area;
mod device;
#[cfg(any(test, feature = "fake"))]
pub mod fake;
pub mod keyring;
mod map;
mod pages;
pub mod queue;
pub mod region;
mod ring;
pub mod signals;
pub mod sock;
mod view;

pub use area::{Area, Received};
pub use device::Device;
pub use map::Map;
pub use pages::PageBuf;
pub use queue::MemQueue;
pub use ring::{Doorbell, Held, Look, Ring};
pub use view::View;
