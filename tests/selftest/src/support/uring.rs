// SPDX-License-Identifier: GPL-2.0
//! As much of io_uring as a socket needs: one request at a time.

use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::sync::atomic::{AtomicU32, Ordering};

use zrs_sys::Map;

use crate::support::raw::{Errno, Result};

/// The structures of <linux/io_uring.h>, by offsets in words of 32 bits.
const PARAMS_WORDS: usize = 30;
const SQ_TAIL: usize = 11;
const SQ_ARRAY: usize = 16;
const CQ_HEAD: usize = 20;
const CQ_TAIL: usize = 21;
const CQ_MASK: usize = 22;
const CQ_CQES: usize = 25;

const OFF_SQES: u64 = 0x1000_0000;
const OP_POLL_ADD: u32 = 6;
const OP_ACCEPT: u32 = 13;
const OP_SEND: u32 = 26;
const OP_RECV: u32 = 27;
const OP_SEND_ZC: u32 = 47;
const ENTER_GETEVENTS: u32 = 1;
const ENTRIES: u32 = 4;
const CQE_MORE: u32 = 2;
const CQE_NOTIF: u32 = 8;
/// Of one of the two rings, which are in one mapping; they are far smaller.
const RING_BYTES: usize = 4096;

/// A ring.
pub struct Uring {
    fd: OwnedFd,
    rings: Map,
    sqes: Map,
    params: [u32; PARAMS_WORDS],
}

impl Uring {
    /// EPERM, ENOSYS: io_uring is not available.
    pub fn new() -> Result<Self> {
        let mut params = [0_u32; PARAMS_WORDS];
        // SAFETY: `params` is as long as the structure.
        let fd = unsafe { libc::syscall(libc::SYS_io_uring_setup, ENTRIES, params.as_mut_ptr()) };
        let fd = i32::try_from(fd).map_err(|_| Errno(libc::EOVERFLOW))?;
        if fd < 0 {
            return Err(std::io::Error::last_os_error().into());
        }
        // SAFETY: the descriptor is new.
        let fd = unsafe { OwnedFd::from_raw_fd(fd) };
        let rings = Map::shared_write(fd.as_fd(), 0, RING_BYTES)?;
        let sqes = Map::shared_write(fd.as_fd(), OFF_SQES, ENTRIES as usize * 64)?;
        Ok(Self {
            fd,
            rings,
            sqes,
            params,
        })
    }

    /// A word shared with the kernel, `bytes` behind the offset in field `field` of the parameters.
    fn word(&self, field: usize, bytes: u32) -> &AtomicU32 {
        let at = (self.params[field] + bytes) as usize;
        assert!(at + 4 <= RING_BYTES && at % 4 == 0);
        // SAFETY: a word within the mapping, which stays while `self` does; the kernel uses it as
        // an atomic, too.
        unsafe { AtomicU32::from_ptr(self.rings.base().as_ptr().add(at).cast()) }
    }

    fn enter(&self, submit: u32, wait: u32) -> Result<()> {
        // SAFETY: no signal mask is given.
        let n = unsafe {
            libc::syscall(
                libc::SYS_io_uring_enter,
                self.fd.as_raw_fd(),
                submit,
                wait,
                ENTER_GETEVENTS,
                0_usize,
                0_usize,
            )
        };
        match n {
            0.. => Ok(()),
            _ => Err(std::io::Error::last_os_error().into()),
        }
    }

    /// The next completion: result and flags.
    fn next(&self) -> Result<(i32, u32)> {
        let head = self.word(CQ_HEAD, 0).load(Ordering::Relaxed);
        while self.word(CQ_TAIL, 0).load(Ordering::Acquire) == head {
            self.enter(0, 1)?;
        }
        let mask = self.word(CQ_MASK, 0).load(Ordering::Relaxed);
        let at = (head & mask) * 16;
        let result = self.word(CQ_CQES, at + 8).load(Ordering::Relaxed);
        let flags = self.word(CQ_CQES, at + 12).load(Ordering::Relaxed);
        self.word(CQ_HEAD, 0)
            .store(head.wrapping_add(1), Ordering::Release);
        Ok((result as i32, flags))
    }

    /// Hands a request to the kernel: its code, the descriptor, address and length of its memory,
    /// and its flags.
    ///
    /// # Safety
    ///
    /// The memory must be valid for the request, until its last completion has come.
    unsafe fn submit(
        &mut self,
        op: u32,
        fd: &impl AsFd,
        (addr, len): (u64, usize),
        flags: u32,
    ) -> Result<()> {
        let len = u32::try_from(len).map_err(|_| Errno(libc::EOVERFLOW))?;
        let mut sqe = [0_u32; 16];
        sqe[0] = op;
        sqe[1] = fd.as_fd().as_raw_fd() as u32;
        (sqe[4], sqe[5]) = (addr as u32, (addr >> 32) as u32);
        (sqe[6], sqe[7]) = (len, flags);
        // SAFETY: the first entry; the kernel reads it in enter() only.
        unsafe { self.sqes.base().cast::<[u32; 16]>().write(sqe) };
        let tail = self.word(SQ_TAIL, 0);
        // Each request is in the first entry, which each slot of the ring that is used names.
        let slot = tail.load(Ordering::Relaxed) % ENTRIES;
        self.word(SQ_ARRAY, slot * 4).store(0, Ordering::Relaxed);
        tail.fetch_add(1, Ordering::Release);
        self.enter(1, 0)
    }

    /// The result of a request that has one completion.
    fn done(&self) -> Result<usize> {
        let (result, _) = self.next()?;
        usize::try_from(result).map_err(|_| Errno(-result))
    }

    /// IORING_OP_SEND.
    pub fn send(&mut self, fd: &impl AsFd, buf: &[u8], flags: i32) -> Result<usize> {
        let addr = buf.as_ptr().expose_provenance() as u64;
        // SAFETY: the buffer is there until the request is done, below, and only read.
        unsafe { self.submit(OP_SEND, fd, (addr, buf.len()), flags as u32) }?;
        self.done()
    }

    /// IORING_OP_RECV. `then` is called after the request.
    pub fn recv(
        &mut self,
        fd: &impl AsFd,
        buf: &mut [u8],
        flags: i32,
        then: impl FnOnce() -> Result<()>,
    ) -> Result<usize> {
        let addr = buf.as_mut_ptr().expose_provenance() as u64;
        // SAFETY: the buffer is ours, and there until the request is done, below; if `then` panics,
        // the process ends.
        unsafe { self.submit(OP_RECV, fd, (addr, buf.len()), flags as u32) }?;
        let told = then();
        let n = self.done()?;
        told.map(|()| n)
    }

    /// IORING_OP_ACCEPT. `then` is called after the request.
    pub fn accept(&mut self, fd: &impl AsFd, then: impl FnOnce()) -> Result<OwnedFd> {
        // SAFETY: without an address the request needs no memory.
        unsafe { self.submit(OP_ACCEPT, fd, (0, 0), libc::SOCK_CLOEXEC as u32) }?;
        then();
        let fd = i32::try_from(self.done()?).map_err(|_| Errno(libc::EOVERFLOW))?;
        // SAFETY: the descriptor is new.
        Ok(unsafe { OwnedFd::from_raw_fd(fd) })
    }

    /// IORING_OP_POLL_ADD: returns the ready ones of `events` and of those that are always
    /// reported. `then` is called after the request.
    pub fn poll(
        &mut self,
        fd: &impl AsFd,
        events: i16,
        then: impl FnOnce() -> Result<()>,
    ) -> Result<i16> {
        // SAFETY: the request needs no memory.
        unsafe { self.submit(OP_POLL_ADD, fd, (0, 0), events as u32) }?;
        let told = then();
        let bits = self.done()?;
        told.map(|()| bits as i16)
    }

    /// IORING_OP_SEND_ZC with the flags of send(). Waits for its result, then for the word that the
    /// memory is free again. EPROTO: they did not come like that.
    pub fn send_zc(&mut self, fd: &impl AsFd, buf: &[u8], flags: i32) -> Result<usize> {
        let addr = buf.as_ptr().expose_provenance() as u64;
        // SAFETY: the buffer is there until the notification has come, below, and only read.
        unsafe { self.submit(OP_SEND_ZC, fd, (addr, buf.len()), flags as u32) }?;
        let (result, flags) = self.next()?;
        if flags & CQE_MORE != 0 {
            let (_, flags) = self.next()?;
            if flags & CQE_NOTIF == 0 {
                return Err(Errno(libc::EPROTO));
            }
        }
        match usize::try_from(result) {
            Ok(_) if flags & CQE_MORE == 0 => Err(Errno(libc::EPROTO)),
            Ok(n) => Ok(n),
            Err(_) => Err(Errno(-result)),
        }
    }
}
