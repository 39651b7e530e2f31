// SPDX-License-Identifier: GPL-2.0
//! The transports that ZRS is compared with and that std has not: rsockets, from librdmacm, which
//! is loaded when it is used, so that neither building nor the other commands need it.

mod api;
mod rsocket;

pub use rsocket::{RListener, RStream};
