// SPDX-License-Identifier: GPL-2.0

//! Links: queue pairs between hosts, and what travels on them.
//!
//! `context`: the state that all links share. `conn`: a connection, as the transport sees it.
//! `conn_table`: the channels of the host. `links`: the groups of links to a peer. `peers`: the
//! hosts that may have links. `net_table`: lists of network namespaces. `timers`: the
//! deadlines of channels. `link`: the life of a queue pair. `keepalive`: whether the peer is alive.
//! `cm`: the events of the connection manager. `dgram`: datagrams. `sched`: which channel may send
//! next. `tx`: posts messages. `rx`: takes completions. Receive memory is in `pool/`.

#![deny(unsafe_code)]

mod backlog;
pub(crate) mod cm;
pub(crate) mod conn;
pub(crate) mod conn_table;
pub(crate) mod connects;
pub(crate) mod context;
pub(crate) mod dgram;
pub(crate) mod keepalive;
pub(crate) mod keys;
pub(crate) mod link;
pub(crate) mod links;
pub(crate) mod net_counts;
pub(crate) mod net_table;
pub(crate) mod peers;
pub(crate) mod pins;
mod proof;
mod rx;
pub(crate) mod sched;
mod timers;
pub(crate) mod tx;
