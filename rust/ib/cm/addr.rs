// SPDX-License-Identifier: GPL-2.0

//! Addresses as the connection manager takes and gives them.

use crate::bindings;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, SocketAddrV4, SocketAddrV6};

/// An address as the core takes it.
#[repr(C)]
pub(super) union Storage {
    all: core::mem::ManuallyDrop<bindings::__kernel_sockaddr_storage>,
    v4: core::mem::ManuallyDrop<bindings::sockaddr_in>,
    v6: core::mem::ManuallyDrop<bindings::sockaddr_in6>,
}

impl Storage {
    pub(super) fn new(addr: SocketAddr) -> Self {
        let mut this = Self {
            all: Default::default(),
        };
        match addr.ip() {
            IpAddr::V4(ip) => {
                let mut v4 = bindings::sockaddr_in {
                    sin_family: bindings::AF_INET as u16,
                    sin_port: addr.port().to_be(),
                    ..Default::default()
                };
                v4.sin_addr.s_addr = u32::from(ip).to_be();
                this.v4 = core::mem::ManuallyDrop::new(v4);
            }
            IpAddr::V6(ip) => {
                let mut v6 = bindings::sockaddr_in6 {
                    sin6_family: bindings::AF_INET6 as u16,
                    sin6_port: addr.port().to_be(),
                    ..Default::default()
                };
                v6.sin6_addr.in6_u.u6_addr8 = ip.octets();
                if let SocketAddr::V6(full) = addr {
                    v6.sin6_flowinfo = full.flowinfo().to_be();
                    v6.sin6_scope_id = full.scope_id();
                }
                this.v6 = core::mem::ManuallyDrop::new(v6);
            }
        }
        this
    }

    pub(super) fn as_mut_ptr(&mut self) -> *mut bindings::sockaddr {
        core::ptr::from_mut(self).cast()
    }

    pub(super) fn read(from: *const bindings::__kernel_sockaddr_storage) -> Option<SocketAddr> {
        // SAFETY: The callers give valid storage of ids; any bits are valid, and all variants are
        // prefixes of it that begin with the family.
        let this = unsafe { from.cast::<Storage>().read_volatile() };
        // SAFETY: As above.
        let (v4, v6) = unsafe { (&*this.v4, &*this.v6) };
        match u32::from(v4.sin_family) {
            bindings::AF_INET => Some(SocketAddr::V4(SocketAddrV4::new(
                Ipv4Addr::from(u32::from_be(v4.sin_addr.s_addr)),
                u16::from_be(v4.sin_port),
            ))),
            bindings::AF_INET6 => {
                // SAFETY: Any bits are an address.
                let ip = Ipv6Addr::from(unsafe { v6.sin6_addr.in6_u.u6_addr8 });
                Some(SocketAddr::V6(SocketAddrV6::new(
                    ip,
                    u16::from_be(v6.sin6_port),
                    u32::from_be(v6.sin6_flowinfo),
                    v6.sin6_scope_id,
                )))
            }
            _ => None,
        }
    }
}
