// SPDX-License-Identifier: GPL-2.0

//! Memory nodes: RAM that a host serves to other hosts, and third-party copies between such hosts.
//!
//! `Documentation/memory-nodes.rst` describes the protocol, the states and the promise that they
//! keep. Three roles meet here, and one host may have all of them:
//!
//! - the *node* serves memory: [`arena`], [`keys`] and [`node`] hold the regions, [`admission`]
//!   says who may allocate, [`server`] has the asks of a peer, [`grants`] the remote keys that a
//!   peer has been given;
//! - the *requester* uses memory: [`asks`] are its open requests on a link, [`grant_cache`] the
//!   remote keys that it was given, [`queue`] the operations of a program, [`copying`] its copies,
//!   [`directory`] where nodes are;
//! - the *source* of a copy is a node that writes into another one: [`copy`] and [`sched`].
//!
//! A *broker* allocates for other hosts, and owns what it allocates: [`broker`].
//!
//! [`wire`] and [`payload`] are the messages; [`link`] tells which message may arrive when;
//! [`text`] has the text forms of ids. The storage of every table is passed in, so nothing here
//! allocates.

pub mod admission;
pub mod arena;
pub mod asks;
pub mod broker;
pub mod copy;
pub mod copying;
pub mod directory;
pub mod errands;
pub mod grant_cache;
pub mod grants;
pub mod id;
pub mod keys;
pub mod link;
pub mod node;
pub mod payload;
pub mod queue;
pub mod rights;
pub mod room;
pub mod sched;
pub mod server;
pub mod slab;
pub mod stall;
pub mod status;
// Not in the module: nothing there calls it.
#[cfg(not(MODULE))]
pub mod text;
pub mod wire;
