// SPDX-License-Identifier: GPL-2.0
//! Programs of `links/`.

pub mod patience;
