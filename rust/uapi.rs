// SPDX-License-Identifier: GPL-2.0

//! The interface to programs, as the rest of the module sees it. See `uapi/linux/zrs.h`.

#![deny(unsafe_code)]

pub(crate) use crate::kern::uapi::*;
