// SPDX-License-Identifier: GPL-2.0

//! A link: a queue pair's two pipes, in order and without loss until it fails, and what each
//! host has of it: transmit slots, completions, blocks.

use std::collections::VecDeque;

use zrs_core::control_reserve::ControlReserve;
use zrs_core::link_flow::LinkFlow;
use zrs_core::wire::{Header, HEADER_LEN};

use crate::config::Config;
use crate::world::SockId;
use common::Rng;

/// Slots for messages in flight that data leaves to control messages, as in the module.
pub const CONTROL_SLOTS: usize = 8;

/// Where payload comes from: a stream's key and a position in it.
#[derive(Clone, Copy, Debug)]
pub struct Source {
    pub key: u64,
    pub pos: u64,
    pub len: u32,
}

/// A work request in flight.
#[derive(Debug)]
pub enum Item {
    Write { addr: u64, key: u32, from: Source },
    Send(Message),
}

/// A message in a block of the receiver.
#[derive(Debug)]
pub struct Message {
    pub header: [u8; HEADER_LEN],
    pub payload: Option<Source>,
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
    /// Blocks of the shared receive queue: posted now, and in all. An adversary that sends more
    /// than it may takes those of others.
    pub posted: i64,
    pub blocks: u32,
    /// SENDs that the peer has been told of, counted without wrapping, that could be told, and that
    /// were taken.
    pub told: u64,
    pub room: u64,
    pub taken: u64,
    /// Messages that may still be posted before one completes, and in all.
    pub slots_free: usize,
    pub slots: usize,
    /// Whether each message in flight is a control message; the slots that they have.
    pub in_flight: VecDeque<bool>,
    pub control_slots: ControlReserve,
    /// Arrived and not processed.
    pub cq: VecDeque<Message>,
    /// The worker that looks is going to run.
    pub draining: bool,
    /// The transmit worker is going to run.
    pub scheduled: bool,
    /// This host was not notified of the link's failure.
    pub alive: bool,
    /// This host has died since.
    pub died: bool,
    /// The peer has broken the protocol: nothing more of it is taken.
    pub distrusted: bool,
    /// LinkCredits sent since anything else was, on an idle link.
    pub lone: u32,
}

impl Side {
    fn new(ours: u32, theirs: u32, at: u32, slots: usize) -> Self {
        Self {
            flow: LinkFlow::starting_at(ours, theirs, at).expect("sane credit"),
            pending: VecDeque::new(),
            answers: VecDeque::new(),
            starved: VecDeque::new(),
            posted: i64::from(ours),
            blocks: ours,
            told: u64::from(ours),
            room: u64::from(ours),
            taken: 0,
            slots_free: slots,
            slots,
            in_flight: VecDeque::new(),
            control_slots: ControlReserve::new(CONTROL_SLOTS as u32),
            cq: VecDeque::new(),
            draining: false,
            scheduled: false,
            alive: true,
            died: false,
            distrusted: false,
            lone: 0,
        }
    }

    /// Whether a data message may be posted.
    pub fn has_room(&self) -> bool {
        self.slots_free > self.control_slots.kept() as usize && self.flow.available(false) > 0
    }

    /// Whether a control message may be posted.
    pub fn may_talk(&self) -> bool {
        self.slots_free > 0 && self.flow.available(true) > 0
    }

    /// Whether a lone LinkCredit is due and may be posted.
    pub fn credit_due(&self) -> bool {
        self.slots_free > 0 && self.flow.credit_due()
    }
}

pub struct Link {
    pub side: [Side; 2],
    /// Items in flight to each side, with their arrival times.
    pub pipe: [VecDeque<(u64, Item)>; 2],
    pub last_arrival: [u64; 2],
    pub delay: u64,
    pub up: bool,
    /// It has carried something, or could have.
    pub was_up: bool,
    /// The side that an adversary has.
    pub hostile: Option<usize>,
}

impl Link {
    /// A link as the configuration has them, at any delay; its counts begin anywhere.
    pub fn new(cfg: &Config, rng: &mut Rng) -> Self {
        let delay = rng.below(cfg.net_delay + 1);
        let at = rng.pick(&[0, 0_u32.wrapping_sub(100), (1 << 31) - 100]);
        let credit = cfg.link_credit;
        let side = |s: usize| Side::new(credit[s], credit[1 - s], at, cfg.tx_slots);
        Self {
            side: [0, 1].map(side),
            pipe: [VecDeque::new(), VecDeque::new()],
            last_arrival: [0; 2],
            delay,
            up: true,
            was_up: true,
            hostile: None,
        }
    }
}
