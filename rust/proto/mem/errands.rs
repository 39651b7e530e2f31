// SPDX-License-Identifier: GPL-2.0

//! Errands: asks that nobody waits for, and that must be answered all the same. The region of a
//! descriptor that was closed is freed, and what was made for a program that is gone is undone,
//! also if the link to the node is lost just then.
//!
//! ```text
//! Due ─asked─► Asked ─answered─► gone
//!  ▲             │ the node was not reached
//!  └─RETRY_MS────┘
//! ```

use core::ops::DerefMut;

use super::id::NodeId;
use super::slab::{Slab, Slot};
use super::status::Status;
use super::wire::{MemHeader, Op};

/// Interval at which an ask that did not reach the node is made again, in milliseconds.
pub const RETRY_MS: u64 = 1000;

/// When it is given up: so long after a host was lost, its regions are gone.
pub const GIVES_UP_MS: u64 = 60_000;

/// The ask that undoes what a node has done for `ask`, whose answer nobody has waited for: a region
/// is freed, a key revoked. `None`: there is nothing to undo.
pub fn undoing(ask: &MemHeader, answer: &MemHeader) -> Option<MemHeader> {
    let undone = match ask.op {
        _ if answer.status != Status::Ok => return None,
        Some(Op::Alloc) => MemHeader {
            key: answer.key2,
            ..MemHeader::ask(0, Op::Free)
        },
        Some(Op::Key) => MemHeader {
            key: ask.key,
            key2: answer.key2,
            ..MemHeader::ask(0, Op::Unkey)
        },
        _ => return None,
    };
    Some(MemHeader {
        node: ask.node,
        ..undone
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    Due { not_before_ms: u64 },
    Asked,
}

/// An ask that nobody waits for.
pub struct Errand {
    to: NodeId,
    ask: MemHeader,
    state: State,
    gives_up_ms: u64,
}

/// All of a host.
pub struct Errands<S>(Slab<S>);

impl<S: DerefMut<Target = [Slot<Errand>]>> Errands<S> {
    /// None.
    pub fn new(slots: S) -> Self {
        Self(Slab::new(slots))
    }

    /// Errands that are not done.
    #[cfg(not(MODULE))]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    #[cfg(not(MODULE))]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether there is one that is not given up yet. One that a node does not answer stays asked,
    /// but nothing waits for it any more then.
    pub fn any(&self, now_ms: u64) -> bool {
        self.0.iter().any(|(_, e)| now_ms < e.gives_up_ms)
    }

    /// Has the host of `to` asked. False if there is no room.
    pub fn add(&mut self, to: NodeId, ask: MemHeader, now_ms: u64) -> bool {
        let errand = Errand {
            to,
            ask,
            state: State::Due { not_before_ms: 0 },
            gives_up_ms: now_ms.saturating_add(GIVES_UP_MS),
        };
        self.0.insert(errand).is_some()
    }

    /// The next one that is due: its place, whose host to ask, and for what. The caller asks, and
    /// calls [`Self::answered`].
    pub fn next_due(&mut self, now_ms: u64) -> Option<(u32, NodeId, MemHeader)> {
        let due =
            |e: &Errand| matches!(e.state, State::Due { not_before_ms } if now_ms >= not_before_ms);
        let (at, errand) = self.0.iter_mut().find(|(_, e)| due(e))?;
        errand.state = State::Asked;
        Some((at, errand.to, errand.ask))
    }

    /// The node has answered, or could not be asked.
    pub fn answered(&mut self, at: u32, status: Status, now_ms: u64) {
        let Some(errand) = self.0.get_mut(at).filter(|e| e.state == State::Asked) else {
            return;
        };
        if status.is_temporary() && now_ms < errand.gives_up_ms {
            errand.state = State::Due {
                not_before_ms: now_ms.saturating_add(RETRY_MS),
            };
            return;
        }
        self.0.remove(at);
    }
}
