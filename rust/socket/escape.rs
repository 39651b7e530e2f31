// SPDX-License-Identifier: GPL-2.0

//! Escape: data that the program has not read for long is moved from the receive pool to main
//! memory. The bytes are copied without a lock. If recv() or the program begins to read the
//! original in the meantime, the copy is thrown away.

#![deny(unsafe_code)]

use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;
use kernel::sync::Arc;

use super::recv::release_held;
use super::{Inner, Sock};
use crate::kern::task::now_ns;
use crate::kern::trace::{self, EscapedFrom};
use crate::pool::cache::Copied;
use crate::pool::reserve::Reserved;
use crate::pool::window::{Reading, Window};
use crate::pool::Held;
use crate::proto::rx_queue::ToMove;
use crate::stats::STATS;

/// The promise of main memory for data that was moved out of a window. It is the window's own
/// promise while the window exists.
pub(super) enum Promise {
    #[expect(dead_code, reason = "held for as long as it is needed")]
    Window(Arc<Reserved>),
    #[expect(dead_code, reason = "as above")]
    Moved(Reserved),
}

impl Inner {
    /// Gives the peer the room of the data that was moved out of `window`, as far as the window may
    /// be filled once more.
    fn give_room(&mut self, window: &Window) {
        self.promise = Some(Promise::Window(window.promise()));
        let room = self.rx.give(window.bytes() as u64);
        self.conn.chan.with(|c| c.moved(room));
    }
}

impl Sock {
    /// Moves one message to main memory: the oldest movable one that arrived before `before`, in
    /// nanoseconds of the monotonic clock. If `window` is false, messages in the window are left
    /// out. Returns false if there was none, if it was being read, or without memory. Sleeps.
    pub(super) fn escape_one(self: &Arc<Self>, before: u64, window: bool) -> bool {
        let (what, window) = {
            let mut inner = self.inner.lock();
            let inner = &mut *inner;
            let block = |held: &Held| matches!(held, Held::Block(_));
            match inner.rx.next_to_move(&inner.ring, before, window, block) {
                Some(what) => (what, inner.window.as_ref().map(Reading::new)),
                None => return false,
            }
        };
        let (Some(off), Some(window)) = (what.window_off, window) else {
            return self.move_block(&what);
        };
        let moved = match what.to_area {
            true => self.move_to_area(&what, &window, off),
            false => self.move_to_memory(&what, &window, off),
        };
        if moved {
            self.send_pending();
            window.emptied();
            let of = if what.to_area {
                EscapedFrom::Ring
            } else {
                EscapedFrom::Window
            };
            self.trace_escape(what.len, Some(what.born), of);
        }
        moved
    }

    /// Once the connection's link is gone, moves its unread data out of blocks of the shared
    /// receive queue to main memory. Data that a thread is just copying stays. Sleeps.
    pub(crate) fn vacate_blocks(self: &Arc<Self>) {
        while self.link().is_none() && self.escape_one(u64::MAX, false) {}
    }

    /// Traces that a message of `len` bytes has left the pool. It arrived at `born`, or just now if
    /// that is `None`. Takes the socket's lock.
    pub(crate) fn trace_escape(&self, len: u32, born: Option<u64>, of: EscapedFrom) {
        trace::escape(|| {
            let age = born.map_or(0, |born| now_ns().saturating_sub(born) / 1000);
            (self.ends(), len, of, age)
        });
    }

    /// Moves a message from the window to a copy that recv() reads.
    fn move_to_memory(&self, what: &ToMove, window: &Arc<Window>, off: u32) -> bool {
        let bytes = self.promised(|flags| {
            let payload = window.payload(off as usize, what.len as usize)?;
            payload.copy_to_vec(flags)
        });
        let Ok(bytes) = bytes else {
            window.cache().counts.failures.add(1);
            return false;
        };
        let copy = Held::Copy(Copied::new(bytes, window.cache().clone()));
        let result = {
            let mut inner = self.inner.lock();
            let inner = &mut *inner;
            // The owner of the receive lock may be reading in the window.
            match inner.rx_locked {
                true => Err(copy),
                false => inner.rx.move_held(&inner.ring, what, copy).inspect(|_| {
                    inner.give_room(window);
                }),
            }
        };
        has_moved(what, Some((window, off)), result)
    }

    /// Moves a message from the window to the escape area of the ring.
    fn move_to_area(&self, what: &ToMove, window: &Arc<Window>, off: u32) -> bool {
        let (ring, at) = {
            let mut inner = self.inner.lock();
            let inner = &mut *inner;
            let Some(ring) = inner.ring.clone() else {
                return false;
            };
            match inner.escape_area.alloc(what.len) {
                Some(at) => (ring, at),
                None => return false,
            }
        };
        let copied = window
            .payload(off as usize, what.len as usize)
            .and_then(|payload| ring.write_area(at, &payload));
        {
            let mut inner = self.inner.lock();
            let inner = &mut *inner;
            let moved =
                copied.is_ok() && !inner.rx_locked && inner.rx.move_to_area(&inner.ring, what, at);
            if !moved {
                inner.escape_area.undo(at);
                return false;
            }
            ring.holds(what.len);
            inner.give_room(window);
        }
        window.left(off, what.len, what.born);
        window.cache().counts.escapes.add(1);
        true
    }

    /// Moves a message out of a block of the shared receive queue.
    fn move_block(&self, what: &ToMove) -> bool {
        let room = self.promised(|flags| Ok(KVVec::from_elem(0_u8, what.len as usize, flags)?));
        let Ok(room) = room else { return false };
        let result = {
            let mut inner = self.inner.lock();
            let inner = &mut *inner;
            let held = inner
                .rx
                .get_mut(what.index)
                .and_then(|seg| seg.held.as_mut());
            // Copied under the lock, as it is a page at most: a reader takes the block out of the
            // queue only under this lock.
            let copy = match held {
                Some(Held::Block(block)) => block.copy(room),
                _ => Err(EAGAIN),
            };
            match copy {
                Ok(copy) => {
                    let copy = Held::Copy(copy);
                    inner.rx.move_held(&inner.ring, what, copy)
                }
                Err(_) => return false,
            }
        };
        let moved = has_moved(what, None, result);
        if moved {
            STATS.rx_spilled.add(u64::from(what.len));
            self.trace_escape(what.len, Some(what.born), EscapedFrom::Block);
        }
        moved
    }
}

/// Releases the former holder of the bytes, and counts the move.
fn has_moved(
    what: &ToMove,
    window: Option<(&Arc<Window>, u32)>,
    result: core::result::Result<Option<Held>, Held>,
) -> bool {
    let Ok(before) = result else { return false };
    if let Some((window, off)) = window {
        window.left(off, what.len, what.born);
        window.cache().counts.escapes.add(1);
    } else if let Some(Held::Block(block)) = &before {
        block.cache().counts.escapes.add(1);
    }
    release_held(before);
    true
}
