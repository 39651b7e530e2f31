// SPDX-License-Identifier: GPL-2.0

//! The connection manager's id of a link, and the search for its peer.

#![deny(unsafe_code)]

use core::net::SocketAddr;

use kernel::prelude::*;
use kernel::sync::atomic::{Atomic, Relaxed};
use kernel::sync::{new_mutex, Arc, Mutex};

use super::address::to_cm;
use super::RESERVED_PORTS;
use crate::ib::cm::CmId;
use crate::kern::errno::{EADDRINUSE, EADDRNOTAVAIL, ENOBUFS, ENOTCONN};
use crate::proto::addr::Ip;

/// Timeouts for resolving an address, in milliseconds: of the first attempt, and the longest. The
/// kernel checks for the neighbour's reply only if the request is already in its list when the
/// reply arrives, and once more when the attempt times out. A reply that arrives at once (over veth
/// it always does) is missed until the timeout. So the first attempts are short.
const RESOLVE_MS: core::ops::Range<u32> = 10..1000;

#[derive(Default)]
struct Kept {
    id: Option<Arc<CmId>>,
    /// The link has ended: an id that is made afterwards is not kept. The id and the link, which is
    /// its handler, would hold each other for ever.
    ended: bool,
}

/// The id of a link, from the link's beginning to its end. The id holds the link, its handler, and
/// the link holds the id, until [`Self::end`].
#[pin_data]
pub(crate) struct LinkId {
    #[pin]
    kept: Mutex<Kept>,
    /// Timeout of the last attempt to resolve the peer's address, in milliseconds.
    resolve_ms: Atomic<u32>,
}

impl LinkId {
    /// No id yet.
    pub(crate) fn new() -> impl PinInit<Self> {
        pin_init!(Self {
            kept <- new_mutex!(Kept::default(), "zrs_link_id"),
            resolve_ms: Atomic::new(RESOLVE_MS.start),
        })
    }

    /// The id, while there is one. Sleeps.
    pub(crate) fn get(&self) -> Option<Arc<CmId>> {
        self.kept.lock().id.clone()
    }

    /// Keeps the id until the link has ended. ENOTCONN: it has. Sleeps.
    pub(crate) fn keep(&self, id: &Arc<CmId>) -> Result {
        let mut kept = self.kept.lock();
        if kept.ended {
            return Err(ENOTCONN);
        }
        kept.id = Some(id.clone());
        Ok(())
    }

    /// Returns the id for the last time. To drop it waits for its handlers. Sleeps.
    pub(crate) fn end(&self) -> Option<Arc<CmId>> {
        let mut kept = self.kept.lock();
        kept.ended = true;
        kept.id.take()
    }

    /// Resolves the address `to` with `id`, by a privileged source port of `from`. The search for
    /// one begins `first` places behind the last port that was used. In a kernel thread, as such a
    /// port needs the kernel's privilege. Sleeps. ENOBUFS if no port is free, and the errors of
    /// [`Id::resolve_addr`].
    ///
    /// [`Id::resolve_addr`]: crate::ib::cm::Id::resolve_addr
    pub(crate) fn resolve(&self, id: &CmId, from: Ip, to: SocketAddr, first: u32) -> Result {
        static NEXT: Atomic<u32> = Atomic::new(0);

        let ports = u32::from(RESERVED_PORTS.end - RESERVED_PORTS.start);
        for _ in 0..ports {
            let n = NEXT.fetch_add(1, Relaxed).wrapping_add(first) % ports;
            let port = RESERVED_PORTS.end - 1 - n as u16;
            match id.resolve_addr(Some(to_cm(from, port)), to, RESOLVE_MS.start) {
                // If the port is in use, the core returns EADDRNOTAVAIL when the address is
                // unspecified.
                Err(e) if e == EADDRINUSE || from.is_any() && e == EADDRNOTAVAIL => continue,
                result => return result,
            }
        }
        Err(ENOBUFS)
    }

    /// Resolves the address `to` once more, with the timeout of [`Self::wait_longer`]. Sleeps.
    pub(crate) fn resolve_again(&self, id: &CmId, to: SocketAddr) -> Result {
        id.resolve_addr(None, to, self.resolve_ms.load(Relaxed))
    }

    /// An attempt to resolve the address has timed out: the next one takes twice as long.
    /// ETIMEDOUT: it was the last one.
    pub(super) fn wait_longer(&self) -> Result {
        let ms = self.resolve_ms.load(Relaxed) * 2;
        if ms > RESOLVE_MS.end {
            return Err(ETIMEDOUT);
        }
        self.resolve_ms.store(ms, Relaxed);
        Ok(())
    }
}
