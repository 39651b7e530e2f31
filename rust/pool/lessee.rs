// SPDX-License-Identifier: GPL-2.0

//! Traits that the users of a pool's memory implement. Pools use them as trait objects: nothing in
//! this folder knows links, channels or sockets.

#![deny(unsafe_code)]

use kernel::sync::Arc;
use kernel::time::Jiffies;

use super::lease::Requester;
use super::receives::Receives;
use super::window::{Window, WindowUse};
use crate::kern::net::Net;
use crate::proto::ChanId;

/// A user that holds a window, or waits for one. The methods take the lessee's locks, and may take
/// its link's; methods that sleep say so.
pub(crate) trait Lessee: Send + Sync {
    /// Whether it is in this network namespace. Takes no lock.
    fn is_in(&self, net: &Net) -> bool;

    /// The size of the largest window that it may have, in bytes.
    fn max_window(&self) -> usize;

    /// Whether it has a channel and no window at all, not even a revoked one that is not returned
    /// to the pool yet.
    fn lacks_window(&self) -> bool;

    /// Whether it has unread data in a window that the peer has given back, and none of that was
    /// moved.
    fn reads_window(&self) -> bool;

    /// Whether data that was moved out of a window is still unread.
    fn has_moved(&self) -> bool;

    /// Takes `window`; `terms` are its size, address and key, for the peer. False if the lessee has
    /// a window already, or no use for one. Sleeps.
    fn take_window(
        self: Arc<Self>,
        window: &Arc<Window>,
        terms: (u32, u64, u32),
        requester: Requester,
    ) -> bool;

    /// The request of `requester`, which waited, is answered. Sleeps.
    fn window_answered(self: Arc<Self>, granted: bool, requester: Requester);

    /// Gives its window back if nothing can come into it and nothing in it is unread.
    fn try_release_window(&self);

    /// Asks the peer to give `window` back. With `idle`, does so only if nothing was written into
    /// it for that many jiffies and it holds no unread data. Returns whether the peer was asked
    /// now. Sleeps.
    fn revoke_window(self: Arc<Self>, window: &Arc<Window>, idle: Option<Jiffies>) -> bool;

    /// Moves one message that arrived before `before`, in nanoseconds of the monotonic clock, to
    /// main memory. False if there is none, or no memory. Sleeps.
    fn escape(self: Arc<Self>, before: u64) -> bool;

    /// Takes mapped pages back that the program no longer uses. Returns whether there were any, and
    /// whether more are still mapped. Sleeps.
    fn reclaim_mapped(self: Arc<Self>) -> (bool, bool);
}

/// Whether both are the same object.
pub(crate) fn same(a: &Arc<dyn Lessee>, b: &Arc<dyn Lessee>) -> bool {
    core::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}

/// Finds lessees by their channels.
pub(crate) trait Directory: Send + Sync {
    /// The lessee whose channel is `user`. Any context.
    fn lessee(&self, user: ChanId) -> Option<Arc<dyn Lessee>>;
}

/// The links on all devices.
pub(crate) trait DeviceLinks: Send + Sync {
    /// Ends the links whose shared receive queue has failed.
    fn end_failed_links(&self);
}

/// A link whose peer has the remote key of a window.
pub(crate) trait KeyHolder: Send + Sync {
    /// Ends the link, as the key cannot be taken from the peer; `why` is for the log. Does not
    /// sleep.
    fn key_stays(self: Arc<Self>, why: &'static str);

    /// Makes the key invalid, and calls [`WindowUse::invalidated`] if that has succeeded. `key` is
    /// dropped then, or when the link is down, or at once without memory. Does not sleep, and takes
    /// no lock but the link's.
    fn invalidate(self: Arc<Self>, key: WindowUse);
}

/// A user whose peer's messages fill blocks of a receive queue.
pub(crate) trait BlockUser: Send + Sync {
    /// One more of its blocks holds unread data. Any context.
    fn block_held(&self);

    /// One of its blocks was posted again. Takes the user's locks.
    fn block_released(self: Arc<Self>, rx: &Receives);
}
