// SPDX-License-Identifier: GPL-2.0

//! The filter of a datagram socket (`SO_ATTACH_FILTER`, `SO_ATTACH_BPF`). The kernel attaches it to
//! the sock; our datagrams, which are no packets, are shown to it as UDP's datagrams would be.
//!
//! C: `include/linux/filter.h`, `sk_filter_trim_cap()`, `udp_queue_rcv_one_skb()`.

use super::{udp::Udp, v6, Sk};
use crate::{bindings, kern::contig::Payload};
use core::{net::SocketAddrV6, ptr::NonNull};
use kernel::{
    error::{from_err_ptr, to_result},
    ffi::c_int,
    prelude::*,
};

/// The header of UDP, which the filter sees in front of the bytes.
const HEADER: usize = 8;

/// A datagram for a filter, with the headers of IP and UDP.
///
/// # Invariants
///
/// `skb` is ours alone, its data begin at the header of UDP, and `len` bytes are behind that.
pub struct Packet {
    skb: NonNull<bindings::sk_buff>,
    len: usize,
    /// Bytes that were put there.
    put: usize,
}

impl Packet {
    /// One of `len` bytes that `sk` gets at `local` from `from`, without its bytes, for which the
    /// active memory cgroup pays. Sleeps. `ENOMEM`.
    pub fn new(sk: &Sk, local: SocketAddrV6, from: SocketAddrV6, len: usize) -> Result<Self> {
        let (local, from) = (v6::sockaddr_in6(local), v6::sockaddr_in6(from));
        let bytes = u16::try_from(len).map_err(|_| EINVAL)?;
        // SAFETY: a live sock (type invariant); both addresses are only read.
        let skb = from_err_ptr(unsafe {
            bindings::filter_packet(sk.as_ptr(), &raw const local, &raw const from, bytes)
        })?;
        // INVARIANT: made so.
        Ok(Self {
            skb: NonNull::new(skb.cast()).ok_or(ENOMEM)?,
            len,
            put: 0,
        })
    }

    /// Puts the next bytes there. `EINVAL`: they are too many.
    pub fn add(&mut self, bytes: &Payload<'_>) -> Result {
        if bytes.len() > self.len - self.put {
            return Err(EINVAL);
        }
        let from = bytes.at(0, bytes.len())?;
        let at = (HEADER + self.put) as c_int;
        let n = bytes.len() as c_int;
        // SAFETY: our packet, with `self.len` bytes behind the header (type invariant, checked
        // above); `at` is good for that length; bytes that change during the copy are as in
        // `ContigPages::read`.
        to_result(unsafe {
            bindings::skb_store_bits(self.skb.as_ptr().cast(), at, from.cast(), n)
        })?;
        self.put += bytes.len();
        Ok(())
    }

    /// How many of the bytes the filter of `sk` keeps; all, if it has none. `None`: the datagram is
    /// to be dropped.
    pub fn filter(&self, sk: &Sk) -> Option<usize> {
        // SAFETY: a live sock (type invariant); the packet is ours (type invariant).
        let keep = unsafe { bindings::filter_run(sk.as_ptr(), self.skb.as_ptr().cast()) } as usize;
        (keep != 0).then(|| keep.saturating_sub(HEADER).min(self.len))
    }
}

impl Drop for Packet {
    fn drop(&mut self) {
        // SAFETY: ours (type invariant).
        unsafe { bindings::consume_skb(self.skb.as_ptr().cast()) };
    }
}

impl Sk {
    /// Whether a filter is attached. Any context.
    pub fn has_filter(&self) -> bool {
        // SAFETY: a live sock (type invariant); one word, which is only looked at.
        !unsafe { (&raw const (*self.as_ptr()).sk_filter).read_volatile() }.is_null()
    }
}

impl Udp {
    /// It gets the filter of the sock that it is inside of. To be called once, when it is new.
    /// Sleeps.
    pub(super) fn share_filter(&self) {
        // SAFETY: both socks are live (`watches` of [`Tcp`](super::tcp::Tcp) is set), and of
        // different sockets; the inner one has no filter, as it is new.
        unsafe { bindings::filter_share(self.outer_sk(), self.sk()) };
    }
}
