// SPDX-License-Identifier: GPL-2.0
//! A send that is copied to pages, with faults: without memory for a page, or when one cannot be
//! mapped for the device, the bytes go by the buffers of the link.

use std::cell::RefCell;

use super::calls::{err, Calls, Outcome};
use super::errnos;
use super::knobs;
use super::pair::{Pair, World};
use crate::support::checks::say;
use crate::support::raw;

const SIZE: usize = 64 << 10;
const FLAGS: i32 = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
/// The size of a link's buffer.
const BUFFER: usize = 4 << 10;

/// A point, which of its uses in one send fails, and whether the bytes go by the buffers then. With
/// a page there is something to be sent, and it is tried once more for the rest.
const CASES: [(&str, u32, bool); 3] = [
    ("fail_pages", 1, true),
    ("fail_pages", 5, false),
    ("fail_map", 1, true),
];

impl Calls<'_> {
    pub fn copying(&mut self) {
        // Each N: where the faults for pages and for mapping lie depends on how many pages are
        // neighbours.
        let full = std::mem::replace(&mut self.full, true);
        let bytes = RefCell::new(Vec::new());
        self.on_pair(
            "send() of 64 KiB, MSG_DONTWAIT",
            errnos::SEND_COPIED,
            |pair| {
                *bytes.borrow_mut() = pair.lanes[0].next(SIZE);
                Ok(())
            },
            |pair| raw::send(&pair.ends[0], &bytes.borrow(), FLAGS),
            |pair, result| {
                pair.lanes[0].sent += result.unwrap_or(0) as u64;
                pair.drain(1)
            },
        );
        self.full = full;
        for (point, nth, buffers) in CASES {
            let name = format!("send() of 64 KiB, MSG_DONTWAIT, {point} at {nth}");
            if !name.contains(&self.only) {
                continue;
            }
            let result = copied(self.world, point, nth, buffers);
            if let Ok(how) = &result {
                say(&format!("# {how}"));
            }
            let why = result.as_ref().err().map_or("", |e| e);
            self.checks.yes(&name, result.is_ok(), why);
        }
    }
}

/// One such send while `point` fails at its `nth` use. How the bytes went.
fn copied(world: &World, point: &str, nth: u32, buffers: bool) -> Outcome<String> {
    let io = |e: std::io::Error| e.to_string();
    let points = knobs::points().map_err(io)?;
    let knob = points.iter().find(|p| p.name == point);
    let knob = knob.ok_or("there is no such point")?;
    let listener = world.listener().map_err(err("listen"))?;
    let mut pair = Pair::new(world, &listener).map_err(err("connect"))?;
    // With a window from now on.
    pair.send(0, 20_000)?;
    pair.drain(1)?;
    let bytes = pair.lanes[0].next(SIZE);
    let before = world.stats()?.work_requests;
    knob.arm(nth).map_err(io)?;
    let result = raw::send(&pair.ends[0], &bytes, FLAGS);
    if !knob.disarm().map_err(io)? {
        return Err(format!("it did not strike, and send() says {result:?}"));
    }
    let n = result.map_err(err("send"))?;
    let posted = world.stats()?.work_requests - before;
    let how = format!("{n} bytes in {posted} work requests");
    if buffers && posted < n.div_ceil(BUFFER) as u64 {
        return Err(format!("{how}: not by the buffers"));
    }
    // At least the bytes before the page that failed were copied.
    if !buffers && n < (nth as usize - 1) * 4096 {
        return Err(how);
    }
    pair.lanes[0].sent += n as u64;
    pair.drain(1)?;
    pair.works()?;
    Ok(how)
}
