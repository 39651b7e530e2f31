// SPDX-License-Identifier: GPL-2.0
//! Programs of `socket/`.

pub mod calls;
pub mod cork;
pub mod errno;
pub mod handed;
pub mod ioctl;
pub mod options;
pub mod ports;
pub mod rcvbuf;
pub mod scatter;
pub mod share;
pub mod sndbuf;
