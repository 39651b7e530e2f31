// SPDX-License-Identifier: GPL-2.0

//! The receive queue of a datagram socket, which SO_RCVBUF bounds.
//!
//! A datagram is charged when it is whole: one whose rest never arrives takes no room from others.
//! As with UDP, an empty queue takes one datagram of any size.

use core::ops::DerefMut;

use super::super::addr::{Addr, Ip};
use super::fifo::Fifo;

/// The charge of a datagram beside its bytes.
pub const OVERHEAD: u32 = 256;

/// A datagram that waits to be received. `D` holds its bytes.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Datagram<D> {
    /// The sender.
    pub from: Addr,
    /// The address that it was sent to.
    pub to: Ip,
    /// Bytes.
    pub len: u32,
    /// When it arrived, in nanoseconds of any clock.
    pub born: u64,
    /// Datagrams that the socket had dropped before; see SO_RXQ_OVFL.
    pub drops: u32,
    /// It is empty, and MSG_PEEK has shown it.
    pub peeked: bool,
    /// Its bytes.
    pub data: D,
}

impl<D> Datagram<D> {
    fn charge(&self) -> u64 {
        charge(self.len)
    }
}

/// What a datagram of `len` bytes counts for against SO_RCVBUF.
fn charge(len: u32) -> u64 {
    u64::from(len).saturating_add(OVERHEAD.into())
}

/// The queue. `S`: its storage, which may grow.
pub struct RxQueue<S> {
    datagrams: Fifo<S>,
    /// Bytes of the queue, with their overhead.
    charged: u64,
    /// Datagrams dropped, wrapping.
    drops: u32,
}

impl<D: 'static, S: DerefMut<Target = [Option<Datagram<D>>]>> RxQueue<S> {
    /// An empty queue.
    pub fn new(slots: S) -> Self {
        Self {
            datagrams: Fifo::new(slots),
            charged: 0,
            drops: 0,
        }
    }

    /// Whether [`Self::push`] needs a larger storage, see [`Self::move_to`].
    pub fn is_short_of_slots(&self) -> bool {
        self.datagrams.len() >= self.datagrams.slots()
    }

    /// The number of slots.
    pub fn slots(&self) -> usize {
        self.datagrams.slots()
    }

    /// Moves to a larger storage; returns the old one.
    pub fn move_to(&mut self, slots: S) -> S {
        self.datagrams.move_to(slots)
    }

    /// Whether there is room for a datagram of `len` bytes, with `rcvbuf` as SO_RCVBUF.
    pub fn has_room(&self, len: u32, rcvbuf: u32) -> bool {
        self.charged == 0 || self.charged.saturating_add(charge(len)) <= rcvbuf.into()
    }

    /// Queues a datagram that is whole, with `rcvbuf` as SO_RCVBUF. Returns it if there is no room,
    /// or no slot; it counts as dropped then.
    pub fn push(&mut self, mut datagram: Datagram<D>, rcvbuf: u32) -> Result<(), Datagram<D>> {
        let charge = datagram.charge();
        datagram.drops = self.drops;
        let pushed = match self.has_room(datagram.len, rcvbuf) {
            true => self.datagrams.push(datagram),
            false => Err(datagram),
        };
        match &pushed {
            Ok(()) => self.charged = self.charged.saturating_add(charge),
            Err(_) => self.count_drop(),
        }
        pushed
    }

    /// The datagram in which the byte `off` of the queue is, SO_PEEK_OFF, and the place of that
    /// byte in it. With an offset of 0 an empty datagram is passed over once it was shown.
    fn find(&self, off: u32) -> Option<(usize, u32)> {
        let (mut n, mut left) = (0_usize, off);
        loop {
            let datagram = self.datagrams.get(n)?;
            if left < datagram.len || left == 0 && !datagram.peeked {
                return Some((n, left));
            }
            left = left.saturating_sub(datagram.len);
            n = n.saturating_add(1);
        }
    }

    /// Whether [`Self::peek_at`] has a datagram to show.
    pub fn shows(&self, off: Option<u32>) -> bool {
        match off {
            Some(off) => self.find(off).is_some(),
            None => !self.is_empty(),
        }
    }

    /// The datagram that MSG_PEEK shows, and from which byte of it on: as with UDP, that at the
    /// offset `off` of the queue, or the first one without SO_PEEK_OFF.
    pub fn peek_at(&mut self, off: Option<u32>) -> Option<(&Datagram<D>, u32)> {
        let (n, at) = match off {
            Some(off) => self.find(off)?,
            None => (0, 0),
        };
        let datagram = self.datagrams.get_mut(n)?;
        datagram.peeked |= datagram.len == 0;
        Some((datagram, at))
    }

    /// The bytes of all datagrams.
    pub fn bytes(&self) -> u64 {
        let all = (0..self.len()).filter_map(|n| self.datagrams.get(n));
        all.map(|datagram| u64::from(datagram.len)).sum()
    }

    /// The next datagram, for FIONREAD.
    pub fn peek(&self) -> Option<&Datagram<D>> {
        self.datagrams.first()
    }

    /// Takes the next datagram out.
    pub fn pop(&mut self) -> Option<Datagram<D>> {
        let datagram = self.datagrams.pop()?;
        self.charged = self.charged.saturating_sub(datagram.charge());
        Some(datagram)
    }

    /// Puts a datagram back that was taken out just now, as it did not reach the program. Returns
    /// it if others have taken its room meanwhile; it counts as dropped then.
    pub fn put_back(&mut self, datagram: Datagram<D>) -> Option<Datagram<D>> {
        let charge = datagram.charge();
        let left = self.datagrams.push_front(datagram).err();
        match left {
            Some(_) => self.count_drop(),
            None => self.charged = self.charged.saturating_add(charge),
        }
        left
    }

    /// Counts a datagram that is dropped: not queued, or taken out for no program.
    pub fn count_drop(&mut self) {
        self.drops = self.drops.wrapping_add(1);
    }

    /// Datagrams in the queue.
    pub fn len(&self) -> usize {
        self.datagrams.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.datagrams.is_empty()
    }

    /// Bytes charged, for SO_MEMINFO.
    pub fn charged(&self) -> u64 {
        self.charged
    }

    /// Datagrams dropped so far, wrapping.
    pub fn drops(&self) -> u32 {
        self.drops
    }
}
