// SPDX-License-Identifier: GPL-2.0

//! The administrator's view and control of the module: `/dev/zrs` and debugfs.

#![deny(unsafe_code)]

pub(crate) mod chardev;
pub(crate) mod debugfs;
mod figures;
mod keys;
mod list;
mod peers;
mod rules;
