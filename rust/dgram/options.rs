// SPDX-License-Identifier: GPL-2.0

//! setsockopt(), getsockopt() and ioctl() of datagram sockets.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::uaccess::{UserPtr, UserSlice};

use super::DgramSock;
use crate::kern::errno::ENOPROTOOPT;
use crate::kern::sock::opt::{OptIn, OptOut};

const SOL_IP: i32 = 0;
const SOL_IPV6: i32 = 41;
const IPV6_V6ONLY: i32 = 26;
/// The length of the next datagram.
const FIONREAD: u32 = 0x541B;
/// Bytes not sent yet: the sent ones are in the link's memory, not in the socket's.
const SIOCOUTQ: u32 = 0x5411;

impl DgramSock {
    pub(super) fn set_option(&self, level: i32, name: i32, val: &OptIn<'_>) -> Result {
        let sk = self.sk()?;
        match (level, name) {
            (SOL_IP, _) => sk.set_ip_dgram_option(name, val),
            (SOL_IPV6, IPV6_V6ONLY) if self.v6 => {
                let on = val.read::<i32>()? != 0;
                let _config = self.config.lock();
                if self.inner.lock().binding.is_some() {
                    return Err(EINVAL);
                }
                sk.set_v6only(on);
                Ok(())
            }
            (SOL_IPV6, _) => sk.set_ipv6_dgram_option(name, val),
            _ => Err(ENOPROTOOPT),
        }
    }

    pub(super) fn get_option(&self, level: i32, name: i32, mut out: OptOut) -> Result {
        let sk = self.sk()?;
        match (level, name) {
            (SOL_IP, _) => out.write_small(sk.ip_dgram_option(name).ok_or(ENOPROTOOPT)?),
            (SOL_IPV6, IPV6_V6ONLY) if self.v6 => out.write(&i32::from(sk.is_v6only())),
            (SOL_IPV6, _) => out.write(&sk.ipv6_dgram_option(name).ok_or(ENOPROTOOPT)?),
            _ => Err(ENOPROTOOPT),
        }
    }

    pub(super) fn ioctl(self: &Arc<Self>, cmd: u32, arg: usize) -> Result<i32> {
        let value = match cmd {
            FIONREAD => self.next_len(),
            SIOCOUTQ => 0,
            _ => return Err(ENOIOCTLCMD),
        };
        let mut writer = UserSlice::new(UserPtr::from_addr(arg), size_of::<u32>()).writer();
        writer.write(&value)?;
        Ok(0)
    }
}
