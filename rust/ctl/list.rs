// SPDX-License-Identifier: GPL-2.0

//! The common part of the lists of network namespaces in the interface to programs.

#![deny(unsafe_code)]

use core::net::Ipv6Addr;

use kernel::alloc::kvec::KVVec;
use kernel::prelude::*;
use kernel::transmute::FromBytes;
use kernel::uaccess::{UserPtr, UserSlice};

use crate::kern::memcg::CHARGED;
use crate::proto::addr::Ip;
use crate::uapi::{AF_INET, AF_INET6};

/// The `count` entries at the address `at` in the program's memory, each converted by `of_user`.
/// ENOSPC: there are more than `most`. EFAULT, ENOMEM.
pub(super) fn read_list<U: FromBytes, T>(
    at: u64,
    count: u32,
    most: usize,
    of_user: impl Fn(&U) -> Result<T>,
) -> Result<KVVec<T>> {
    let count = count as usize;
    if count > most {
        return Err(ENOSPC);
    }
    let mut entries = KVVec::with_capacity(count, CHARGED)?;
    let at = usize::try_from(at).map_err(|_| EFAULT)?;
    let bytes = count * size_of::<U>();
    let mut reader = UserSlice::new(UserPtr::from_addr(at), bytes).reader();
    for _ in 0..count {
        entries.push(of_user(&reader.read()?)?, CHARGED)?;
    }
    Ok(entries)
}

/// The address of a network and its number of bits. EINVAL.
pub(super) fn net_of(family: u32, addr: [u8; 16], prefix_len: u32) -> Result<(Ip, u8)> {
    let ip = Ip::new(Ipv6Addr::from(addr), 0);
    let len = u8::try_from(prefix_len).map_err(|_| EINVAL)?;
    match family {
        AF_INET if ip.is_v4() => Ok((ip, len)),
        AF_INET6 if !ip.is_v4() => Ok((ip, len)),
        _ => Err(EINVAL),
    }
}

/// Family, address and number of bits of a network.
pub(super) fn net_to_user(ip: Ip, len: u8) -> (u32, [u8; 16], u32) {
    let family = if ip.is_v4() { AF_INET } else { AF_INET6 };
    (family, ip.octets(), len.into())
}
