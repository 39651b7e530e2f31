// SPDX-License-Identifier: GPL-2.0

//! How the administrator sees and steers the module: `/dev/zrs` and debugfs.

#![deny(unsafe_code)]

pub(crate) mod chardev;
pub(crate) mod debugfs;
