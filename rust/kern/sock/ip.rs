// SPDX-License-Identifier: GPL-2.0

//! The options of levels SOL_IP and SOL_IPV6 that mean something on a stream, or that programs set
//! out of habit: the kernel's own code keeps them in the `inet_sock` and the `ipv6_pinfo`.
//!
//! C: `net/ipv4/ip_sockglue.c`, `net/ipv6/ipv6_sockglue.c`, `include/net/inet_sock.h`.

use super::{opt::OptIn, Sk};
use crate::{bindings, kern::errno::ENOPROTOOPT};
use core::ptr;
use kernel::{error::to_result, ffi::c_int, prelude::*};

impl Sk {
    /// Sets an option of level SOL_IP, with the kernel's errors; ENOPROTOOPT for other options than
    /// those here. May sleep.
    pub fn set_ip_option(&self, name: i32, value: &OptIn<'_>) -> Result {
        match name as u32 {
            bindings::IP_TOS
            | bindings::IP_TTL
            | bindings::IP_MTU_DISCOVER
            | bindings::IP_BIND_ADDRESS_NO_PORT
            | bindings::IP_LOCAL_PORT_RANGE => {}
            _ => return Err(ENOPROTOOPT),
        }
        let (value, len) = value.as_raw();
        let level = bindings::IPPROTO_IP as c_int;
        // SAFETY: a live sock (type invariant) that begins with an inet_sock; each of these options
        // writes a word of it; the value came from the socket layer.
        to_result(unsafe { bindings::ip_setsockopt(self.as_ptr(), level, name, value, len as u32) })
    }

    /// IP_BIND_ADDRESS_NO_PORT: `bind()` to port 0 leaves the choice to `connect()`.
    pub fn bind_address_no_port(&self) -> bool {
        let inet = self.as_ptr().cast::<bindings::inet_sock>();
        // SAFETY: our socks begin with an inet_sock (type invariant); a word that may change at any
        // time.
        let flags = unsafe { ptr::addr_of!((*inet).inet_flags).read_volatile() };
        flags & (1 << bindings::INET_FLAGS_BIND_ADDRESS_NO_PORT) != 0
    }

    /// An option of level SOL_IP; `None` for other options than those here.
    pub fn ip_option(&self, name: i32) -> Option<i32> {
        let inet = self.as_ptr().cast::<bindings::inet_sock>();
        // SAFETY: our socks begin with an inet_sock (type invariant); words that may change at any
        // time.
        unsafe {
            Some(match name as u32 {
                bindings::IP_TOS => ptr::addr_of!((*inet).tos).read_volatile().into(),
                bindings::IP_TTL => match ptr::addr_of!((*inet).uc_ttl).read_volatile() {
                    ..0 => bindings::default_ttl(self.as_ptr()).into(),
                    ttl => ttl.into(),
                },
                bindings::IP_MTU_DISCOVER => ptr::addr_of!((*inet).pmtudisc).read_volatile().into(),
                bindings::IP_BIND_ADDRESS_NO_PORT => self.bind_address_no_port().into(),
                bindings::IP_LOCAL_PORT_RANGE => {
                    ptr::addr_of!((*inet).local_port_range).read_volatile() as i32
                }
                _ => return None,
            })
        }
    }

    /// Sets an option of level SOL_IPV6, but for IPV6_V6ONLY, with the kernel's errors; ENOPROTOOPT
    /// for other options than those here, or if the socket is not of AF_INET6. May sleep.
    pub fn set_ipv6_option(&self, name: i32, value: &OptIn<'_>) -> Result {
        match name as u32 {
            bindings::IPV6_UNICAST_HOPS | bindings::IPV6_MTU_DISCOVER | bindings::IPV6_TCLASS
                if self.is_v6() => {}
            _ => return Err(ENOPROTOOPT),
        }
        let (value, len) = value.as_raw();
        let level = bindings::IPPROTO_IPV6 as c_int;
        // SAFETY: a live sock (type invariant) of AF_INET6, which has an ipv6_pinfo; each of these
        // options writes a word of it; the value came from the socket layer.
        to_result(unsafe {
            bindings::ipv6_setsockopt(self.as_ptr(), level, name, value, len as u32)
        })
    }

    /// An option of level SOL_IPV6, but for IPV6_V6ONLY; `None` for other options than those here.
    pub fn ipv6_option(&self, name: i32) -> Option<i32> {
        let pinfo = self.pinfo()?;
        // SAFETY: the part for IPv6 of a live sock (type invariant); words that may change at any
        // time.
        unsafe {
            Some(match name as u32 {
                bindings::IPV6_UNICAST_HOPS => {
                    match (&raw const (*pinfo).hop_limit).read_volatile() {
                        ..0 => bindings::default_hop_limit(self.as_ptr()),
                        hops => hops.into(),
                    }
                }
                bindings::IPV6_MTU_DISCOVER => {
                    (&raw const (*pinfo).pmtudisc).read_volatile().into()
                }
                bindings::IPV6_TCLASS => (&raw const (*pinfo).tclass).read_volatile().into(),
                _ => return None,
            })
        }
    }
}
