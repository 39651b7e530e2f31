// SPDX-License-Identifier: GPL-2.0

//! Memory nodes: RAM that hosts serve to each other, and copies between them.
//! `Documentation/memory-nodes.rst` has the protocol; the decisions are in `proto/mem`.
//!
//! `context`: directories and hosts. `host`: the state of a host, under one lock. `link`: the life
//! of a memory link. `cm`: the events of the connection manager. `side`, `receive`: messages of a
//! link. `proof`: the proof of a shared key. `grants`: remote keys that this host was given.
//! `server`: asks of peers. `remote_keys`: remote keys for peers. `cancel`: abandoned operations.
//! `broker`: regions that are allocated for peers. `copy`: copies that this host makes as their
//! source. `copying`: copies that programs of this host ask for. `node`: the memory that is served.
//! `region`, `rw`: regions as files. `queue`, `operation`: queued operations of programs.
//! `asynchronous`: calls of `io_uring` and libaio. `admin`: calls on `/dev/zrs`. `counts`:
//! counters.
//!
//! Nothing is shared with sockets and their links but the devices, the checks of a peer and of
//! its key, and the module's counters.

#![deny(unsafe_code)]

pub(crate) mod admin;
mod asynchronous;
mod broker;
mod cancel;
mod cm;
pub(crate) mod context;
mod copy;
mod copying;
mod counts;
mod grants;
mod host;
mod link;
mod node;
mod operation;
mod proof;
mod queue;
mod receive;
mod region;
mod remote_keys;
mod rw;
mod server;
mod side;
