// SPDX-License-Identifier: GPL-2.0

//! `zrs/cm_event`: injects events of the connection manager into links, for the test of each
//! event's effect. Events are numbers of `enum rdma_cm_event_type`.
//!
//! - `SIDE now EVENT STATUS`: every link of that side that is up gets the event. ENOENT if none is
//!   up.
//! - `SIDE AT EVENT STATUS TIMES`: the next `TIMES` times that the event `AT` occurs there, the
//!   link gets `EVENT` instead, or no event if that is `none`.
//!
//! `SIDE` is `connecting` or `accepting`. Reading returns how many times an order will still be
//! followed.

use core::str::{FromStr, SplitAsciiWhitespace};

use kernel::debugfs::{Dir, File};
use kernel::fmt;
use kernel::prelude::*;
use kernel::sync::Arc;
use kernel::uaccess::UserSliceReader;

use crate::ib::cm::inject::{Order, NOTHING};
use crate::transport::context::Transport;
use crate::transport::link::LinkState;

/// The file, which is removed when this is dropped.
#[pin_data]
pub(super) struct Knob {
    #[pin]
    file: File<Arc<Transport>>,
}

impl Knob {
    pub(super) fn new(dir: &Dir, transport: Arc<Transport>) -> impl PinInit<Self, Error> + '_ {
        try_pin_init!(Self {
            file <- dir.read_write_callback_file(c"cm_event", transport, &read, &write),
        })
    }
}

fn read(_transport: &Arc<Transport>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
    writeln!(f, "{}", Order::left())
}

fn write(transport: &Arc<Transport>, from: &mut UserSliceReader) -> Result {
    let mut buf = [0; 64];
    let text = buf.get_mut(..from.len()).ok_or(EINVAL)?;
    from.read_slice(text)?;
    let text = core::str::from_utf8(text).map_err(|_| EINVAL)?;
    let mut words = text.split_ascii_whitespace();
    let accepting = match words.next() {
        Some("connecting") => false,
        Some("accepting") => true,
        _ => return Err(EINVAL),
    };
    let at = words.next().ok_or(EINVAL)?;
    let event = match words.next() {
        Some("none") => NOTHING,
        word => parsed(word)?,
    };
    let status = parsed(words.next())?;
    if at == "now" {
        end(words)?;
        return tell_now(transport, accepting, event, status);
    }
    let times = parsed(words.next())?;
    end(words)?;
    let at = parsed(Some(at))?;
    Order {
        accepting,
        at,
        event,
        status,
    }
    .arm(times);
    Ok(())
}

fn parsed<T: FromStr>(word: Option<&str>) -> Result<T> {
    word.and_then(|word| word.parse().ok()).ok_or(EINVAL)
}

fn end(mut words: SplitAsciiWhitespace<'_>) -> Result {
    words.next().map_or(Ok(()), |_| Err(EINVAL))
}

fn tell_now(transport: &Arc<Transport>, accepting: bool, event: u32, status: i32) -> Result {
    let mut told = false;
    for link in transport.snapshot()? {
        if link.accepted == accepting && link.state() == LinkState::Up {
            link.tell(event, status);
            told = true;
        }
    }
    told.then_some(()).ok_or(ENOENT)
}
