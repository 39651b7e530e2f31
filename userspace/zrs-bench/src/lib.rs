// SPDX-License-Identifier: GPL-2.0
//! What `zrs bench` measures ([`Sample`], [`Carrier`], [`Measure`]), the statistics of it, and the
//! machine's memory ([`Used`]): what the command that measures, the program that reports and the
//! selftests have in common.
#![forbid(unsafe_code)]

mod meminfo;
mod sample;
mod stats;
mod table;

pub use meminfo::Used;
pub use sample::{Carrier, Measure, Sample};
pub use stats::{median, percentile, Interval, Samples};
pub use table::{number, size, Table};
