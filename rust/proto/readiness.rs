// SPDX-License-Identifier: GPL-2.0

//! Readiness: from a socket's state to the events poll() reports. Computed at each look, so that a
//! level report ends with its cause.

/// EPOLLIN | EPOLLRDNORM: there is something to read, or the end of the stream.
pub const IN: u32 = 0x0001 | 0x0040;
/// EPOLLPRI: what select() calls an exceptional condition.
pub const PRI: u32 = 0x0002;
/// EPOLLOUT | EPOLLWRNORM: there is room to send.
pub const OUT: u32 = 0x0004 | 0x0100;
/// EPOLLERR.
pub const ERR: u32 = 0x0008;
/// EPOLLHUP.
pub const HUP: u32 = 0x0010;
/// EPOLLRDHUP.
pub const RDHUP: u32 = 0x2000;

/// The state of a socket, for readiness.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Phase {
    /// Never connected, or bound.
    Fresh,
    /// Listening; whether a connection waits.
    Listening {
        /// A connection waits for accept().
        queued: bool,
    },
    /// connect() is in progress.
    Connecting,
    /// Connected now or in the past.
    Connected,
    /// connect() failed.
    Failed,
    /// TCP carries the socket, and answers instead.
    Carried,
}

/// The inputs of readiness.
#[derive(Clone, Copy, Debug)]
pub struct View {
    /// The socket's state.
    pub phase: Phase,
    /// Data waits.
    pub readable: bool,
    /// There is room to send.
    pub writable: bool,
    /// The peer sends no more, or the program has shut its reading direction.
    pub read_ended: bool,
    /// Nothing can be sent any more: sending fails at once.
    pub write_ended: bool,
    /// The program has shut its writing direction, or both directions are gone.
    pub write_shut: bool,
    /// An error waits in SO_ERROR, or a notification on the error queue.
    pub error: bool,
}

/// The events that hold now, whatever was asked for.
pub fn events(v: &View) -> u32 {
    let mut mask = if v.error { ERR } else { 0 };
    match v.phase {
        Phase::Fresh => mask |= OUT | HUP,
        Phase::Listening { queued: true } => mask |= IN,
        Phase::Listening { queued: false } | Phase::Connecting | Phase::Carried => {}
        Phase::Failed => mask |= IN | OUT | HUP | RDHUP,
        Phase::Connected => {
            if v.readable || v.read_ended {
                mask |= IN;
            }
            if v.read_ended {
                mask |= RDHUP;
            }
            if v.writable || v.write_ended {
                mask |= OUT;
            }
            if v.read_ended && v.write_shut {
                mask |= HUP;
            }
        }
    }
    mask
}
