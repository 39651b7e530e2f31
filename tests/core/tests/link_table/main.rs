// SPDX-License-Identifier: GPL-2.0

//! The link table: against a map, with real channels in it, in all orders in which its parties can
//! run, and with the traffic of many hosts.

mod channels;
mod examples;
mod kept;
mod model;
mod regs;
mod schedules;
mod word;
mod zipf;
