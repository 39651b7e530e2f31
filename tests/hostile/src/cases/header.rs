// SPDX-License-Identifier: GPL-2.0
//! Each field of the header wrong in turn.

use zrs_core::wire::{Header, Type, CHUNK_MAX};
use zrs_core::ChanId;

use super::{after_end, changed, ignored, violation, whole, Case, BULK};
use crate::peer::{grant_header, Chan, Peer, WINDOW};
use crate::verbs::Op;
use crate::world::Outcome;

fn credit(p: &mut Peer, c: &Chan, change: impl FnOnce(&mut [u8; 96])) -> Outcome {
    changed(p, c.header(Type::Credit), change, &[])
}

/// A message of this type with one field set.
fn with(p: &mut Peer, c: &Chan, kind: Type, set: impl FnOnce(&mut Header)) -> Outcome {
    let mut h = c.header(kind);
    set(&mut h);
    p.send(h, &[])
}

fn data(
    p: &mut Peer,
    c: &Chan,
    len: u32,
    payload: usize,
    set: impl FnOnce(&mut Header),
) -> Outcome {
    let mut h = c.header(Type::Data);
    h.len = len;
    set(&mut h);
    p.send(h, &vec![b'x'; payload])
}

fn written(p: &mut Peer, c: &Chan, len: u32, set: impl FnOnce(&mut Header)) -> Outcome {
    let mut h = Peer::written_header(c, len);
    set(&mut h);
    p.send(h, &[])
}

fn connect(p: &mut Peer, set: impl FnOnce(&mut Header)) -> Outcome {
    let mut h = p.connect_header(1);
    set(&mut h);
    p.send(h, &[])
}

fn grant(p: &mut Peer, c: &Chan, set: impl FnOnce(&mut Header)) -> Outcome {
    let mut h = grant_header(p, c, 1);
    set(&mut h);
    p.send(h, &[])
}

const NONE: ChanId = ChanId { index: 0, gen: 0 };

pub const CASES: &[Case] = &[
    // Of itself.
    violation("header/version-0", |p, c| credit(p, c, |b| b[0] = 0)),
    violation("header/version-2", |p, c| credit(p, c, |b| b[0] = 2)),
    violation("header/type-0", |p, c| credit(p, c, |b| b[1] = 0)),
    violation("header/type-16", |p, c| credit(p, c, |b| b[1] = 16)),
    violation("header/type-datagram", |p, c| credit(p, c, |b| b[1] = 32)),
    violation("header/type-memory-node", |p, c| {
        credit(p, c, |b| b[1] = 63)
    }),
    violation("header/type-255", |p, c| credit(p, c, |b| b[1] = 255)),
    violation("header/flags-low", |p, c| credit(p, c, |b| b[2] = 1)),
    violation("header/flags-high", |p, c| credit(p, c, |b| b[3] = 0x80)),
    violation("header/reserved-first", |p, c| credit(p, c, |b| b[84] = 1)),
    violation("header/reserved-last", |p, c| {
        credit(p, c, |b| b[95] = 0x80)
    }),
    // Lengths.
    violation("header/nothing-at-all", |p, _| p.send_as_is(&[], &[])),
    violation("header/one-byte", |p, _| p.send_as_is(&[1], &[])),
    violation("header/short-by-one", |p, c| {
        let bytes = c.header(Type::Credit).encode();
        p.send_as_is(&bytes[..95], &[])
    }),
    violation("header/payload-where-none-is", |p, c| {
        p.send(c.header(Type::Credit), b"x")
    }),
    violation("header/length-where-none-is", |p, c| {
        with(p, c, Type::Credit, |h| h.len = 1)
    }),
    violation("header/payload-of-heartbeat", |p, _| {
        p.send(Header::new(Type::Heartbeat, NONE, NONE), &[0; 4096])
    }),
    violation("header/data-of-nothing", |p, c| data(p, c, 0, 0, |_| {})),
    violation("header/data-longer-than-sent", |p, c| {
        data(p, c, 101, 100, |_| {})
    }),
    violation("header/data-shorter-than-sent", |p, c| {
        data(p, c, 99, 100, |_| {})
    }),
    violation("header/data-length-max", |p, c| {
        data(p, c, u32::MAX, 100, |_| {})
    }),
    violation("header/data-4097", |p, c| data(p, c, 4097, 4096, |_| {})),
    violation("header/written-of-nothing", |p, c| written(p, c, 0, |_| {})),
    violation("header/written-too-long", |p, c| {
        written(p, c, CHUNK_MAX + 1, |_| {})
    }),
    violation("header/written-with-payload", |p, c| {
        p.send(Peer::written_header(c, 10), &[0; 10])
    }),
    // Channels.
    violation("header/no-destination", |p, c| {
        with(p, c, Type::Credit, |h| h.dst = NONE)
    }),
    violation("header/no-source", |p, c| {
        with(p, c, Type::Credit, |h| h.src = NONE)
    }),
    violation("header/link-credit-for-a-channel", |p, c| {
        with(p, c, Type::LinkCredit, |_| {})
    }),
    violation("header/heartbeat-from-a-channel", |p, c| {
        with(p, c, Type::Heartbeat, |h| h.dst = NONE)
    }),
    violation("header/connect-to-a-channel", |p, c| {
        let dst = c.remote;
        connect(p, |h| h.dst = dst)
    }),
    violation("header/connect-from-none", |p, _| {
        connect(p, |h| h.src.index = 0)
    }),
    violation("header/reset-from-a-generation-alone", |p, c| {
        with(p, c, Type::Reset, |h| h.src.index = 0)
    }),
    violation("header/another-source", |p, c| {
        with(p, c, Type::Credit, |h| h.src.index += 1)
    }),
    violation("header/stale-source", |p, c| {
        with(p, c, Type::Credit, |h| h.src.gen -= 1)
    }),
    // Positions.
    violation("header/data-again", |p, c| {
        data(p, c, 100, 100, |h| h.pos -= 1)
    }),
    violation("header/data-ahead", |p, c| {
        data(p, c, 100, 100, |h| h.pos += 1)
    }),
    violation("header/data-at-the-end-of-numbers", |p, c| {
        data(p, c, 100, 100, |h| h.pos = u64::MAX)
    }),
    violation("header/written-again", |p, c| {
        written(p, c, 10, |h| h.pos -= 10)
    }),
    violation("header/written-elsewhere", |p, c| {
        written(p, c, 10, |h| h.woff += 1)
    }),
    violation("header/written-back", |p, c| {
        written(p, c, 10, |h| h.woff -= 10)
    }),
    violation("header/written-far", |p, c| {
        written(p, c, 10, |h| h.woff = u64::MAX)
    }),
    violation("header/written-other-lease", |p, c| {
        written(p, c, 10, |h| h.arg0 += 1)
    }),
    violation("header/written-no-lease", |p, c| {
        written(p, c, 10, |h| h.arg0 = 0)
    }),
    violation("header/fin-early", |p, c| {
        with(p, c, Type::Fin, |h| h.pos -= 1)
    }),
    violation("header/fin-late", |p, c| {
        with(p, c, Type::Fin, |h| h.pos += 1)
    }),
    violation("header/end-elsewhere", |p, c| {
        with(p, c, Type::End, |h| h.pos = 0)
    }),
    // More than was granted.
    violation("header/window-overrun", |p, c| {
        // All of the window is told of, though the first bytes of it are not read yet.
        let size = c.window.expect("a window").size - BULK.len() as u32;
        for len in [size / 4, size / 4, size / 4, size - 3 * (size / 4)] {
            let h = Peer::written_header(c, len);
            p.send(h, &[])?;
            c.tx_pos += u64::from(len);
            c.window.as_mut().expect("a window").written += u64::from(len);
        }
        written(p, c, 1, |_| {})
    }),
    violation("header/window-end-crossed", |p, c| {
        let window = c.window.as_mut().expect("a window");
        let mut left = window.size - BULK.len() as u32 - 1;
        while left > 0 {
            let len = left.min(CHUNK_MAX);
            let h = Peer::written_header(c, len);
            p.send(h, &[])?;
            c.tx_pos += u64::from(len);
            c.window.as_mut().expect("a window").written += u64::from(len);
            left -= len;
        }
        written(p, c, 2, |_| {})
    }),
    violation("header/too-many-bytes-of-data", |p, c| {
        for _ in 0..16 {
            p.data(c, &[b'x'; 4096])?;
        }
        Ok(())
    }),
    violation("header/too-many-messages", |p, c| {
        for _ in 0..63 {
            p.data(c, b"x")?;
        }
        Ok(())
    }),
    // Credit.
    violation("header/messages-freed-that-were-not-sent", |p, c| {
        with(p, c, Type::Credit, |h| h.credit.msgs = 1)
    }),
    violation("header/messages-freed-backwards", |p, c| {
        with(p, c, Type::Credit, |h| h.credit.msgs = u32::MAX)
    }),
    violation("header/bytes-freed-that-were-not-sent", |p, c| {
        with(p, c, Type::Credit, |h| h.credit.small = 1)
    }),
    violation("header/bytes-freed-max", |p, c| {
        with(p, c, Type::Fin, |h| h.credit.small = u64::MAX)
    }),
    violation("header/window-freed-that-was-not-written", |p, c| {
        grant(p, c, |_| {})?;
        with(p, c, Type::Credit, |h| {
            h.lease = 1;
            h.credit.window = 1;
        })
    }),
    violation("header/link-credit-back", |p, c| {
        credit(p, c, |b| b[60..64].copy_from_slice(&1_u32.to_le_bytes()))
    }),
    violation("header/link-credit-beyond-all", |p, c| {
        credit(p, c, |b| {
            b[60..64].copy_from_slice(&0x0020_0000_u32.to_le_bytes())
        })
    }),
    violation("header/link-credit-wrapping", |p, c| {
        credit(p, c, |b| b[60..64].copy_from_slice(&u32::MAX.to_le_bytes()))
    }),
    violation("header/link-credit-overrun", |p, c| {
        // The module gets no credit to tell us of room, and sees more SENDs than it ever allowed.
        let mut h = c.header(Type::Credit);
        h.link_credit = p.credit_told();
        let bytes = h.encode();
        p.gives_credit = false;
        for _ in 0..4096 {
            if p.is_closed() || p.send_as_is(&bytes, &[]).is_err() {
                break;
            }
        }
        Ok(())
    }),
    // Offers of windows.
    violation("header/window-too-small", |p, c| {
        grant(p, c, |h| h.arg1 = 65_535)
    }),
    violation("header/window-of-one-byte", |p, c| {
        grant(p, c, |h| h.arg1 = 1)
    }),
    violation("header/window-too-large", |p, c| {
        grant(p, c, |h| h.arg1 = (1 << 30) + 1)
    }),
    violation("header/window-beyond-all-addresses", |p, c| {
        grant(p, c, |h| h.arg2 = u64::MAX - WINDOW as u64 + 1)
    }),
    violation("header/window-without-lease", |p, c| {
        grant(p, c, |h| h.lease = 0)
    }),
    violation("header/window-twice", |p, c| {
        grant(p, c, |_| {})?;
        grant(p, c, |h| h.lease = 2)
    }),
    // Limits of a channel.
    violation("header/limit-of-3-messages", |p, _| {
        connect(p, |h| h.arg1 = 3)
    }),
    violation("header/limit-of-too-many-messages", |p, _| {
        connect(p, |h| h.arg1 = 65_537)
    }),
    violation("header/limit-of-16383-bytes", |p, _| {
        connect(p, |h| h.arg2 = 16_383)
    }),
    violation("header/limit-of-too-many-bytes", |p, _| {
        connect(p, |h| h.arg2 = (1 << 24) + 1)
    }),
    violation("header/limit-beyond-32-bits", |p, _| {
        connect(p, |h| h.arg2 = (1 << 32) + 65_536)
    }),
    // Not plain SENDs.
    violation("header/immediate", |p, c| {
        p.post(Op::SendImm, &c.header(Type::Credit).encode(), 0, 0)
    }),
    violation("header/write-with-immediate", |p, c| {
        let w = c.window.expect("a window");
        p.post(Op::WriteImm, b"hello", w.addr + w.written, w.key)
    }),
    violation("header/write-with-immediate-of-nothing", |p, _| {
        p.post(Op::WriteImm, &[], 0, 0)
    }),
    violation("header/invalidate-own-window", |p, c| {
        let key = c.window.expect("a window").key;
        p.post(Op::SendInv, &c.header(Type::Credit).encode(), 0, key)
    }),
    // Behind the end.
    after_end("header/fin-twice", |p, c| {
        with(p, c, Type::Fin, |_| {})?;
        with(p, c, Type::Fin, |_| {})
    }),
    after_end("header/data-after-fin", |p, c| {
        with(p, c, Type::Fin, |_| {})?;
        data(p, c, 1, 1, |_| {})
    }),
    after_end("header/written-after-fin", |p, c| {
        with(p, c, Type::Fin, |_| {})?;
        written(p, c, 1, |_| {})
    }),
    // Messages that are ignored.
    ignored("header/heartbeat", |p, _| {
        p.send(Header::new(Type::Heartbeat, NONE, NONE), &[])
    }),
    ignored("header/link-credit", |p, _| {
        p.send(Header::new(Type::LinkCredit, NONE, NONE), &[])
    }),
    ignored("header/fields-without-meaning", |p, c| {
        with(p, c, Type::Credit, |h| {
            (h.pos, h.woff, h.arg0, h.arg1, h.arg2) = (u64::MAX, u64::MAX, 1, 2, 3);
        })
    }),
    ignored("header/window-freed-of-another-lease", |p, c| {
        with(p, c, Type::Credit, |h| {
            h.lease = 77;
            h.credit.window = u64::MAX;
        })
    }),
    ignored("header/request-with-a-window", |p, c| {
        with(p, c, Type::WindowRequest, |_| {})
    }),
    ignored("header/refused-window-not-asked-for", |p, c| {
        grant(p, c, |h| h.arg1 = 0)
    }),
    whole("header/connect-with-everything-set", |w| {
        let victim = w.listen()?;
        let mut peer = w.link()?;
        let mut h = peer.connect_header(victim.port);
        (h.pos, h.woff, h.lease) = (u64::MAX, u64::MAX, u32::MAX);
        h.credit.msgs = u32::MAX;
        h.credit.small = u64::MAX;
        peer.send(h, &[])?;
        peer.expect(Type::Accept, w.limit(10))?;
        Ok(())
    }),
];
