// SPDX-License-Identifier: GPL-2.0

//! A socket's channel: an entry of its host's link table, and reached by grants alone. The tables
//! are so small that it comes back from somewhere almost every time.

use std::cell::RefCell;
use std::fmt;
use std::rc::Rc;

use zrs_core::channel::{Channel, Chunk, Event, Failure, Plan, State};
use zrs_core::entry_word::Work;
use zrs_core::wire::Header;
use zrs_core::{ChanId, Violation};

use crate::world::SockId;
use common::parking::there_and_back;
use common::table::Table;

pub type ChannelTable = Table<Channel, SockId>;

pub struct Entry {
    id: ChanId,
    table: Rc<RefCell<ChannelTable>>,
    /// The state that the program still sees after the entry was freed.
    last: RefCell<Option<Channel>>,
}

impl Entry {
    /// An entry that was submitted.
    pub fn new(table: &Rc<RefCell<ChannelTable>>, id: ChanId) -> Self {
        Self {
            id,
            table: table.clone(),
            last: RefCell::new(None),
        }
    }

    /// A channel that there is no entry for.
    pub fn without(&self, ch: Channel) -> Self {
        Self {
            last: RefCell::new(Some(ch)),
            ..Self::new(&self.table, self.id)
        }
    }

    pub fn local(&self) -> ChanId {
        self.id
    }

    /// Frees the entry; whose it was.
    pub fn free(&mut self) -> Option<SockId> {
        let last = self.with(|c| there_and_back(c));
        *self.last.get_mut() = Some(last);
        self.table.borrow_mut().remove(self.id).ok()
    }

    fn with<T>(&self, f: impl FnOnce(&mut Channel) -> T) -> T {
        if let Some(last) = &mut *self.last.borrow_mut() {
            return f(last);
        }
        let mut t = self.table.borrow_mut();
        let mut grant = t.grant(self.id).expect("nobody else has it");
        let regs = grant.regs_mut();
        assert_eq!(regs.local(), self.id);
        if t.stats().hits % 32 == 0 {
            // Now and then also where there are slots enough.
            **regs = there_and_back(regs);
        }
        let got = f(regs);
        let (control, closed) = (regs.has_pending_control(), regs.state() == State::Closed);
        t.write_back(grant);
        let work = t.work(self.id);
        assert_eq!(
            (work.has(Work::TX), work.has(Work::COMPLETE)),
            (control, closed)
        );
        got
    }
}

impl fmt::Debug for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.with(|c| c.fmt(f))
    }
}

macro_rules! by_grant {
    ($(fn $name:ident($($arg:ident: $of:ty),*) $(-> $ret:ty)?;)*) => {
        impl Entry {
            $(pub fn $name(&self, $($arg: $of),*) $(-> $ret)? {
                self.with(|c| c.$name($($arg),*))
            })*
        }
    };
}

by_grant! {
    fn state() -> State;
    fn failure() -> Option<Failure>;
    fn has_pending_control() -> bool;
    fn next_control() -> Option<Header>;
    fn on_message(h: &Header) -> Result<Event, Violation>;
    fn take_room() -> bool;
    fn plan(want: u32, bulk: bool) -> Plan;
    fn commit(plan: Plan) -> Option<Chunk>;
    fn corked() -> u32;
    fn cork(n: u32) -> bool;
    fn uncork(n: u32) -> u32;
    fn writable() -> bool;
    fn read_ended() -> bool;
    fn write_ended() -> bool;
    fn window_size() -> Option<u32>;
    fn peer_window_size() -> Option<u32>;
    fn peer_writes_done() -> bool;
    fn freed(window: u32, small: u32);
    fn moved(window: u64);
    fn window_unread() -> u64;
    fn grant(size: u32, addr: u64, key: u32) -> bool;
    fn deny();
    fn revoke() -> bool;
    fn shut(unread: bool);
    fn shut_read();
    fn shut_write();
    fn time_out() -> bool;
    fn try_again() -> bool;
    fn abort(why: Failure);
}
