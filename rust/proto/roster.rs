// SPDX-License-Identifier: GPL-2.0

//! The channels on a link, and the lines in which they wait for their turn (rows L3, L4).
//!
//! Each channel has a *seat* as long as it is on the link. In the line [`Line::Talk`] wait those with
//! a control message to say: one message each, in turn. In [`Line::Small`] and [`Line::Bulk`] wait those whose
//! programs found the link without room for data. When there is room, the first ones are *called*: who was called
//! goes before everybody else until it has sent [`QUANTUM`] bytes, then it waits again, behind the others. Debts are
//! kept: that is surplus round robin, fair in bytes whatever the size of the messages. Who does not come when he is
//! called keeps nobody waiting. While nobody waits, nobody is counted. A small message never waits behind bulk data.

use core::ops::DerefMut;

use super::ChanId;

/// Bytes that a channel may send when it is called, while others wait.
pub const QUANTUM: i32 = 128 * 1024;

/// Less than this nobody is asked to send: debt is better than many small messages.
const LEAST: u32 = 16 * 1024;

/// What channels wait for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Line {
    /// To say a control message.
    Talk,
    /// To send a small message.
    Small,
    /// To send bulk data.
    Bulk,
}

const LINES: usize = 3;

/// Both neighbours in a line: 1 + seat, 0: none.
#[derive(Clone, Copy, Default)]
struct Hook {
    before: u32,
    behind: u32,
    waits: bool,
}

/// A seat; storage is filled with empty ones.
pub struct Seat<T> {
    taken: Option<(ChanId, T)>,
    next_free: u32,
    hooks: [Hook; LINES],
    turns: [Turn; LINES],
}

/// What a call in a line is worth.
#[derive(Clone, Copy, Default)]
struct Turn {
    /// Was called, and may still send.
    called: bool,
    /// How much; less than 0: debt.
    left: i32,
}

impl Turn {
    const NONE: Self = Self {
        called: false,
        left: 0,
    };

    /// It is called, or called again before it has had its turn; false if it still has debt.
    fn call(&mut self) -> bool {
        if !self.called {
            self.left = self.left.saturating_add(QUANTUM).min(QUANTUM);
        }
        self.called = self.left > 0;
        self.called
    }
}

impl<T> Seat<T> {
    /// An empty one.
    pub const fn new() -> Self {
        Self {
            taken: None,
            next_free: 0,
            hooks: [Hook {
                before: 0,
                behind: 0,
                waits: false,
            }; LINES],
            turns: [Turn::NONE; LINES],
        }
    }
}

impl<T> Default for Seat<T> {
    fn default() -> Self {
        Self::new()
    }
}

/// First and last of a line: 1 + seat, 0: none.
#[derive(Clone, Copy, Default)]
struct Ends {
    first: u32,
    last: u32,
    len: u32,
}

/// The channels of a link. `S`: the seats, of which there can be more later.
pub struct Roster<S> {
    seats: S,
    /// 1 + the first seat that was left, 0: none.
    free: u32,
    /// Seats from here on have never been taken.
    fresh: u32,
    taken: u32,
    lines: [Ends; LINES],
}

impl<T: 'static, S: DerefMut<Target = [Seat<T>]>> Roster<S> {
    /// Empty seats, perhaps none.
    pub fn new(seats: S) -> Self {
        Self {
            seats,
            free: 0,
            fresh: 0,
            taken: 0,
            lines: [Ends::default(); LINES],
        }
    }

    /// Channels.
    pub fn len(&self) -> usize {
        self.taken as usize
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.taken == 0
    }

    /// Seats.
    pub fn seats(&self) -> usize {
        self.seats.len()
    }

    /// Moves to more seats, of which those in use keep their numbers; returns the old ones, empty. Gives `seats` back
    /// if they are not more.
    pub fn move_to(&mut self, mut seats: S) -> S {
        if seats.len() > self.seats.len() {
            for (new, old) in seats.iter_mut().zip(self.seats.iter_mut()) {
                core::mem::swap(new, old);
            }
            core::mem::swap(&mut seats, &mut self.seats);
        }
        seats
    }

    /// Takes a seat for channel `id`; gives `value` back when there is none.
    pub fn sit(&mut self, id: ChanId, value: T) -> Result<u32, T> {
        let seat = match self.free.checked_sub(1) {
            Some(seat) => seat,
            None => self.fresh,
        };
        let Some(place) = self.seats.get_mut(seat as usize) else {
            return Err(value);
        };
        let next = place.next_free;
        *place = Seat::new();
        place.taken = Some((id, value));
        if self.free == 0 {
            self.fresh = seat.wrapping_add(1);
        } else {
            self.free = next;
        }
        self.taken = self.taken.wrapping_add(1);
        Ok(seat)
    }

    /// Channel `id` leaves its seat, and all lines. `None` if it is not there.
    pub fn leave(&mut self, id: ChanId, seat: u32) -> Option<T> {
        self.get(id, seat)?;
        for line in [Line::Talk, Line::Small, Line::Bulk] {
            self.leave_line(line, seat);
        }
        let free = self.free;
        let place = self.seats.get_mut(seat as usize)?;
        let (_, value) = place.taken.take()?;
        place.next_free = free;
        self.free = seat.wrapping_add(1);
        self.taken = self.taken.wrapping_sub(1);
        Some(value)
    }

    /// What belongs to channel `id`, if it has this seat.
    pub fn get(&self, id: ChanId, seat: u32) -> Option<&T> {
        let taken = self.seats.get(seat as usize)?.taken.as_ref();
        taken.filter(|(who, _)| *who == id).map(|(_, value)| value)
    }

    /// What belongs to the channel in this seat.
    pub fn at(&self, seat: usize) -> Option<&T> {
        let taken = self.seats.get(seat)?.taken.as_ref();
        taken.map(|(_, value)| value)
    }

    /// All channels.
    #[cfg(not(MODULE))]
    pub fn iter(&self) -> impl Iterator<Item = (ChanId, &T)> {
        let taken = self.seats.iter().filter_map(|seat| seat.taken.as_ref());
        taken.map(|(id, value)| (*id, value))
    }

    /// Lets everybody go.
    pub fn drain(&mut self) -> impl Iterator<Item = (ChanId, T)> + '_ {
        self.lines = [Ends::default(); LINES];
        self.taken = 0;
        self.free = 0;
        self.fresh = 0;
        self.seats
            .iter_mut()
            .filter_map(|seat| core::mem::take(seat).taken)
    }

    /// How many wait in a line.
    pub fn waiting(&self, line: Line) -> usize {
        self.ends(line).len as usize
    }

    /// Whether the channel in this seat waits in the line.
    pub fn waits(&self, line: Line, seat: u32) -> bool {
        self.hook(line, seat).is_some_and(|hook| hook.waits)
    }

    /// Channel `id` waits, behind all others, unless it waits already. False if it has not this seat.
    pub fn join(&mut self, line: Line, id: ChanId, seat: u32) -> bool {
        if self.get(id, seat).is_none() {
            return false;
        }
        self.join_line(line, seat, false);
        true
    }

    /// The first in a line.
    pub fn first(&self, line: Line) -> Option<(ChanId, &T)> {
        let seat = self.ends(line).first.checked_sub(1)?;
        let taken = self.seats.get(seat as usize)?.taken.as_ref();
        taken.map(|(id, value)| (*id, value))
    }

    /// Takes the first out of a line, with its seat.
    pub fn next(&mut self, line: Line) -> Option<(ChanId, u32, &T)> {
        let seat = self.ends(line).first.checked_sub(1)?;
        self.leave_line(line, seat);
        let taken = self.seats.get(seat as usize)?.taken.as_ref();
        taken.map(|(id, value)| (*id, seat, value))
    }

    /// Channel `id` has `want` bytes to send. How many of them it may send now, if the link has `room`;
    /// `None`: it waits in `line` until it is called.
    pub fn ask(&mut self, line: Line, id: ChanId, seat: u32, want: u32, room: bool) -> Option<u32> {
        self.get(id, seat)?;
        let others = self.waiting(line) > usize::from(self.waits(line, seat));
        let first = self.ends(line).first == seat.wrapping_add(1);
        let turn = self.turn_mut(line, seat)?;
        if !others {
            *turn = Turn::NONE;
        } else if room && first && !turn.called {
            // It would be called next.
            turn.call();
        }
        let Turn { called, left } = *turn;
        if !room || others && !called {
            self.join_line(line, seat, called);
            return None;
        }
        let most = match others {
            true => u32::try_from(left).unwrap_or(0).max(LEAST),
            false => want,
        };
        self.leave_line(line, seat);
        Some(want.min(most))
    }

    /// It has sent so many of what it asked for in a line, header and all.
    pub fn sent(&mut self, line: Line, id: ChanId, seat: u32, bytes: u32) {
        if self.get(id, seat).is_none() {
            return;
        }
        if let Some(turn) = self.turn_mut(line, seat).filter(|turn| turn.called) {
            let bytes = i32::try_from(bytes).unwrap_or(i32::MAX);
            turn.left = turn.left.saturating_sub(bytes);
            turn.called = turn.left > 0;
        }
    }

    /// Calls the first in a line that has no debt any more: those before it wait on, with less of it.
    pub fn call(&mut self, line: Line) -> Option<&T> {
        // After one round everybody has less debt by a quantum, and none was ever more than a chunk.
        for _ in 0..self.waiting(line).saturating_mul(4) {
            let seat = self.ends(line).first.checked_sub(1)?;
            self.leave_line(line, seat);
            if self.turn_mut(line, seat)?.call() {
                let taken = self.seats.get(seat as usize)?.taken.as_ref();
                return taken.map(|(_, value)| value);
            }
            self.join_line(line, seat, false);
        }
        None
    }

    fn turn_mut(&mut self, line: Line, seat: u32) -> Option<&mut Turn> {
        let place = self.seats.get_mut(seat as usize)?;
        place.turns.get_mut(line as usize)
    }

    fn ends(&self, line: Line) -> Ends {
        self.lines.get(line as usize).copied().unwrap_or_default()
    }

    fn hook(&self, line: Line, seat: u32) -> Option<&Hook> {
        self.seats.get(seat as usize)?.hooks.get(line as usize)
    }

    fn set_hook(&mut self, line: Line, number: u32, set: impl FnOnce(&mut Hook)) {
        let seat = number.checked_sub(1);
        let place = seat.and_then(|seat| self.seats.get_mut(seat as usize));
        if let Some(hook) = place.and_then(|place| place.hooks.get_mut(line as usize)) {
            set(hook);
        }
    }

    /// Waits, behind all others or before them, unless it waits already.
    fn join_line(&mut self, line: Line, seat: u32, before: bool) {
        if self.waits(line, seat) {
            return;
        }
        let number = seat.wrapping_add(1);
        let mut ends = self.ends(line);
        let (before, behind) = match before {
            true => (0, core::mem::replace(&mut ends.first, number)),
            false => (core::mem::replace(&mut ends.last, number), 0),
        };
        self.set_hook(line, number, |hook| {
            *hook = Hook {
                before,
                behind,
                waits: true,
            }
        });
        self.set_hook(line, before, |other| other.behind = number);
        self.set_hook(line, behind, |other| other.before = number);
        if ends.first == 0 {
            ends.first = number;
        }
        if ends.last == 0 {
            ends.last = number;
        }
        ends.len = ends.len.wrapping_add(1);
        self.set_ends(line, ends);
    }

    fn leave_line(&mut self, line: Line, seat: u32) {
        let Some(hook) = self.hook(line, seat).copied().filter(|hook| hook.waits) else {
            return;
        };
        let mut ends = self.ends(line);
        match hook.before {
            0 => ends.first = hook.behind,
            before => self.set_hook(line, before, |other| other.behind = hook.behind),
        }
        match hook.behind {
            0 => ends.last = hook.before,
            behind => self.set_hook(line, behind, |other| other.before = hook.before),
        }
        ends.len = ends.len.wrapping_sub(1);
        self.set_ends(line, ends);
        self.set_hook(line, seat.wrapping_add(1), |hook| *hook = Hook::default());
    }

    fn set_ends(&mut self, line: Line, ends: Ends) {
        if let Some(place) = self.lines.get_mut(line as usize) {
            *place = ends;
        }
    }
}
