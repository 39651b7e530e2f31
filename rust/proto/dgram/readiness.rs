// SPDX-License-Identifier: GPL-2.0

//! Readiness of a datagram socket: the events that poll() reports, as UDP's.

use super::super::readiness::{self, ERR, HUP, IN, PRI, RDHUP};

/// `POLLOUT`, `POLLWRNORM` and `POLLWRBAND`, which a stream does not report.
pub const OUT: u32 = readiness::OUT | 0x0200;

/// The state of a socket, for readiness.
#[derive(Clone, Copy, Debug, Default)]
pub struct View {
    /// A datagram waits.
    pub readable: bool,
    /// There is room for sending: SO_SNDBUF has some, and no link withholds it.
    pub writable: bool,
    /// The program has shut its reading direction.
    pub shut_read: bool,
    /// The program has shut its writing direction.
    pub shut_write: bool,
    /// An error waits in SO_ERROR or on the error queue.
    pub error: bool,
    /// SO_SELECT_ERR_QUEUE: an error is also what select() calls exceptional.
    pub selects_errors: bool,
}

/// The events of a socket with a UDP socket inside, from those of both. Data may come from either;
/// there is room only if both have some.
pub fn with_companion(own: u32, beside: u32) -> u32 {
    let any = (own | beside) & (IN | ERR | PRI | RDHUP | HUP);
    any | (own & beside & OUT)
}

/// The events that hold now, whatever was asked for.
pub fn events(v: &View) -> u32 {
    let parts = [
        (v.error, ERR),
        (v.error && v.selects_errors, PRI),
        (v.shut_read, RDHUP | IN),
        (v.shut_read && v.shut_write, HUP),
        (v.readable, IN),
        (v.writable, OUT),
    ];
    let set = parts.into_iter().filter(|(holds, _)| *holds);
    set.fold(0, |mask, (_, events)| mask | events)
}
