// SPDX-License-Identifier: GPL-2.0

//! setsockopt() and getsockopt() above SOL_SOCKET, except for those in `kern/sock/ip.rs`.
//!
//! Options of level IPPROTO_TCP are stored so that they can be read back. Those that set a time
//! take effect in `user_timeout.rs`. TCP_CORK takes effect in `cork.rs`; setting TCP_NODELAY sends
//! corked bytes. No other option has an effect.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::{Arc, UniqueArc};

use super::{Asked, Sock};
use crate::kern::errno::{ENOPROTOOPT, EOPNOTSUPP};
use crate::kern::memcg::CHARGED;
use crate::kern::sock::opt::{OptIn, OptOut};
use crate::kern::sock::Call;
use crate::proto::channel::State;
use crate::proto::options::{
    OptionError, Options, SOL_IP, SOL_IPV6, SOL_TCP, TCP_CORK, TCP_KEEPCNT, TCP_KEEPIDLE,
    TCP_KEEPINTVL, TCP_MAXSEG, TCP_NODELAY, TCP_USER_TIMEOUT,
};
use crate::proto::readiness::Phase;
use crate::proto::tcp_info::{self, TcpInfo};
use crate::uapi;

/// Whether a socket of AF_INET6 is for IPv6 alone.
const IPV6_V6ONLY: i32 = 26;
const TCP_INFO: i32 = 11;
/// A connect that brings data with it: refused as TCP does where it is switched off.
const TCP_FASTOPEN_CONNECT: i32 = 30;

impl Asked {
    /// Option `name` of level IPPROTO_TCP; 0 if there is none of that number.
    fn option(&self, name: i32) -> i32 {
        let value = match &self.options {
            Some(options) => options.get(name),
            None => Options::default().get(name),
        };
        value.unwrap_or(0)
    }
}

/// Whether error `e` says that TCP may have an option which ZRS does not have.
fn is_foreign(level: i32, e: Error) -> bool {
    match level {
        SOL_TCP => e == ENOPROTOOPT || e == EOPNOTSUPP,
        SOL_IP | SOL_IPV6 => e == ENOPROTOOPT,
        _ => false,
    }
}

impl Sock {
    /// setsockopt() above SOL_SOCKET.
    pub(super) fn set_option(
        self: &Arc<Self>,
        level: i32,
        name: i32,
        val: OptIn<'_>,
        call: &Call<'_>,
    ) -> Result {
        match self.set_own_option(level, name, &val, call) {
            Err(e) if is_foreign(level, e) => {
                return self.set_foreign_option(level, name, &val, call, e);
            }
            done => done?,
        }
        match self.tcp() {
            Some(tcp) if level != uapi::SOL_ZRS => tcp.set_option(level, name, &val),
            _ => Ok(()),
        }
    }

    fn set_own_option(
        self: &Arc<Self>,
        level: i32,
        name: i32,
        val: &OptIn<'_>,
        call: &Call<'_>,
    ) -> Result {
        match (level, name) {
            (uapi::SOL_ZRS, uapi::ZRS_RX_RING) => {
                let ring: uapi::zrs_rx_ring = val.read()?;
                let zero = ring.escape_offset == 0 && ring.escape_bytes == 0;
                let known = uapi::ZRS_RX_RING_ESCAPE | uapi::ZRS_RX_RING_SMALL;
                if ring.flags & !known != 0 || !zero {
                    return Err(EINVAL);
                }
                self.make_ring(ring.flags)
            }
            (uapi::SOL_ZRS, uapi::ZRS_TCP) => self.set_tcp_mode(val.read()?, call),
            (SOL_TCP, TCP_FASTOPEN_CONNECT) => Err(EOPNOTSUPP),
            (SOL_TCP, _) => {
                let value: i32 = val.read()?;
                self.set_tcp_option(name, value)?;
                match name {
                    TCP_CORK if value == 0 => _ = self.flush(),
                    TCP_NODELAY if value != 0 => _ = self.flush(),
                    TCP_KEEPIDLE | TCP_KEEPINTVL | TCP_KEEPCNT => self.keep_alive(),
                    TCP_USER_TIMEOUT => {
                        self.keep_alive();
                        // Data that was sent before counts as well.
                        drop(self.sending());
                    }
                    _ => {}
                }
                Ok(())
            }
            (SOL_IP, _) => self.sk().ok_or(EINVAL)?.set_ip_option(name, val),
            (SOL_IPV6, IPV6_V6ONLY) if self.v6 => self.set_v6only(val.read::<i32>()? != 0),
            (SOL_IPV6, _) => self.sk().ok_or(EINVAL)?.set_ipv6_option(name, val),
            _ => Err(ENOPROTOOPT),
        }
    }

    /// IPV6_V6ONLY. EINVAL once the socket has a port.
    fn set_v6only(&self, on: bool) -> Result {
        let _config = self.config.lock();
        if self.inner.lock().has_port {
            return Err(EINVAL);
        }
        self.sk().ok_or(EINVAL)?.set_v6only(on);
        Ok(())
    }

    fn set_tcp_option(&self, name: i32, value: i32) -> Result {
        let fresh = UniqueArc::<Options>::new_uninit(CHARGED)?;
        let old = {
            let inner = self.inner.lock();
            let mut asked = self.asked.lock();
            let mut options = asked.options.as_deref().copied().unwrap_or_default();
            let early = !matches!(inner.phase, Phase::Connecting | Phase::Connected);
            options.set(name, value, early).map_err(|e| match e {
                OptionError::Unknown => ENOPROTOOPT,
                OptionError::Value => EINVAL,
            })?;
            let ms = options.get(TCP_USER_TIMEOUT).unwrap_or(0);
            self.user_ms.store(ms.unsigned_abs(), Relaxed);
            let corks = options.get(TCP_CORK) == Some(1);
            self.corks.store(corks, Relaxed);
            asked.options.replace(fresh.write(options).into())
        };
        drop(old);
        Ok(())
    }

    /// getsockopt() above SOL_SOCKET.
    pub(super) fn get_option(self: &Arc<Self>, level: i32, name: i32, mut out: OptOut) -> Result {
        // As TCP does, before it looks at the name.
        out.len()?;
        match (level, name) {
            (uapi::SOL_ZRS, uapi::ZRS_RX_RING) => out.write(&self.ring_layout()?),
            (uapi::SOL_ZRS, uapi::ZRS_INFO) => {
                if self.reap() {
                    self.send_pending();
                }
                out.write(&self.info())
            }
            (uapi::SOL_ZRS, uapi::ZRS_TCP) => {
                let mode = self.asked.lock().tcp_mode;
                out.write(&mode.number())
            }
            (SOL_TCP, TCP_INFO) => out.write_bytes(&self.tcp_info().bytes()),
            (SOL_TCP, _) => {
                let options = self.asked.lock().options.clone();
                let value = match options {
                    Some(options) => options.get(name),
                    None => Options::default().get(name),
                };
                match (value, self.tcp()) {
                    (Some(value), _) => out.write(&value),
                    (None, Some(tcp)) => tcp.get_option(level, name, &out),
                    (None, None) => Err(ENOPROTOOPT),
                }
            }
            (SOL_IP, _) => {
                let value = self.sk().ok_or(EINVAL)?.ip_option(name);
                match (value, self.tcp()) {
                    (Some(value), _) => out.write_small(value),
                    (None, Some(tcp)) => tcp.get_option(level, name, &out),
                    (None, None) => Err(ENOPROTOOPT),
                }
            }
            (SOL_IPV6, IPV6_V6ONLY) if self.v6 => {
                let on = self.sk().is_some_and(|sk| sk.is_v6only());
                out.write(&i32::from(on))
            }
            (SOL_IPV6, _) => {
                let value = self.sk().ok_or(EINVAL)?.ipv6_option(name);
                match (value, self.tcp()) {
                    (Some(value), _) => out.write(&value),
                    (None, Some(tcp)) => tcp.get_option(level, name, &out),
                    (None, None) => Err(ENOPROTOOPT),
                }
            }
            _ => Err(ENOPROTOOPT),
        }
    }

    /// The values of TCP_INFO. Takes the link's lock and the socket's.
    fn tcp_info(&self) -> TcpInfo {
        // Read in this order, so that data posted in between does not count as acknowledged.
        let corked = self.tx_corked();
        let in_flight = self.tx_in_flight();
        let inner = self.inner.lock();
        let asked = self.asked.lock();
        let sent = inner.counters.tx_bytes.saturating_sub(corked);
        let mut info = TcpInfo {
            state: tcp_info::CLOSE,
            mss: asked.option(TCP_MAXSEG).unsigned_abs(),
            bytes_sent: sent,
            notsent: corked as u32,
            bytes_acked: sent.saturating_sub(in_flight),
            bytes_received: inner.counters.rx_bytes + inner.rx.bytes(),
            ..TcpInfo::default()
        };
        info.state = match inner.phase {
            Phase::Fresh | Phase::Failed | Phase::Carried => tcp_info::CLOSE,
            Phase::Connecting => tcp_info::SYN_SENT,
            Phase::Listening { .. } => {
                info.waiting = asked.queue.len() as u32;
                info.backlog = asked.backlog as u32;
                tcp_info::LISTEN
            }
            Phase::Connected => {
                let ends = inner.conn.chan.with(|c| match c.state() {
                    State::Closed => None,
                    _ => Some((c.read_ended(), c.write_shut())),
                });
                match ends.flatten() {
                    None => tcp_info::CLOSE,
                    Some((false, false)) => tcp_info::ESTABLISHED,
                    Some((true, false)) => tcp_info::CLOSE_WAIT,
                    Some((false, true)) => tcp_info::FIN_WAIT2,
                    Some((true, true)) => tcp_info::LAST_ACK,
                }
            }
        };
        info
    }
}
