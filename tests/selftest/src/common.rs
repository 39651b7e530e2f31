// SPDX-License-Identifier: GPL-2.0
//! Programs that several tests use: servers, clients, connections that are held.

pub mod bystander;
pub mod fill;
pub mod hold;
pub mod lost;
pub mod oneway;
pub mod pingpong;
pub mod probe;
pub mod serve;
pub mod storm;
pub mod stream;
pub mod xfer;
