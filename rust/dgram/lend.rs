// SPDX-License-Identifier: GPL-2.0

//! Mapped receives of datagrams (ZRS_IOC_RECV_MAP): the blocks that a large datagram came in are
//! mapped into the program, at addresses that it chooses inside an area.
//!
//! A datagram of more than 16 KiB stays in the blocks that its fragments fill, as far as
//! `dgram_lend_percent` of the device's blocks go, if the socket has an area when it begins to
//! arrive. Its other fragments are copied, and so are smaller datagrams. A block returns to the
//! pool when it has no user any more (`pool/kept.rs`), whatever has become of the socket.

#![deny(unsafe_code)]

use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::uaccess::{UserPtr, UserSlice};

use super::recv::Found;
use super::{DgramSock, Inner};
use crate::kern::area::Area;
use crate::kern::errno::{EMSGSIZE, EOPNOTSUPP};
use crate::kern::vma::NewVma;
use crate::kern::wait::WaitMode;
use crate::proto::dgram::lend::begin;
use crate::proto::dgram::rx_queue::Datagram;
use crate::stats::STATS;
use crate::transport::dgram::Bytes;
use crate::uapi;

/// A place for a datagram.
struct Target<'a> {
    area: &'a Arc<Area>,
    addr: usize,
    /// Bytes from there on.
    room: usize,
    /// The kernel may choose the first byte's place in its page.
    shift: bool,
}

impl Target<'_> {
    /// The distance from `addr` at which a datagram of `len` bytes begins. `None`: it is too long.
    fn begin(&self, len: u32, data: &Bytes) -> Option<usize> {
        let to_page = self.shift && data.has_blocks();
        begin(self.addr, self.room, len as usize, to_page)
    }
}

impl Inner {
    /// The next datagram, unless it is too long for `target`: then EMSGSIZE, and it stays.
    fn next_for(&mut self, target: &Target<'_>) -> Option<Found> {
        let long = |d: &Datagram<Bytes>| target.begin(d.len, &d.data).is_none();
        let error = self.sk.as_ref().and_then(|sk| sk.take_err());
        match error {
            Some(e) => Some(Found::Error(e)),
            None if self.rx.peek().is_some_and(long) => Some(Found::Error(EMSGSIZE)),
            None => self.next(false),
        }
    }
}

impl DgramSock {
    /// mmap() of an area: EINVAL, EACCES or ENOMEM. ENODEV: there is a UDP socket inside, or
    /// nothing to map at that offset.
    pub(super) fn map_area(self: &Arc<Self>, vma: NewVma<'_>) -> Result {
        if self.udp().is_some() || vma.offset() != uapi::ZRS_AREA_OFFSET {
            return Err(ENODEV);
        }
        let area = self.inner.lock().area.clone();
        let area = match area {
            Some(area) => area,
            None => {
                let made = Area::new()?;
                let (kept, unused) = {
                    let mut inner = self.inner.lock();
                    match inner.area.clone() {
                        // Another thread has been quicker.
                        Some(area) => (area, Some(made)),
                        None => (inner.area.insert(made).clone(), None),
                    }
                };
                drop(unused);
                kept
            }
        };
        vma.map_area(area)?;
        self.inner.lock().maps = true;
        Ok(())
    }

    /// ZRS_IOC_RECV_MAP. See the UAPI. Sleeps.
    pub(super) fn recv_map_user(self: &Arc<Self>, arg: usize, nonblock: bool) -> Result<i32> {
        let user = || UserSlice::new(UserPtr::from_addr(arg), size_of::<uapi::zrs_ioc_recv_map>());
        let mut call: uapi::zrs_ioc_recv_map = user().reader().read()?;
        // Fail before a datagram is consumed if the result cannot be written back.
        user().writer().write(&call)?;
        self.recv_map(&mut call, nonblock)?;
        // As with streams, the return value has the length as well.
        let _ = user().writer().write(&call);
        Ok(i32::try_from(call.len).unwrap_or(i32::MAX))
    }

    fn recv_map(self: &Arc<Self>, call: &mut uapi::zrs_ioc_recv_map, nonblock: bool) -> Result {
        const FLAGS: u32 = uapi::ZRS_RECV_MAP_DONTWAIT | uapi::ZRS_RECV_MAP_SHIFT;
        let reserved = call.reserved0 != 0 || call.reserved != [0; 2];
        if reserved || call.flags & !FLAGS != 0 || call.len == 0 {
            return Err(EINVAL);
        }
        if self.udp().is_some() {
            return Err(EOPNOTSUPP);
        }
        let addr = usize::try_from(call.addr).map_err(|_| EFAULT)?;
        let sk = self.sk()?;
        let (area, link) = {
            let inner = self.inner.lock();
            (inner.area.clone(), inner.rx_link.clone())
        };
        let area = area.ok_or(EFAULT)?;
        let room = area.end_of(addr)? - addr;
        let room = usize::try_from(call.len).map_or(room, |len| len.min(room));
        // The program no longer needs the pages that were mapped there.
        area.take_back(addr..addr + room)?;
        let target = Target {
            area: &area,
            addr,
            room,
            shift: call.flags & uapi::ZRS_RECV_MAP_SHIFT != 0,
        };
        let nonblock = nonblock || call.flags & uapi::ZRS_RECV_MAP_DONTWAIT != 0;
        let mut timeout = sk.rcvtimeo(nonblock);
        let found =
            self.wait
                .wait_or_poll(WaitMode::Interruptible, &mut timeout, link.as_ref(), || {
                    let mut inner = self.inner.lock();
                    let found = inner.next_for(&target);
                    found.or_else(|| inner.shut_read.then_some(Found::End))
                });
        let (at, len, copied) = match found {
            Ok(Found::Datagram(datagram, _)) => {
                let (at, copied) = self.lay_out(&target, &datagram)?;
                (at, datagram.len as usize, copied)
            }
            Ok(Found::Error(e)) => return Err(e),
            // As recv().
            Ok(Found::End) if nonblock => return Err(EAGAIN),
            Ok(Found::End) => (addr, 0, 0),
            Err(e) => return Err(e.to_errno(timeout)),
        };
        (call.addr, call.len, call.copied) = (at as u64, len as u64, copied as u64);
        Ok(())
    }

    /// Delivers a datagram that was taken out of the queue. Returns the address of its first byte,
    /// and how many bytes were copied. If that fails, it is in the queue again. Sleeps.
    fn lay_out(&self, target: &Target<'_>, datagram: &Datagram<Bytes>) -> Result<(usize, usize)> {
        let data = &datagram.data;
        // The blocks of earlier ones that the program has given back.
        data.reclaim_some();
        let by = target.begin(datagram.len, data).ok_or(EMSGSIZE)?;
        let at = target.addr.checked_add(by).ok_or(EFAULT)?;
        let copied = data.lay_out(target.area, at).inspect_err(|_| {
            // The program does not get the pages that are there already.
            let _ = target
                .area
                .take_back(target.addr..target.addr + target.room);
            self.put_back(datagram.clone());
        })?;
        let len = u64::from(datagram.len);
        STATS.rx_bytes.add(len);
        STATS.rx_copied.add(copied as u64);
        self.counters.rx_bytes.add(len);
        self.counters.rx_datagrams.add(1);
        let mut inner = self.inner.lock();
        inner.move_peek_off(false, datagram.len as usize);
        Ok((at, copied))
    }

    /// A datagram that was taken out did not reach the program: it is the next one again.
    fn put_back(&self, datagram: Datagram<Bytes>) {
        let (sk, lost) = {
            let mut inner = self.inner.lock();
            let lost = inner.rx.put_back(datagram);
            inner.show_queue();
            (inner.sk.clone(), lost)
        };
        // Freed without the lock.
        drop(lost);
        if let Some(sk) = sk {
            self.wait.wake_all();
            sk.wake_readable();
        }
    }
}
