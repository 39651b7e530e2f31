// SPDX-License-Identifier: GPL-2.0

//! bind() and connect(): ports and addresses.

#![deny(unsafe_code)]

use core::net::Ipv6Addr;

use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;

use super::send::errno_of;
use super::{any, DgramSock};
use crate::kern::errno::{EADDRINUSE, EADDRNOTAVAIL, ENETUNREACH};
use crate::kern::sock::{Sk, State as SkState};
use crate::proto::addr::{Addr, Bound, Ip};
use crate::proto::dgram::destination::Sender;
use crate::socket::ports;
use crate::socket::tcp::may_have;

/// How many free ports are tried that UDP may have in use.
const PORT_TRIES: u32 = 64;

impl DgramSock {
    /// bind(). EINVAL: bound already, or an unusable address. EADDRINUSE. EADDRNOTAVAIL: not an
    /// address of this host. ENODEV: a link-local address on an interface that does not exist.
    /// EACCES: a privileged port. EPERM: a BPF program of a control group. Sleeps.
    pub(super) fn bind(self: &Arc<Self>, addr: Addr) -> Result {
        let sk = self.sk()?;
        let (addr, low_ports) = sk.cgroup_bind(addr.into())?;
        let mut addr = Addr::from(addr);
        let _config = self.config.lock();
        if self.is_bound() {
            return Err(EINVAL);
        }
        if addr.port != 0 && !low_ports && !sk.may_bind_port(addr.port) {
            return Err(EACCES);
        }
        addr.ip = Self::on_interface(&sk, addr.ip)?;
        match (self.check_local(&sk, addr.ip), self.udp()) {
            (Err(e), Some(udp)) if e == EADDRNOTAVAIL => return self.bind_udp(&sk, &udp, addr),
            (checked, _) => checked?,
        }
        if addr.port == 0 && sk.bind_address_no_port() {
            self.bind_address(&sk, addr)?;
        } else {
            self.bind_port(&sk, addr, true)?;
        }
        self.inner.lock().bound = (addr.ip, addr.port != 0);
        if self.v6 && !addr.ip.is_any() && !addr.ip.is_v4() {
            // As UDP has it.
            sk.set_v6only(true);
        }
        Ok(())
    }

    /// Whether `ip` is an address of this host, or stands for all. EINVAL, EADDRNOTAVAIL, ENODEV.
    fn check_local(&self, sk: &Sk, ip: Ip) -> Result {
        match ip.v4() {
            Some(_) if self.v6 && sk.is_v6only() => Err(EINVAL),
            _ if ip.is_any() => Ok(()),
            _ if self.net.is_local(ip.v6(), ip.scope())? => Ok(()),
            _ => Err(EADDRNOTAVAIL),
        }
    }

    /// A link-local address that names no interface is on that of the socket. EINVAL if it has
    /// none.
    pub(super) fn on_interface(sk: &Sk, ip: Ip) -> Result<Ip> {
        if !ip.is_link_local() || ip.scope() != 0 {
            return Ok(ip);
        }
        match sk.bound_dev_if() {
            0 => Err(EINVAL),
            own => Ok(Ip::new(ip.v6(), own)),
        }
    }

    /// Takes the address alone, as IP_BIND_ADDRESS_NO_PORT says; the first send or connect() takes
    /// a port. Under `config`.
    fn bind_address(&self, sk: &Sk, addr: Addr) -> Result {
        if let Some(udp) = self.udp() {
            may_have(&self.net)?;
            // It has the option, too.
            udp.bind(addr.into())?;
        }
        self.inner.lock().local = addr;
        sk.set_local(addr.into());
        Ok(())
    }

    /// Takes a port, and the same of the UDP socket inside if there is one. `asked`: the program
    /// has called bind(). Under `config`.
    fn bind_port(self: &Arc<Self>, sk: &Sk, addr: Addr, asked: bool) -> Result {
        let Some(udp) = self.udp() else {
            return self.bind_own_port(sk, addr, asked);
        };
        may_have(&self.net)?;
        for _ in 0..PORT_TRIES {
            self.bind_own_port(sk, addr, asked)?;
            let at = self.inner.lock().local.into();
            let taken = match asked {
                true => udp.bind(at),
                false => udp.autobind(at.port()),
            };
            let both = taken.and_then(|()| udp.check_bound(at));
            let Err(e) = both else {
                return Ok(());
            };
            self.unbind();
            if addr.port != 0 || e != EADDRINUSE {
                return Err(e);
            }
        }
        Err(EADDRINUSE)
    }

    /// Takes a port, and has datagrams for it delivered. The connection manager must listen for
    /// that: the peers' links carry their datagrams. Under `config`.
    fn bind_own_port(self: &Arc<Self>, sk: &Sk, addr: Addr, asked: bool) -> Result {
        let bound = Bound::new(addr.ip, sk.is_v6only());
        let binding = ports::bind(&self.ctx.ports, &self.net, bound, addr.port, sk)?;
        let port = binding.addr().port;
        if asked {
            sk.set_local(binding.addr().into());
            if let Err(e) = sk.cgroup_post_bind() {
                self.ctx.ports.lock().unbind(binding);
                sk.set_local(self.inner.lock().local.into());
                return Err(e);
            }
        }
        let reuse_port = sk.reuse_port().then(|| sk.owner());
        let placed = self
            .ctx
            .transport
            .start_listening(&self.net)
            .and_then(|()| {
                let place = self.ctx.add(self, port, bound, reuse_port);
                place.inspect_err(|_| self.ctx.transport.stop_listening(&self.net))
            });
        let place = match placed {
            Ok(place) => place,
            Err(e) => {
                self.ctx.ports.lock().unbind(binding);
                sk.set_local(self.inner.lock().local.into());
                return Err(e);
            }
        };
        let local = Addr::new(addr.ip, port);
        let mut inner = self.inner.lock();
        inner.binding = Some(binding);
        inner.place = Some(place);
        inner.local = local;
        sk.set_local(local.into());
        Ok(())
    }

    /// Takes a port if the socket has none. Returns it. EAGAIN: none is free.
    pub(super) fn autobind(self: &Arc<Self>, sk: &Sk) -> Result<u16> {
        let port = self.inner.lock().local.port;
        if port != 0 {
            return Ok(port);
        }
        let _config = self.config.lock();
        self.autobind_locked(sk)
    }

    /// As [`Self::autobind`], under `config`.
    fn autobind_locked(self: &Arc<Self>, sk: &Sk) -> Result<u16> {
        let (ip, port, udp_only) = {
            let inner = self.inner.lock();
            (inner.bound.0, inner.local.port, inner.udp_only)
        };
        if let Some(udp) = self.udp().filter(|_| udp_only && port == 0) {
            udp.autobind(0).map_err(|_| EAGAIN)?;
            let port = udp.name(false).map_or(0, |name| name.port());
            let mut inner = self.inner.lock();
            inner.local.port = port;
            sk.set_local(inner.local.into());
        } else if port == 0 {
            let bound = self.bind_port(sk, Addr::new(ip, 0), false);
            // As UDP has it; EACCES is ours, and to try again does not help.
            bound.map_err(|e| if e == EACCES { e } else { EAGAIN })?;
        }
        Ok(self.inner.lock().local.port)
    }

    /// The addresses of the socket as a sender.
    pub(super) fn sender(&self, sk: &Sk) -> Sender {
        let inner = self.inner.lock();
        Sender {
            local: inner.local.ip,
            only_v6: sk.is_v6only(),
            remote: inner.remote,
        }
    }

    /// connect(): fixes the peer, and the local address. EPERM: a BPF program of a control group.
    /// Sleeps.
    pub(super) fn connect(self: &Arc<Self>, addr: Addr) -> Result {
        let sk = self.sk()?;
        if let Some(udp) = self.udp() {
            let _config = self.config.lock();
            self.autobind_locked(&sk)?;
            // It runs the programs of control groups.
            return self.connect_both(&sk, &udp, addr);
        }
        let (addr, chosen) = sk.cgroup_connect(addr.into())?;
        let _config = self.config.lock();
        let connected = self.connect_own(&sk, addr.into(), chosen);
        if connected.is_err() && chosen.is_some() {
            sk.set_local(self.inner.lock().local.into());
        }
        connected
    }

    /// connect() to the address that the programs of control groups have left; `chosen`: the local
    /// one, if they have chosen that. Under `config`.
    fn connect_own(self: &Arc<Self>, sk: &Sk, addr: Addr, chosen: Option<Ipv6Addr>) -> Result {
        self.autobind_locked(sk)?;
        let mut to = self.sender(sk).reachable(addr).map_err(errno_of)?;
        to.ip = Self::on_interface(sk, to.ip)?;
        if self.net.is_broadcast(to.ip.v6()) {
            return Err(ENETUNREACH);
        }
        let own = chosen.map_or(self.inner.lock().local.ip, |ip| Ip::new(ip, to.ip.scope()));
        if !sk.device_allows(Addr::new(own, 0).into(), to.into()) {
            return Err(ENETUNREACH);
        }
        let ip = if own.is_any() {
            let source = sk.route_source(to.into()).ok_or(ENETUNREACH)?;
            Ip::new(source, to.ip.scope())
        } else {
            own
        };
        self.readdress(sk, ip, Some(to))
    }

    /// connect() to AF_UNSPEC: the socket has no peer any more, and the address that bind() gave
    /// it. A port that bind() did not give is given back, as UDP does. Sleeps.
    pub(super) fn disconnect(self: &Arc<Self>) -> Result {
        let _config = self.config.lock();
        let sk = self.sk()?;
        let udp = self.udp();
        let ((ip, keeps_port), udp_only) = {
            let inner = self.inner.lock();
            if inner.remote.is_none() {
                return Ok(());
            }
            // UDP keeps a port that it was bound to.
            let keeps_port = inner.bound.1 || udp.is_some();
            ((inner.bound.0, keeps_port), inner.udp_only)
        };
        if udp_only {
            self.inner.lock().remote = None;
        } else {
            self.readdress(&sk, ip, None)?;
        }
        if let Some(udp) = udp {
            udp.disconnect();
        }
        if !keeps_port {
            self.unbind();
        }
        Ok(())
    }

    /// Changes the local address and the peer. Under `config`.
    pub(super) fn readdress(&self, sk: &Sk, ip: Ip, remote: Option<Addr>) -> Result {
        let bound = Bound::new(ip, sk.is_v6only());
        let (place, binding) = {
            let inner = self.inner.lock();
            (inner.place, inner.binding)
        };
        let (place, mut binding) = place.zip(binding).ok_or(EINVAL)?;
        let was = binding.bound();
        self.ctx.ports.lock().readdress(&mut binding, bound)?;
        let moved = self.ctx.reconnect(&place, bound, remote);
        if moved.is_err() {
            // Back to where it was; without memory the port keeps its new address.
            let _ = self.ctx.ports.lock().readdress(&mut binding, was);
        }
        let mut inner = self.inner.lock();
        inner.binding = Some(binding);
        inner.place = Some(moved?);
        inner.local.ip = ip;
        inner.remote = remote;
        self.several.store(false, Relaxed);
        sk.set_local(inner.local.into());
        sk.set_remote(remote.unwrap_or(any(self.v6)).into());
        sk.set_state(match remote {
            Some(_) => SkState::Established,
            None => SkState::Closed,
        });
        Ok(())
    }

    /// Gives the port back. Sleeps.
    pub(super) fn unbind(&self) {
        let (binding, place) = {
            let mut inner = self.inner.lock();
            let taken = (inner.binding.take(), inner.place.take());
            inner.local = Addr::new(inner.bound.0, 0);
            if let Some(sk) = &inner.sk {
                sk.set_local(inner.local.into());
            }
            taken
        };
        if let Some(place) = place {
            self.ctx.remove(self, &place);
            self.ctx.transport.stop_listening(&self.net);
        }
        if let Some(binding) = binding {
            self.ctx.ports.lock().unbind(binding);
        }
    }
}
