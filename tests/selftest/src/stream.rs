// SPDX-License-Identifier: GPL-2.0
//! Programs of `stream/`.

pub mod contents;
pub mod fullwindow;
pub mod hoard;
pub mod isolation;
pub mod mapped;
pub mod requests;
pub mod ringsmall;
pub mod splice;
pub mod windows;
pub mod zerocopy;
