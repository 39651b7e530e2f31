// SPDX-License-Identifier: GPL-2.0
//! Programs of `connect/`.

pub mod backlog;
pub mod ipv6;
pub mod refused;
