// SPDX-License-Identifier: GPL-2.0

//! setsockopt(), getsockopt() and ioctl() of datagram sockets.
//!
//! Options of IP are kept and read by the kernel's own code (`kern/sock/dgram.rs`), with UDP's
//! errors. One that asks for what ZRS cannot do is refused: ENOPROTOOPT.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::atomic::Relaxed;
use kernel::sync::Arc;
use kernel::uaccess::{UserPtr, UserSlice};

use super::DgramSock;
use crate::kern::errno::{ENOPROTOOPT, EOPNOTSUPP};
use crate::kern::sock::opt::{OptIn, OptOut};
use crate::kern::sock::Call;
use crate::uapi::{self, SOL_ZRS, ZRS_DGRAM_UDP};

const SOL_IP: i32 = 0;
const SOL_UDP: i32 = 17;
const SOL_IPV6: i32 = 41;
const IPV6_V6ONLY: i32 = 26;
const IPV6_ADDRFORM: i32 = 1;
/// Options of SOL_SOCKET that filter received datagrams: SO_ATTACH_FILTER and SO_ATTACH_BPF.
const FILTERS: [i32; 2] = [26, 50];
/// Those that choose a socket of several with the same port by a program:
/// SO_ATTACH_REUSEPORT_CBPF and SO_ATTACH_REUSEPORT_EBPF. Ours are not in the kernel's groups of
/// such sockets; a hash chooses.
const BY_PROGRAM: [i32; 2] = [51, 52];
/// Those that ask for the times of packets, or set them: SO_TIMESTAMPING, in both forms, and
/// SO_TXTIME. A UDP socket inside has them.
const BY_TIME: [i32; 3] = [37, 65, 61];

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
        if level == SOL_UDP {
            // Read before: if it cannot be, UDP does not have it either.
            let value = val.read::<i32>()?;
            udp.set_option(level, name, val)?;
            self.inner.lock().udp_holds.set(name, value);
            let sk = self.sk()?;
            let _ = self.set_udp_value(&sk, name, value);
            return Ok(());
        }
        udp.set_option(level, name, val)?;
        // The socket itself has to know some of them as well.
        match self.set_own_option(level, name, val) {
            Err(e) if e == ENOMEM || e == EFAULT => Err(e),
            _ => Ok(()),
        }
    }

    fn set_own_option(self: &Arc<Self>, level: i32, name: i32, val: &OptIn<'_>) -> Result {
        let sk = self.sk()?;
        match (level, name) {
            (SOL_IPV6, IPV6_V6ONLY) if self.v6 => {
                let on = val.read::<i32>()? != 0;
                let _config = self.config.lock();
                if self.is_bound() {
                    return Err(EINVAL);
                }
                sk.set_v6only(on);
                Ok(())
            }
            (SOL_IP, _) => sk.set_ip_dgram_option(level, name, val),
            (SOL_IPV6, _) if self.v6 => match sk.set_ip_dgram_option(level, name, val) {
                // As UDP does, before it looks at the name.
                Err(e) if e == ENOPROTOOPT && val.read::<i32>() == Err(EFAULT) => Err(EFAULT),
                done => done,
            },
            // As UDP does, it reads the value before it looks at the name.
            (SOL_UDP, _) => self.set_udp_value(&sk, name, val.read::<i32>()?),
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
        match (level, name) {
            (uapi::SOL_ZRS, uapi::ZRS_DGRAM_INFO) => out.write(&self.info()),
            // Both look at the length before the name, as UDP does.
            (SOL_UDP, _) => {
                out.len()?;
                out.write(&self.udp_options.get(name).ok_or(ENOPROTOOPT)?)
            }
            (SOL_IP, _) => {
                out.len()?;
                self.sk()?.ip_dgram_option(level, name, &out)
            }
            (SOL_IPV6, _) if self.v6 => match out.len() {
                Err(e) if e == EFAULT => Err(e),
                // The kernel looks at a negative length after the name.
                _ => self.sk()?.ip_dgram_option(level, name, &out),
            },
            (uapi::SOL_ZRS, _) => out.len().and(Err(ENOPROTOOPT)),
            // As UDP of the two families has it.
            _ if self.v6 => Err(ENOPROTOOPT),
            _ => Err(EOPNOTSUPP),
        }
    }

    /// The program sets an option of SOL_SOCKET. Refuses options that ZRS cannot honour:
    /// ENOPROTOOPT.
    pub(super) fn check_socket_option(&self, name: i32) -> Result {
        let refused = match self.udp() {
            Some(_) => BY_PROGRAM.contains(&name),
            None => BY_PROGRAM.contains(&name) || BY_TIME.contains(&name),
        };
        if refused {
            return Err(ENOPROTOOPT);
        }
        if FILTERS.contains(&name) {
            self.filters.store(true, Relaxed);
        }
        Ok(())
    }

    /// Sets SO_PEEK_OFF; negative: there is none. With a UDP socket inside, the queue of ZRS is the
    /// first.
    pub(super) fn set_peek_off(&self, at: i32) -> Result {
        let udp = self.udp();
        let behind = {
            let mut inner = self.inner.lock();
            let own = match udp {
                Some(_) => u32::try_from(inner.rx.bytes()).unwrap_or(u32::MAX),
                None => u32::MAX,
            };
            inner.peek_off = u32::try_from(at).ok().map(|at| at.min(own));
            inner.peek_off.map_or(at, |own| at - own as i32)
        };
        if let Some(udp) = udp {
            udp.set_peek_off(behind);
        }
        self.sk()?.show_peek_off(at);
        Ok(())
    }

    pub(super) fn ioctl(self: &Arc<Self>, cmd: u32, arg: usize, nonblock: bool) -> Result<i32> {
        if cmd == uapi::ZRS_IOC_RECV_MAP {
            return self.recv_map_user(arg, nonblock);
        }
        let udp = self.udp();
        if let Some(udp) = udp.filter(|udp| cmd != FIONREAD || self.next_is_udp(udp)) {
            return udp.ioctl(cmd, arg);
        }
        let value = match cmd {
            FIONREAD => self.next_len(),
            SIOCOUTQ => u32::try_from(self.tx_queued(true)).unwrap_or(u32::MAX),
            _ => return Err(ENOIOCTLCMD),
        };
        let mut writer = UserSlice::new(UserPtr::from_addr(arg), size_of::<u32>()).writer();
        writer.write(&value)?;
        Ok(0)
    }
}
