// SPDX-License-Identifier: GPL-2.0
//! What `zrs bench` measures ([`Sample`], [`Carrier`], [`Measure`]) and the statistics of it: what
//! the command that measures and the program that reports have in common.
#![forbid(unsafe_code)]

mod sample;
mod stats;
mod table;

pub use sample::{Carrier, Measure, Sample};
pub use stats::{median, percentile, Interval, Samples};
pub use table::{number, size, Table};
