// SPDX-License-Identifier: GPL-2.0

//! The wire: the messages between two ZRS hosts, and nothing else.
//!
//! Everything is little-endian, of fixed width and versioned. [`Hello`] travels in the
//! connection manager's private data; a [`Header`] opens every SEND. `Documentation/protocol.rst`
//! describes the meaning. This file only encodes, decodes and checks what a single message can
//! tell about itself; whether it fits the channel is decided in `channel.rs`.

use super::proof::{CHALLENGE_LEN, PROOF_LEN};
use super::{ChanId, Violation};

/// Version of the headers, as in each of them.
pub const VERSION: u8 = 1;

/// The feature bits of this host.
pub const FEATURES: u32 = super::dgram::wire::FEATURE;

/// The most payload in one DATA message, in bytes. Every host accepts this much.
pub const SMALL_MAX: u32 = 4096;

/// The most payload in one WRITE, in bytes. Every host accepts this much.
pub const CHUNK_MAX: u32 = 256 * 1024;

/// Size of an encoded [`Header`].
pub const HEADER_LEN: usize = 96;

/// Size of an encoded [`Hello`].
pub const HELLO_LEN: usize = 48;

/// The longest possible hello: the limit of the connection manager.
pub const HELLO_MOST: usize = 56;

const HELLO_MAGIC: u32 = 0x3153_525a; // "ZRS1"

/// A message's type. Numbers 32 to 47 are reserved for datagrams, 48 to 63 for memory nodes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Type {
    /// Open a channel. `arg0`: destination port << 16 | source port; limits in `arg1`, `arg2`.
    Connect = 1,
    /// The channel is open. Limits in `arg1`, `arg2`.
    Accept = 2,
    /// The channel is refused; `arg0` is a [`Refusal`].
    Reject = 3,
    /// `len` bytes of payload follow, at stream position `pos`.
    Data = 4,
    /// `len` bytes were written into the window of lease `arg0` at `woff`, stream position `pos`.
    Written = 5,
    /// The sender sends no more data; `pos` is the end of its stream.
    Fin = 6,
    /// The sender neither sends nor reads any more; `pos` is the end of its stream.
    End = 7,
    /// As End, because of an error: the stream is broken.
    Reset = 8,
    /// Only the credit fields.
    Credit = 9,
    /// The sender has bulk data and asks for a window.
    WindowRequest = 10,
    /// A window: `arg0` key, `arg1` size, `arg2` address, `lease`. Size 0: there is none now.
    WindowGrant = 11,
    /// Stop writing into the window `lease`.
    WindowRevoke = 12,
    /// No WRITE into the receiver's window of lease `arg0` follows this message.
    Revoked = 13,
    /// Only the link's credit. Not for a channel.
    LinkCredit = 14,
    /// Checks whether the peer is alive. Not for a channel.
    Heartbeat = 15,
    /// [`CHALLENGE_LEN`] random bytes follow. Not for a channel.
    Challenge = 16,
    /// [`PROOF_LEN`] bytes follow. Not for a channel.
    Proof = 17,
}

impl Type {
    fn from_u8(v: u8) -> Option<Self> {
        Some(match v {
            1 => Self::Connect,
            2 => Self::Accept,
            3 => Self::Reject,
            4 => Self::Data,
            5 => Self::Written,
            6 => Self::Fin,
            7 => Self::End,
            8 => Self::Reset,
            9 => Self::Credit,
            10 => Self::WindowRequest,
            11 => Self::WindowGrant,
            12 => Self::WindowRevoke,
            13 => Self::Revoked,
            14 => Self::LinkCredit,
            15 => Self::Heartbeat,
            16 => Self::Challenge,
            17 => Self::Proof,
            _ => return None,
        })
    }
}

/// `arg0` of a Heartbeat that wants another one as its answer.
pub const HEARTBEAT_ASKS: u32 = 1;

/// Why a CONNECT was refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Refusal {
    /// No socket listens at that port.
    NoListener = 1,
    /// The host has no memory or no table entry for the channel.
    NoResources = 2,
    /// A socket listens, but its backlog is full: the CONNECT may be repeated.
    BacklogFull = 3,
}

impl Refusal {
    /// Reads a refusal from the wire; anything unknown counts as no listener.
    pub fn from_u32(v: u32) -> Self {
        match v {
            2 => Self::NoResources,
            3 => Self::BacklogFull,
            _ => Self::NoListener,
        }
    }
}

/// Credit for a channel: absolute counters of the data that the receiver has freed since the
/// channel opened.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Credit {
    /// Bytes of the current window.
    pub window: u64,
    /// Bytes of DATA payload.
    pub small: u64,
    /// DATA and WRITTEN messages, wrapping.
    pub msgs: u32,
}

/// The header of every message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Header {
    /// The type of the message.
    pub kind: Type,
    /// Payload bytes: behind the header (Data, Challenge, Proof) or in the window (Written); else
    /// 0.
    pub len: u32,
    /// The receiver's channel; none for Connect and for messages of the link.
    pub dst: ChanId,
    /// The sender's channel; none for messages of the link.
    pub src: ChanId,
    /// Stream position, see [`Type`].
    pub pos: u64,
    /// Window position of the first byte of a Written, counted from the lease's beginning.
    pub woff: u64,
    /// The channel's credit.
    pub credit: Credit,
    /// SENDs that the receiver of this message may have sent on this link, absolute, wrapping.
    pub link_credit: u32,
    /// See [`Type`].
    pub arg0: u32,
    /// See [`Type`]. Connect, Accept: messages that may be outstanding.
    pub arg1: u32,
    /// See [`Type`]. Connect, Accept: bytes of DATA that may be outstanding.
    pub arg2: u64,
    /// The lease of the sender's window that WindowGrant, WindowRevoke and the window credit refer
    /// to; 0: none.
    pub lease: u32,
}

impl Header {
    /// A header with all but its type, destination and source zero.
    pub fn new(kind: Type, dst: ChanId, src: ChanId) -> Self {
        Self {
            kind,
            len: 0,
            dst,
            src,
            pos: 0,
            woff: 0,
            credit: Credit::default(),
            link_credit: 0,
            arg0: 0,
            arg1: 0,
            arg2: 0,
            lease: 0,
        }
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        let mut w = Writer(&mut out);
        w.put([VERSION, self.kind as u8, 0, 0]);
        w.put(self.len.to_le_bytes());
        w.put(self.dst.index.to_le_bytes());
        w.put(self.dst.gen.to_le_bytes());
        w.put(self.src.index.to_le_bytes());
        w.put(self.src.gen.to_le_bytes());
        w.put(self.pos.to_le_bytes());
        w.put(self.woff.to_le_bytes());
        w.put(self.credit.window.to_le_bytes());
        w.put(self.credit.small.to_le_bytes());
        w.put(self.credit.msgs.to_le_bytes());
        w.put(self.link_credit.to_le_bytes());
        w.put(self.arg0.to_le_bytes());
        w.put(self.arg1.to_le_bytes());
        w.put(self.arg2.to_le_bytes());
        w.put(self.lease.to_le_bytes());
        out
    }

    /// Decodes a header and checks what it says of itself. `payload` is the number of bytes that
    /// arrived behind it.
    pub fn decode(bytes: &[u8; HEADER_LEN], payload: u32) -> Result<Self, Violation> {
        let mut r = Reader(bytes);
        let [version, kind, flags0, flags1] = r.take::<4>();
        if version != VERSION {
            return Err(Violation::Version);
        }
        let kind = Type::from_u8(kind).ok_or(Violation::Type)?;
        if flags0 != 0 || flags1 != 0 {
            return Err(Violation::Type);
        }
        let h = Self {
            kind,
            len: r.u32(),
            dst: r.id(),
            src: r.id(),
            pos: r.u64(),
            woff: r.u64(),
            credit: Credit {
                window: r.u64(),
                small: r.u64(),
                msgs: r.u32(),
            },
            link_credit: r.u32(),
            arg0: r.u32(),
            arg1: r.u32(),
            arg2: r.u64(),
            lease: r.u32(),
        };
        if r.0.iter().any(|b| *b != 0) {
            return Err(Violation::Reserved);
        }
        let len_ok = match kind {
            Type::Data => h.len == payload && h.len != 0 && h.len <= SMALL_MAX,
            Type::Written => payload == 0 && h.len != 0 && h.len <= CHUNK_MAX,
            Type::Challenge => h.len == payload && h.len == CHALLENGE_LEN as u32,
            Type::Proof => h.len == payload && h.len == PROOF_LEN as u32,
            _ => payload == 0 && h.len == 0,
        };
        if !len_ok {
            return Err(Violation::Length);
        }
        let none = ChanId::default();
        let ids_ok = match kind {
            Type::LinkCredit | Type::Heartbeat | Type::Challenge | Type::Proof => {
                h.dst == none && h.src == none
            }
            Type::Connect => h.dst == none && h.src.index != 0,
            // A Reject may name a channel that was never made.
            Type::Reject | Type::Reset => h.dst.index != 0 && (h.src.index != 0 || h.src == none),
            _ => h.dst.index != 0 && h.src.index != 0,
        };
        if !ids_ok {
            return Err(Violation::Channel);
        }
        Ok(h)
    }
}

/// Versions of the protocol, from the lowest to the highest.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Versions {
    /// The lowest, not 0.
    pub lowest: u8,
    /// The highest, not below the lowest.
    pub highest: u8,
}

impl Versions {
    /// The versions of this host.
    pub const OURS: Self = Self {
        lowest: VERSION,
        highest: VERSION,
    };

    /// The highest version that is among both.
    pub fn highest_common(self, other: Self) -> Option<u8> {
        let highest = self.highest.min(other.highest);
        (highest >= self.lowest.max(other.lowest)).then_some(highest)
    }
}

/// The version and the features of a link, as its two hosts have agreed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Agreed {
    /// The version: the highest that both hosts support.
    pub version: u8,
    /// The feature bits that both have.
    pub features: u32,
}

/// Why a host rejects a link, in the hello of the rejection. Earlier hosts say 0, and ignore it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Denial {
    /// It has a key for the other host, which offers no proof.
    Unproved = 1,
    /// Its list of peers does not allow the other host.
    Listed = 2,
    /// It has no key for the other host, which offers a proof.
    Keyless = 3,
}

/// Where a hello has the [`Denial`]: behind the highest version.
const DENIAL_AT: usize = 21;

/// The role of a link. Both hosts must name the same one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Role {
    /// Streams.
    Streams = 0,
    /// Memory nodes.
    Memory = 1,
}

/// The parameters of a host, exchanged when a link is made.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hello {
    /// The versions that the host supports.
    pub versions: Versions,
    /// Differs each time the host's module is loaded.
    pub nonce: u64,
    /// Feature bits, unknown ones among them.
    pub features: u32,
    /// SENDs that the peer may send before it receives more credit.
    pub link_credit: u32,
    /// Links that the peer may make and use at a time; 0 counts as 1.
    pub links: u32,
}

impl Hello {
    /// Encodes the hello of a link for streams.
    pub fn encode(&self) -> [u8; HELLO_LEN] {
        self.encode_for(Role::Streams)
    }

    /// Encodes the hello of a link for `role`.
    pub fn encode_for(&self, role: Role) -> [u8; HELLO_LEN] {
        let mut out = [0; HELLO_LEN];
        let mut w = Writer(&mut out);
        w.put(HELLO_MAGIC.to_le_bytes());
        w.put([self.versions.lowest, HELLO_LEN as u8]);
        w.put((role as u16).to_le_bytes());
        w.put(self.nonce.to_le_bytes());
        w.put(self.features.to_le_bytes());
        w.put([self.versions.highest, 0, 0, 0]);
        w.put(self.link_credit.to_le_bytes());
        w.put(SMALL_MAX.to_le_bytes());
        w.put(CHUNK_MAX.to_le_bytes());
        w.put(self.links.to_le_bytes());
        out
    }

    /// The hello of a rejection that says why.
    pub fn encode_denial(&self, role: Role, why: Denial) -> [u8; HELLO_LEN] {
        let mut out = self.encode_for(role);
        if let Some(byte) = out.get_mut(DENIAL_AT) {
            *byte = why as u8;
        }
        out
    }

    /// Why the sender of this hello in a rejection does not want this host as a peer; `None`: the
    /// hello does not say that.
    pub fn denial(bytes: &[u8]) -> Option<Denial> {
        if !Self::is_from_zrs(bytes) {
            return None;
        }
        match bytes.get(DENIAL_AT) {
            Some(1) => Some(Denial::Unproved),
            Some(2) => Some(Denial::Listed),
            Some(3) => Some(Denial::Keyless),
            _ => None,
        }
    }

    /// Whether a ZRS host of any version wrote this. A rejection by the connection manager has no
    /// such data.
    pub fn is_from_zrs(bytes: &[u8]) -> bool {
        Reader(bytes).u32() == HELLO_MAGIC
    }

    /// Decodes a hello of a link for streams. A hello with another role is malformed here.
    pub fn decode(bytes: &[u8]) -> Result<Self, Violation> {
        match Self::decode_with_role(bytes)? {
            (Role::Streams, hello) => Ok(hello),
            _ => Err(Violation::Reserved),
        }
    }

    /// Decodes a hello of any version and role. The connection manager pads private data with
    /// zeros, so `bytes` may be longer than the hello. Reserved bytes are ignored: a later host may
    /// use them.
    pub fn decode_with_role(bytes: &[u8]) -> Result<(Role, Self), Violation> {
        let (known, _) = bytes
            .split_first_chunk::<HELLO_LEN>()
            .ok_or(Violation::Length)?;
        let mut r = Reader(known);
        if r.u32() != HELLO_MAGIC {
            return Err(Violation::Version);
        }
        let ([lowest, len], role) = (r.take::<2>(), u16::from_le_bytes(r.take()));
        let len = usize::from(len);
        if !(HELLO_LEN..=HELLO_MOST).contains(&len) || len > bytes.len() {
            return Err(Violation::Length);
        }
        let role = match role {
            0 => Role::Streams,
            1 => Role::Memory,
            _ => return Err(Violation::Reserved),
        };
        let nonce = r.u64();
        let features = r.u32();
        let [highest, ..] = r.take::<4>();
        let versions = Versions {
            lowest,
            // Hosts without negotiation send 0.
            highest: if highest == 0 { lowest } else { highest },
        };
        let link_credit = r.u32();
        let (small_max, chunk_max) = (r.u32(), r.u32());
        let links = r.u32();
        if versions.lowest == 0 || versions.highest < versions.lowest {
            return Err(Violation::Version);
        }
        if small_max < SMALL_MAX || chunk_max < CHUNK_MAX {
            return Err(Violation::Version);
        }
        let hello = Self {
            versions,
            nonce,
            features,
            link_credit,
            links,
        };
        Ok((role, hello))
    }

    /// The version and features of a link between the senders of this hello and of `theirs`. None:
    /// no common version.
    pub fn agree(&self, theirs: &Self) -> Option<Agreed> {
        let version = self.versions.highest_common(theirs.versions)?;
        Some(Agreed {
            version,
            features: self.features & theirs.features,
        })
    }
}

pub(super) struct Writer<'a>(pub(super) &'a mut [u8]);

impl Writer<'_> {
    pub(super) fn put<const N: usize>(&mut self, v: [u8; N]) {
        if let Some((head, tail)) = core::mem::take(&mut self.0).split_first_chunk_mut::<N>() {
            *head = v;
            self.0 = tail;
        }
    }
}

pub(super) struct Reader<'a>(pub(super) &'a [u8]);

impl Reader<'_> {
    pub(super) fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.0 = tail;
                *head
            }
            None => [0; N],
        }
    }

    pub(super) fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    pub(super) fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }

    pub(super) fn id(&mut self) -> ChanId {
        ChanId {
            index: self.u32(),
            gen: self.u32(),
        }
    }
}

// The layout ends where the fixed sizes say: fields, then reserved bytes.
const _: () = assert!(4 + 4 + 16 + 8 + 8 + 20 + 4 + 4 + 4 + 8 + 4 <= HEADER_LEN);
const _: () = assert!(4 + 4 + 8 + 4 + 4 + 4 + 4 + 4 + 4 <= HELLO_LEN && HELLO_LEN <= HELLO_MOST);
