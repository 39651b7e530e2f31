// SPDX-License-Identifier: GPL-2.0

//! Mapped receives (ZRS_IOC_RECV_MAP): pages of the receive pool are mapped into the program, at
//! addresses that it chooses inside an area.
//!
//! A piece of received data of more than 16 KiB is mapped page by page, if its offset within a page
//! equals that of the target address; so are the pieces that follow it in the same call. The
//! partial first and last pages, and all other data, are copied. A mapped page is free for the peer
//! again when it has no reference any more: the program has unmapped it, and no file, device or
//! pipe uses it. A program that keeps its pages gets later data as copies. When the mapped pages
//! leave the peer too little room, the peer gets another window.

#![deny(unsafe_code)]

use kernel::page::{PAGE_MASK, PAGE_SIZE};
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::uaccess::{UserPtr, UserSlice};

use super::recv::{Receive, RxPiece, RxSource, Taken};
use super::Sock;
use crate::kern::area::Area;
use crate::kern::errno::ENOTCONN;
use crate::kern::task;
use crate::kern::trace::DataPath;
use crate::kern::vma::NewVma;
use crate::uapi;

/// Offset of areas in the socket's address space for mmap().
pub(super) const AREA_OFFSET: u64 = uapi::ZRS_AREA_OFFSET;

/// Up to this many bytes, copying is cheaper than changing page tables.
const COPY_MAX: usize = 16 << 10;

/// Most bytes of one call: MAX_RW_COUNT, as for every read.
const MOST: usize = (i32::MAX as usize) & PAGE_MASK;

/// The destination of a receive.
struct Target<'a> {
    area: &'a Arc<Area>,
    /// Address of the first byte.
    addr: usize,
    /// The data that follows is mapped as far as it fills whole pages.
    maps: bool,
}

impl Sock {
    /// mmap() at [`AREA_OFFSET`]: EINVAL, EACCES or ENOMEM.
    pub(super) fn map_area(self: &Arc<Self>, vma: NewVma<'_>) -> Result {
        let area = self.asked.lock().area.clone();
        let area = match area {
            Some(area) => area,
            None => {
                let made = Area::new()?;
                // Another thread may have been quicker.
                self.asked.lock().area.get_or_insert(made).clone()
            }
        };
        vma.map_area(area)
    }

    /// ZRS_IOC_RECV_MAP. See the UAPI. Sleeps.
    pub(super) fn recv_map_user(self: &Arc<Self>, arg: usize, nonblock: bool) -> Result<i32> {
        let user = || UserSlice::new(UserPtr::from_addr(arg), size_of::<uapi::zrs_ioc_recv_map>());
        let mut call: uapi::zrs_ioc_recv_map = user().reader().read()?;
        // Fail before data is consumed if the result cannot be written back.
        user().writer().write(&call)?;
        let want = usize::try_from(call.len).unwrap_or(usize::MAX);
        let result = self.recv_map(&mut call, nonblock);
        self.trace_received(want, &result.map(|()| call.len as usize), DataPath::Map);
        result?;
        // If this copy to the program fails, the data is not lost: the ioctl's return value has the
        // length as well.
        let _ = user().writer().write(&call);
        Ok(i32::try_from(call.len).unwrap_or(i32::MAX))
    }

    fn recv_map(self: &Arc<Self>, call: &mut uapi::zrs_ioc_recv_map, nonblock: bool) -> Result {
        const FLAGS: u32 = uapi::ZRS_RECV_MAP_DONTWAIT | uapi::ZRS_RECV_MAP_SHIFT;
        let reserved = call.reserved0 != 0 || call.reserved != [0; 2];
        if reserved || call.flags & !FLAGS != 0 || call.len == 0 {
            return Err(EINVAL);
        }
        let addr = usize::try_from(call.addr).map_err(|_| EFAULT)?;
        let (has_ring, sk) = {
            let inner = self.inner.lock();
            (inner.ring.is_some(), inner.sk.clone())
        };
        if has_ring {
            return Err(EINVAL);
        }
        let area = self.asked.lock().area.clone();
        let area = area.ok_or(EFAULT)?;
        let room = area.end_of(addr)? - addr;
        let want = usize::try_from(call.len)
            .map_or(room, |len| len.min(room))
            .min(MOST);
        let nonblock = nonblock || call.flags & uapi::ZRS_RECV_MAP_DONTWAIT != 0;
        let timeout = sk.map(|sk| sk.rcvtimeo(nonblock));
        let timeout = timeout.ok_or(ENOTCONN)?;
        // The program no longer needs the pages that were mapped there.
        area.take_back(addr..addr + want)?;
        if self.reap() {
            self.send_pending();
        }
        let mut target = Target {
            area: &area,
            addr,
            maps: false,
        };
        let mut copied = 0;
        let mut recv = Receive::new(self, timeout, 1, want);
        while let Some(mut piece) = recv.next()? {
            if recv.got() == 0 && call.flags & uapi::ZRS_RECV_MAP_SHIFT != 0 {
                let by = Some(shift(addr, &piece)).filter(|by| *by < want);
                let by = by.unwrap_or(0);
                target.addr += by;
                recv.limit(want - by, &mut piece);
            }
            match self.deliver(&mut target, recv.got(), &piece) {
                Ok((0, _)) => {
                    recv.consume(piece, Taken::NOTHING);
                    break;
                }
                Ok((n, mapped)) => {
                    if mapped == 0 {
                        copied += n;
                    }
                    recv.consume(piece, Taken::mapped(n, mapped));
                    if task::signal_pending() {
                        break;
                    }
                }
                Err(e) => {
                    recv.consume(piece, Taken::NOTHING);
                    if recv.got() == 0 {
                        return Err(e);
                    }
                    break;
                }
            }
        }
        call.addr = target.addr as u64;
        call.len = recv.got() as u64;
        call.copied = copied as u64;
        Ok(())
    }

    /// Delivers the beginning of `piece` behind the `got` bytes that were delivered before. Returns
    /// the number of delivered bytes, and how many of them were mapped: all or none. Returns 0
    /// bytes if the call should end, so that the program can give pages back before it calls again.
    /// Sleeps.
    fn deliver(
        self: &Arc<Self>,
        target: &mut Target<'_>,
        got: usize,
        piece: &RxPiece<'_>,
    ) -> Result<(usize, usize)> {
        let (area, at, len) = (target.area, target.addr + got, piece.len);
        let payload = piece.payload()?;
        let copy = |len| Ok((area.copy(at, len, &payload)?, 0));
        let RxSource::Window(window, off) = &piece.source else {
            return copy(len);
        };
        let off = *off as usize + piece.from;
        target.maps = (off ^ at) & !PAGE_MASK == 0 && (target.maps || len > COPY_MAX);
        if !target.maps {
            return copy(len);
        }
        let head = at.next_multiple_of(PAGE_SIZE) - at;
        if head > 0 {
            return copy(len.min(head));
        }
        let share = self.mappable(window);
        let whole = len.min(share) & PAGE_MASK;
        if whole == 0 && len >= PAGE_SIZE && got > 0 {
            // End the call: the program may give pages back before it calls again.
            return Ok((0, 0));
        }
        if whole == 0 || self.watch_mapped().is_err() {
            return copy(len);
        }
        let n = window.map_to_area(off, whole, area, at)?;
        Ok((n, n))
    }
}

/// Distance from `addr` to the address where the piece should begin, so that its whole pages can be
/// mapped.
fn shift(addr: usize, piece: &RxPiece<'_>) -> usize {
    match &piece.source {
        RxSource::Window(_, off) => {
            let off = *off as usize + piece.from;
            off.wrapping_sub(addr) & !PAGE_MASK
        }
        RxSource::Held(_) | RxSource::Area(..) => 0,
    }
}
