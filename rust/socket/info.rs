// SPDX-License-Identifier: GPL-2.0

//! What a socket tells of itself: options, ioctls and `struct zrs_info`.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::uaccess::{UserPtr, UserSlice};

use super::Sock;
use crate::kern::errno::*;
use crate::kern::sock::opt::{OptIn, OptOut};
use crate::proto::addr::Ip;
use crate::proto::channel::{Channel, State};
use crate::proto::readiness::Phase;
use crate::uapi;

/// TCP options that programs set out of habit; they change nothing here and are accepted so that
/// programs written for TCP work. Level IPPROTO_TCP, option TCP_NODELAY: nothing is ever delayed.
const SOL_TCP: i32 = 6;
const TCP_NODELAY: i32 = 1;

/// Whether a socket of AF_INET6 is for IPv6 alone.
const SOL_IPV6: i32 = 41;
const IPV6_V6ONLY: i32 = 26;

/// FIONREAD and SIOCOUTQ (TIOCOUTQ), as <asm-generic/ioctls.h> has them.
const FIONREAD: u32 = 0x541b;
const SIOCOUTQ: u32 = 0x5411;

impl Sock {
    /// setsockopt() above SOL_SOCKET.
    pub(super) fn set_option(this: &Arc<Self>, level: i32, name: i32, val: OptIn<'_>) -> Result {
        match (level, name) {
            (uapi::SOL_ZRS, uapi::ZRS_RX_RING) => {
                let ring: uapi::zrs_rx_ring = val.read()?;
                let zero = ring.escape_offset == 0 && ring.escape_bytes == 0;
                if ring.flags & !uapi::ZRS_RX_RING_ESCAPE != 0 || !zero {
                    return Err(EINVAL);
                }
                Sock::make_ring(this, ring.flags)
            }
            (SOL_TCP, TCP_NODELAY) => val.read::<i32>().map(|_| ()),
            (SOL_IPV6, IPV6_V6ONLY) if this.v6 => this.set_v6only(val.read::<i32>()? != 0),
            _ => Err(ENOPROTOOPT()),
        }
    }

    /// IPV6_V6ONLY. EINVAL once the socket has a port.
    fn set_v6only(&self, on: bool) -> Result {
        let _config = self.config.lock();
        if self.inner.lock().binding.is_some() {
            return Err(EINVAL);
        }
        self.sk().ok_or(EINVAL)?.set_v6only(on);
        Ok(())
    }

    /// getsockopt() above SOL_SOCKET.
    pub(super) fn get_option(
        this: &Arc<Self>,
        level: i32,
        name: i32,
        mut out: OptOut<'_>,
    ) -> Result {
        match (level, name) {
            (uapi::SOL_ZRS, uapi::ZRS_RX_RING) => out.write(&this.ring_layout()?),
            (uapi::SOL_ZRS, uapi::ZRS_INFO) => {
                if this.reap() {
                    Sock::talk(this);
                }
                out.write(&this.info())
            }
            (SOL_TCP, TCP_NODELAY) => out.write(&1_i32),
            (SOL_IPV6, IPV6_V6ONLY) if this.v6 => {
                let on = this.sk().is_some_and(|sk| sk.is_v6only());
                out.write(&i32::from(on))
            }
            _ => Err(ENOPROTOOPT()),
        }
    }

    /// ioctl() on the socket.
    pub(super) fn ioctl(this: &Arc<Self>, cmd: u32, arg: usize, nonblock: bool) -> Result<i32> {
        match cmd {
            uapi::ZRS_IOC_DOORBELL => {
                Sock::doorbell(this);
                Ok(0)
            }
            uapi::ZRS_IOC_RING_WAIT => {
                let ptr = UserPtr::from_addr(arg);
                let mut reader = UserSlice::new(ptr, size_of::<uapi::zrs_ioc_ring_wait>()).reader();
                Sock::await_ring(this, &reader.read()?)?;
                Ok(0)
            }
            uapi::ZRS_IOC_RECV_MAP => Sock::recv_map_user(this, arg, nonblock),
            FIONREAD => {
                let bytes = this.inner.lock().rx.bytes();
                put_int(arg, bytes)
            }
            SIOCOUTQ => {
                let bytes = this.tx_in_flight();
                put_int(arg, bytes)
            }
            _ => Err(ENOIOCTLCMD),
        }
    }

    /// Bytes that were posted and that the peer has not acknowledged. Takes the link's lock and the
    /// socket's.
    fn tx_in_flight(&self) -> u64 {
        let (bytes, seq, link) = {
            let inner = self.inner.lock();
            // Without a link the channel has ended, and only pages may still be under way.
            let posted = match inner.link {
                Some(_) => inner.tx_posted,
                None => inner.tx_pinned,
            };
            let bytes = posted.saturating_sub(inner.tx_done);
            (bytes, inner.tx_seq, inner.link.clone())
        };
        match link {
            Some(link) if bytes > 0 && link.done_with(seq) => 0,
            _ => bytes,
        }
    }

    /// `struct zrs_info`. Takes the link's lock and the socket's.
    pub(crate) fn info(&self) -> uapi::zrs_info {
        let sk = self.sk();
        let tx_queued = self.tx_in_flight();
        let inner = self.inner.lock();
        let of_channel = |c: &mut Channel| {
            let live = c.state() != State::Closed;
            let q = if live { c.local().q } else { 0 };
            (q, c.window_size(), c.peer_window_size())
        };
        let (channel, window, peer_window) = inner.chan.with(of_channel).unwrap_or_default();
        uapi::zrs_info {
            state: state_of(&inner),
            channel,
            local_addr: be32(inner.local.ip),
            remote_addr: be32(inner.remote.ip),
            local_port: inner.local.port.to_be(),
            remote_port: inner.remote.port.to_be(),
            uid: sk.as_ref().map_or(0, |sk| sk.uid()),
            inode: sk.as_ref().map_or(0, |sk| sk.ino()),
            tx_bytes: self.counters.tx_bytes.get(),
            rx_bytes: self.counters.rx_bytes.get(),
            tx_copied: self.counters.tx_copied.get(),
            rx_copied: self.counters.rx_copied.get(),
            tx_queued,
            rx_queued: inner.rx.bytes(),
            window: u64::from(window.unwrap_or(0)),
            peer_window: u64::from(peer_window.unwrap_or(0)),
            backlog: inner.queue.len() as u32,
            error: sk
                .as_ref()
                .and_then(|sk| sk.err())
                .map_or(0, |e| e.to_errno().unsigned_abs()),
            reserved: [0; 4],
            local_addr6: inner.local.ip.octets(),
            remote_addr6: inner.remote.ip.octets(),
            family: if self.v6 {
                uapi::AF_INET6
            } else {
                uapi::AF_INET
            },
            local_scope_id: inner.local.ip.scope(),
            remote_scope_id: inner.remote.ip.scope(),
            reserved1: 0,
        }
    }
}

/// Gives the program an `int`.
fn put_int(arg: usize, value: u64) -> Result<i32> {
    let value = i32::try_from(value).unwrap_or(i32::MAX);
    UserSlice::new(UserPtr::from_addr(arg), size_of::<i32>())
        .writer()
        .write(&value)?;
    Ok(0)
}

/// An address as `struct sockaddr_in` has it; 0 if it is not one of IPv4.
pub(crate) fn be32(ip: Ip) -> u32 {
    ip.v4().map_or(0, |v4| u32::from_ne_bytes(v4.octets()))
}

fn state_of(inner: &super::Inner) -> u32 {
    match inner.phase {
        Phase::Fresh if inner.binding.is_some() => uapi::ZRS_STATE_BOUND,
        Phase::Fresh | Phase::Failed => uapi::ZRS_STATE_CLOSED,
        Phase::Listening { .. } => uapi::ZRS_STATE_LISTEN,
        Phase::Connecting => uapi::ZRS_STATE_CONNECTING,
        Phase::Connected => {
            let state = inner.chan.with(|c| match c.state() {
                State::Closed => uapi::ZRS_STATE_CLOSED,
                _ if c.read_ended() || c.write_ended() => uapi::ZRS_STATE_CLOSING,
                _ => uapi::ZRS_STATE_ESTABLISHED,
            });
            state.unwrap_or(uapi::ZRS_STATE_ESTABLISHED)
        }
    }
}
