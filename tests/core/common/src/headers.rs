// SPDX-License-Identifier: GPL-2.0

//! Messages for property tests.

use proptest::prelude::*;
use zrs_core::wire::{Credit, Header, Type, CHUNK_MAX, SMALL_MAX};
use zrs_core::ChanId;

/// The types of a link that may be used: without those of its proof.
pub const TYPES: [Type; 15] = [
    Type::Connect,
    Type::Accept,
    Type::Reject,
    Type::Data,
    Type::Written,
    Type::Fin,
    Type::End,
    Type::Reset,
    Type::Credit,
    Type::WindowRequest,
    Type::WindowGrant,
    Type::WindowRevoke,
    Type::Revoked,
    Type::LinkCredit,
    Type::Heartbeat,
];

pub fn id(q: u32, gen: u32) -> ChanId {
    ChanId { index: q, gen }
}

/// The payload that comes behind a header.
pub fn payload_of(h: &Header) -> u32 {
    match h.kind {
        Type::Data => h.len,
        _ => 0,
    }
}

/// A header, encoded and decoded.
pub fn over_the_wire(h: &Header) -> Header {
    Header::decode(&h.encode(), payload_of(h)).unwrap_or_else(|e| panic!("{e:?}: {h:?}"))
}

fn some_id() -> impl Strategy<Value = ChanId> {
    (1..=u32::MAX, any::<u32>()).prop_map(|(q, gen)| id(q, gen))
}

/// Any header that [`Header::decode`] accepts.
pub fn valid_header() -> impl Strategy<Value = Header> {
    let parts = (
        prop::sample::select(&TYPES[..]),
        1..=CHUNK_MAX,
        some_id(),
        some_id(),
        any::<(u64, u64, u64, u64)>(),
        any::<(u32, u32, u32, u32, u64, u32)>(),
        any::<bool>(),
    );
    parts.prop_map(|(kind, len, dst, src, longs, words, named)| {
        let none = ChanId::default();
        let (dst, src) = match kind {
            Type::LinkCredit | Type::Heartbeat => (none, none),
            Type::Connect => (none, src),
            Type::Reject | Type::Reset if !named => (dst, none),
            _ => (dst, src),
        };
        Header {
            kind,
            len: match kind {
                Type::Data => (len - 1) % SMALL_MAX + 1,
                Type::Written => len,
                _ => 0,
            },
            dst,
            src,
            pos: longs.0,
            woff: longs.1,
            credit: Credit {
                window: longs.2,
                small: longs.3,
                msgs: words.0,
            },
            link_credit: words.1,
            arg0: words.2,
            arg1: words.3,
            arg2: words.4,
            lease: words.5,
        }
    })
}
