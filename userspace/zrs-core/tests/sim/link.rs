// SPDX-License-Identifier: GPL-2.0

//! A link: a queue pair's two pipes, in order and without loss until it fails, and each side's
//! transmit worker.

use std::collections::VecDeque;

use zrs_core::link_flow::LinkFlow;
use zrs_core::wire::{Header, HEADER_LEN};

use crate::world::SockId;

/// Where payload comes from: a stream's key and a position in it.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    pub key: u64,
    pub pos: u64,
    pub len: u32,
}

/// A work request under way.
#[derive(Debug)]
pub enum Item {
    Write {
        addr: u64,
        key: u32,
        from: Source,
    },
    Send {
        header: [u8; HEADER_LEN],
        payload: Option<Source>,
    },
}

/// One host's end of a link.
pub struct Side {
    pub flow: LinkFlow,
    /// Channels that have something to say.
    pub pending: VecDeque<SockId>,
    /// Answers to messages for channels that do not exist.
    pub answers: VecDeque<Header>,
    /// Channels whose sender found the link without room.
    pub starved: VecDeque<SockId>,
    /// Blocks of the shared receive queue: posted now, and in all.
    pub posted: u32,
    pub blocks: u32,
    /// The transmit worker is going to run.
    pub scheduled: bool,
    /// This host has not heard of the link's failure.
    pub alive: bool,
    /// LinkCredits sent since anything else was, on an idle link.
    pub lone: u32,
}

pub struct Link {
    pub side: [Side; 2],
    /// What is under way to each side, and when it arrives.
    pub pipe: [VecDeque<(u64, Item)>; 2],
    pub last_arrival: [u64; 2],
    pub delay: u64,
    pub up: bool,
}

impl Link {
    pub fn new(credit: [u32; 2], delay: u64) -> Self {
        let side = |ours: usize| Side {
            flow: LinkFlow::new(credit[ours], credit[1 - ours]).expect("sane credit"),
            pending: VecDeque::new(),
            answers: VecDeque::new(),
            starved: VecDeque::new(),
            posted: credit[ours],
            blocks: credit[ours],
            scheduled: false,
            alive: true,
            lone: 0,
        };
        Self {
            side: [side(0), side(1)],
            pipe: [VecDeque::new(), VecDeque::new()],
            last_arrival: [0; 2],
            delay,
            up: true,
        }
    }
}
