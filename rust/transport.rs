// SPDX-License-Identifier: GPL-2.0

//! Links: queue pairs between hosts, and what travels on them.
//!
//! `device` knows the RDMA devices, `pool` their receive memory, which lies in one `extent` or more, `cache` what the
//! pools may use together and what leaves them, `reserve` what main memory is promised for that, `lease` who has a
//! `window` of it, `link` the life of a queue pair, `beat` whether its peer is still there, `cm` what the connection
//! manager says of it, `turn` whose turn it is to send, `transmit` posts, `receive` takes completions.
//! Nothing here knows what a program is: it serves `socket`.

#![deny(unsafe_code)]

pub(crate) mod cache;
pub(crate) mod cm;
pub(crate) mod device;
pub(crate) mod extent;
pub(crate) mod keepalive;
pub(crate) mod lease;
pub(crate) mod link;
pub(crate) mod pool;
pub(crate) mod reserve;
mod rx;
pub(crate) mod sched;
pub(crate) mod tx;
pub(crate) mod window;
