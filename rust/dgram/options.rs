// SPDX-License-Identifier: GPL-2.0

//! setsockopt(), getsockopt() and ioctl() of datagram sockets.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::uaccess::{UserPtr, UserSlice};

use super::DgramSock;
use crate::kern::errno::ENOPROTOOPT;
use crate::kern::sock::opt::{OptIn, OptOut};
use crate::kern::sock::Call;
use crate::uapi::{self, SOL_ZRS, ZRS_DGRAM_UDP};

const SOL_IP: i32 = 0;
const SOL_UDP: i32 = 17;
const SOL_IPV6: i32 = 41;
const IPV6_V6ONLY: i32 = 26;
const IPV6_ADDRFORM: i32 = 1;
/// The length of the next datagram.
const FIONREAD: u32 = 0x541B;
/// Bytes that count against SO_SNDBUF.
const SIOCOUTQ: u32 = 0x5411;

impl DgramSock {
    pub(super) fn set_option(
        self: &Arc<Self>,
        level: i32,
        name: i32,
        val: &OptIn<'_>,
        call: &Call<'_>,
    ) -> Result {
        if (level, name) == (SOL_ZRS, ZRS_DGRAM_UDP) {
            return self.set_companion(val.read::<u32>()?, call);
        }
        let Some(udp) = self.udp().filter(|_| level != SOL_ZRS) else {
            return self.set_own_option(level, name, val);
        };
        if (level, name) == (SOL_IPV6, IPV6_ADDRFORM) {
            // It would be of another family than this socket.
            return Err(ENOPROTOOPT);
        }
        udp.set_option(level, name, val)?;
        if level == SOL_UDP {
            let value = val.read::<i32>()?;
            self.inner.lock().udp_holds.set(name, value);
        }
        // The socket itself has to know some of them as well.
        match self.set_own_option(level, name, val) {
            Err(e) if e == ENOMEM => Err(e),
            _ => Ok(()),
        }
    }

    fn set_own_option(self: &Arc<Self>, level: i32, name: i32, val: &OptIn<'_>) -> Result {
        let sk = self.sk()?;
        match (level, name) {
            (SOL_IP, _) => sk.set_ip_dgram_option(name, val),
            (SOL_IPV6, IPV6_V6ONLY) if self.v6 => {
                let on = val.read::<i32>()? != 0;
                let _config = self.config.lock();
                if self.is_bound() {
                    return Err(EINVAL);
                }
                sk.set_v6only(on);
                Ok(())
            }
            (SOL_IPV6, _) => sk.set_ipv6_dgram_option(name, val),
            (SOL_UDP, _) => self.set_udp_option(&sk, name, val),
            _ => Err(ENOPROTOOPT),
        }
    }

    pub(super) fn get_option(&self, level: i32, name: i32, mut out: OptOut) -> Result {
        let udp = self.udp();
        if (level, name) == (SOL_ZRS, ZRS_DGRAM_UDP) {
            return out.write(&u32::from(udp.is_some()));
        }
        if let Some(udp) = udp.filter(|_| level != SOL_ZRS) {
            return udp.get_option(level, name, &out);
        }
        let sk = self.sk()?;
        match (level, name) {
            (SOL_IP, _) => out.write_small(sk.ip_dgram_option(name).ok_or(ENOPROTOOPT)?),
            (SOL_IPV6, IPV6_V6ONLY) if self.v6 => out.write(&i32::from(sk.is_v6only())),
            (uapi::SOL_ZRS, uapi::ZRS_DGRAM_INFO) => out.write(&self.info()),
            (SOL_IPV6, _) => out.write(&sk.ipv6_dgram_option(name).ok_or(ENOPROTOOPT)?),
            (SOL_UDP, _) => out.write(&self.udp_options.get(name).ok_or(ENOPROTOOPT)?),
            _ => Err(ENOPROTOOPT),
        }
    }

    pub(super) fn ioctl(self: &Arc<Self>, cmd: u32, arg: usize) -> Result<i32> {
        let udp = self.udp();
        if let Some(udp) = udp.filter(|udp| cmd != FIONREAD || self.next_is_udp(udp)) {
            return udp.ioctl(cmd, arg);
        }
        let value = match cmd {
            FIONREAD => self.next_len(),
            SIOCOUTQ => u32::try_from(self.tx_queued()).unwrap_or(u32::MAX),
            _ => return Err(ENOIOCTLCMD),
        };
        let mut writer = UserSlice::new(UserPtr::from_addr(arg), size_of::<u32>()).writer();
        writer.write(&value)?;
        Ok(0)
    }
}
