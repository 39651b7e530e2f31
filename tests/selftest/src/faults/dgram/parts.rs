// SPDX-License-Identifier: GPL-2.0
//! Several datagrams of one call (UDP_SEGMENT), and datagrams of several calls (UDP_CORK).

use super::super::calls::{err, Calls, Outcome, Steps};
use super::super::errnos;
use super::super::pair::World;
use super::{posts, Counts, Ends};
use crate::support::raw;

const SOL_UDP: i32 = 17;
const UDP_CORK: i32 = 1;
const UDP_SEGMENT: i32 = 103;

pub fn cork(ends: &Ends, on: i32) -> raw::Result<()> {
    raw::setsockopt(&ends.near, SOL_UDP, UDP_CORK, &on.to_ne_bytes())
}

impl Ends {
    /// Each datagram of `sizes`, which make the message, has arrived or was counted as dropped.
    fn all_accounted(&self, world: &World, segment: usize, before: Counts) -> Outcome<()> {
        let mut rest = self.message.chunks(segment);
        let total = rest.len() as u64;
        let mut got = 0;
        loop {
            let now = self.counts()?;
            if now.sent - before.sent != total {
                return Err(format!("{} sent of {total}", now.sent - before.sent));
            }
            if got + now.dropped_since(before) >= total {
                let more = self.arrived(world, std::time::Duration::ZERO)?;
                let dropped = now.dropped_since(before);
                return match more {
                    None if got + dropped == total => Ok(()),
                    _ => Err(format!("{got} received, {dropped} dropped of {total}")),
                };
            }
            let Some(bytes) = self.arrived(world, world.limit())? else {
                if posts()? != self.posts {
                    return Err("some are lost, as with ECONNRESET".into());
                }
                return Err(format!("{got} arrived of {total}"));
            };
            if !rest.any(|part| part == bytes) {
                return Err(format!("other bytes, {} of them", bytes.len()));
            }
            got += 1;
        }
    }
}

impl Calls<'_> {
    pub(super) fn in_parts(&mut self) {
        for (len, segment, flags) in [
            (4500, 1000, 0),
            (60_000, 20_000, 0),
            (4500, 1000, libc::MSG_DONTWAIT),
            (60_000, 20_000, libc::MSG_ZEROCOPY),
        ] {
            self.segmented(len, segment, flags);
        }
        for (first, second) in [(100, 200), (5000, 30_000)] {
            self.corked(first, second);
        }
    }

    fn segmented(&mut self, len: usize, segment: u16, flags: i32) {
        let zerocopy = flags & libc::MSG_ZEROCOPY != 0;
        let mut before = None;
        let counts = std::cell::RefCell::new(&mut before);
        self.sweep(
            &format!("datagrams: send() of {len} bytes, UDP_SEGMENT of {segment}, flags {flags}"),
            errnos::SEND_DGRAM,
            Steps {
                setup: |world: &World, kept| {
                    let mut ends = Ends::kept(world, kept)?;
                    let size = i32::from(segment).to_ne_bytes();
                    let set = raw::setsockopt(&ends.near, SOL_UDP, UDP_SEGMENT, &size);
                    set.map_err(err("UDP_SEGMENT"))?;
                    ends.next(len)?;
                    **counts.borrow_mut() = Some(ends.counts()?);
                    Ok(ends)
                },
                call: |ends: &mut Ends| {
                    raw::send(&ends.near, &ends.message, flags | libc::MSG_NOSIGNAL)
                },
                after: |world: &World, mut ends: Ends, result: raw::Result<usize>| {
                    let before = counts.borrow_mut().take().expect("counted before");
                    if zerocopy {
                        ends.notified(world, result.is_ok())?;
                    }
                    match result {
                        Ok(n) if n == len => {
                            ends.all_accounted(world, segment.into(), before)?;
                        }
                        Ok(n) => return Err(format!("{n} bytes of {len}")),
                        Err(_) => {
                            let sent = ends.counts()?.sent - before.sent;
                            if sent != 0 {
                                return Err(format!("{sent} sent by a call that failed"));
                            }
                            ends.works(world)?;
                        }
                    }
                    Ok(Some(ends))
                },
            },
        );
    }

    /// A datagram of two calls, each of which fails, and the option that lets it out.
    fn corked(&mut self, first: usize, second: usize) {
        let len = first + second;
        let begin = |world: &World, kept| {
            let mut ends = Ends::kept(world, kept)?;
            ends.next(len)?;
            cork(&ends, 1).map_err(err("UDP_CORK"))?;
            Ok(ends)
        };
        let part = |ends: &Ends, part: std::ops::Range<usize>| {
            raw::send(&ends.near, &ends.message[part], libc::MSG_NOSIGNAL)
        };
        let name = format!("datagrams: UDP_CORK, {first} and {second} bytes");
        self.sweep(
            &format!("{name}: the first send()"),
            errnos::SEND_DGRAM,
            Steps {
                setup: begin,
                call: |ends: &mut Ends| part(ends, 0..first),
                after: |world: &World, mut ends: Ends, result: raw::Result<usize>| {
                    if result.is_ok() {
                        part(&ends, first..len).map_err(err("the second send()"))?;
                    }
                    cork(&ends, 0).map_err(err("UDP_CORK"))?;
                    match result {
                        Ok(_) => ends.must_arrive(world)?,
                        Err(_) => ends.works(world)?,
                    }
                    Ok(Some(ends))
                },
            },
        );
        self.sweep(
            &format!("{name}: the second send()"),
            errnos::SEND_DGRAM,
            Steps {
                setup: |world: &World, kept| {
                    let ends = begin(world, kept)?;
                    part(&ends, 0..first).map_err(err("the first send()"))?;
                    Ok(ends)
                },
                call: |ends: &mut Ends| part(ends, first..len),
                after: |world: &World, mut ends: Ends, result: raw::Result<usize>| {
                    cork(&ends, 0).map_err(err("UDP_CORK"))?;
                    match result {
                        Ok(_) => ends.must_arrive(world)?,
                        // As with UDP, nothing is left of the datagram.
                        Err(_) => ends.works(world)?,
                    }
                    Ok(Some(ends))
                },
            },
        );
        let mut before = None;
        let counts = std::cell::RefCell::new(&mut before);
        self.sweep(
            &format!("{name}: setsockopt()"),
            errnos::OPTION,
            Steps {
                setup: |world: &World, kept| {
                    let ends = begin(world, kept)?;
                    part(&ends, 0..first).map_err(err("the first send()"))?;
                    part(&ends, first..len).map_err(err("the second send()"))?;
                    **counts.borrow_mut() = Some(ends.counts()?);
                    Ok(ends)
                },
                call: |ends: &mut Ends| cork(ends, 0),
                after: |world: &World, mut ends: Ends, result: raw::Result<()>| {
                    let before = counts.borrow_mut().take().expect("counted before");
                    if result.is_err() {
                        cork(&ends, 0).map_err(err("UDP_CORK, once more"))?;
                    }
                    // There is no call to report an error: it is dropped, and counted.
                    ends.all_accounted(world, len, before)?;
                    ends.works(world)?;
                    Ok(Some(ends))
                },
            },
        );
    }
}
