// SPDX-License-Identifier: GPL-2.0
//! Programs of `events/`.

pub mod busypoll;
pub mod epoll;
pub mod poll;
pub mod ringspin;
pub mod ringwait;
pub mod states;
pub mod wakes;
