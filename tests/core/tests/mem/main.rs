// SPDX-License-Identifier: GPL-2.0

//! Memory nodes: the parts of `rust/proto/mem`, each against a model that is as simple as the documentation. What they do
//! together is in `tests/mem_sim`.

mod arena;
mod asks;
mod broker;
mod copy;
mod copying;
mod directory;
mod errands;
mod grants;
mod ids;
mod keys;
mod link;
mod node;
mod proof;
mod queue;
mod room;
mod setup;
mod text;
mod wire;
