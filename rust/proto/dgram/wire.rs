// SPDX-License-Identifier: GPL-2.0

//! The messages of datagrams. They have the layout of the other messages on a link for streams; see
//! `Documentation/protocol.rst`.

use super::super::wire::{Header, Reader, Writer, HEADER_LEN, SMALL_MAX, VERSION};
use super::super::{ChanId, Violation};

/// The hello's feature bit: the host takes datagrams.
pub const FEATURE: u32 = 1;

/// The longest datagram, in bytes; as UDP over IPv6.
pub const LEN_MAX: u32 = 65_527;

/// The longest datagram between IPv4 addresses, in bytes; as UDP.
pub const LEN_MAX_V4: u32 = 65_507;

/// Bytes in each fragment but the last.
pub const FRAGMENT: u32 = SMALL_MAX;

/// The most fragments of a datagram.
pub const FRAGMENTS_MAX: u32 = LEN_MAX.div_ceil(FRAGMENT);

/// The types that datagrams have: 32 to 34, and 35 to 47 for later.
const FIRST: u8 = 32;
const LAST: u8 = 47;

/// The ports of a datagram.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug, Default)]
pub struct Ports {
    /// The port that it is for.
    pub dst: u16,
    /// The sender's port.
    pub src: u16,
}

impl Ports {
    /// As in `arg0`.
    pub fn to_u32(self) -> u32 {
        (u32::from(self.dst) << 16) | u32::from(self.src)
    }

    /// From `arg0`.
    pub fn from_u32(v: u32) -> Self {
        Self {
            dst: (v >> 16) as u16,
            src: v as u16,
        }
    }

    /// The ports of an answer.
    pub fn reversed(self) -> Self {
        Self {
            dst: self.src,
            src: self.dst,
        }
    }
}

/// A part of a datagram: what one message carries.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Fragment {
    /// Ports of the datagram.
    pub ports: Ports,
    /// The sender's number of the datagram.
    pub id: u32,
    /// Bytes of the datagram.
    pub total: u32,
    /// Bytes before this fragment.
    pub offset: u32,
}

impl Fragment {
    /// Bytes of the fragment: [`FRAGMENT`], or what is left of the datagram.
    pub fn len(&self) -> u32 {
        self.total.saturating_sub(self.offset).min(FRAGMENT)
    }

    /// Whether it has no bytes: that of an empty datagram.
    #[cfg(not(MODULE))]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the datagram up to the end of the fragment.
    pub fn end(&self) -> u32 {
        self.offset.saturating_add(self.len())
    }

    /// Whether it begins a datagram.
    pub fn is_first(&self) -> bool {
        self.offset == 0
    }

    /// Whether it ends a datagram.
    pub fn is_last(&self) -> bool {
        self.end() >= self.total
    }

    /// A fragment begins where one of [`FRAGMENT`] bytes ends, and has bytes unless the datagram
    /// has none.
    fn is_possible(&self) -> bool {
        let inside = self.offset < self.total || (self.total == 0 && self.offset == 0);
        self.total <= LEN_MAX && inside && self.offset % FRAGMENT == 0
    }
}

/// The fragments of a datagram of `total` bytes, in sending order.
pub fn fragments(ports: Ports, id: u32, total: u32) -> impl Iterator<Item = Fragment> {
    (0..fragment_count(total)).map(move |n| Fragment {
        ports,
        id,
        total,
        offset: n.saturating_mul(FRAGMENT),
    })
}

/// The number of fragments of a datagram of `total` bytes.
pub fn fragment_count(total: u32) -> u32 {
    total.div_ceil(FRAGMENT).max(1)
}

/// The state of a port in a DgramPort.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum PortState {
    /// No socket takes datagrams with these ports.
    Closed,
    /// A socket does.
    Open,
    /// Neither: a number that this host does not know. Without effect.
    Unknown(u32),
}

impl PortState {
    fn to_u32(self) -> u32 {
        match self {
            Self::Closed => 0,
            Self::Open => 1,
            Self::Unknown(v) => v,
        }
    }

    fn from_u32(v: u32) -> Self {
        match v {
            0 => Self::Closed,
            1 => Self::Open,
            v => Self::Unknown(v),
        }
    }
}

/// A message for datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Body {
    /// 32: a fragment, with its bytes behind the header.
    Datagram(Fragment),
    /// 33: asks for a DgramPort.
    Probe(Ports),
    /// 34: the answer to a probe, or to a datagram that no socket takes. The ports are those of the
    /// probe or datagram, reversed.
    Port(Ports, PortState),
}

/// The header of a message for datagrams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DgramHeader {
    /// SENDs that the receiver of this message may have sent on this link, absolute, wrapping.
    pub link_credit: u32,
    /// The message.
    pub body: Body,
}

impl DgramHeader {
    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let (kind, len, ports, arg1) = match self.body {
            Body::Datagram(f) => (FIRST, f.len(), f.ports, f.id),
            Body::Probe(ports) => (33, 0, ports, 0),
            Body::Port(ports, state) => (34, 0, ports, state.to_u32()),
        };
        let (pos, woff) = match self.body {
            Body::Datagram(f) => (f.total, f.offset),
            _ => (0, 0),
        };
        let mut out = [0; HEADER_LEN];
        let mut w = Writer(&mut out);
        w.put([VERSION, kind, 0, 0]);
        w.put(len.to_le_bytes());
        w.put([0; 16]);
        w.put(u64::from(pos).to_le_bytes());
        w.put(u64::from(woff).to_le_bytes());
        w.put([0; 20]);
        w.put(self.link_credit.to_le_bytes());
        w.put(ports.to_u32().to_le_bytes());
        w.put(arg1.to_le_bytes());
        out
    }

    /// Decodes a header and checks what it says of itself. `payload` is the number of bytes that
    /// arrived behind it. Fields without meaning are ignored, as those of other messages.
    pub fn decode(bytes: &[u8; HEADER_LEN], payload: u32) -> Result<Self, Violation> {
        let mut r = Reader(bytes);
        let [version, kind, flags0, flags1] = r.take::<4>();
        if version != VERSION {
            return Err(Violation::Version);
        }
        if flags0 != 0 || flags1 != 0 {
            return Err(Violation::Type);
        }
        let (len, dst, src) = (r.u32(), r.id(), r.id());
        let (pos, woff) = (r.u64(), r.u64());
        let _channel_credit: [u8; 20] = r.take();
        let (link_credit, ports, arg1) = (r.u32(), Ports::from_u32(r.u32()), r.u32());
        let _unused: [u8; 12] = r.take();
        if r.0.iter().any(|b| *b != 0) {
            return Err(Violation::Reserved);
        }
        let body = match kind {
            32 => Body::Datagram(Fragment {
                ports,
                id: arg1,
                total: u32::try_from(pos).map_err(|_| Violation::Length)?,
                offset: u32::try_from(woff).map_err(|_| Violation::Position)?,
            }),
            33 => Body::Probe(ports),
            34 => Body::Port(ports, PortState::from_u32(arg1)),
            _ => return Err(Violation::Type),
        };
        if dst != ChanId::default() || src != ChanId::default() {
            return Err(Violation::Channel);
        }
        let expected = match body {
            Body::Datagram(f) if f.total > LEN_MAX => return Err(Violation::Length),
            Body::Datagram(f) if !f.is_possible() => return Err(Violation::Position),
            Body::Datagram(f) => f.len(),
            Body::Probe(_) | Body::Port(..) => 0,
        };
        if len != expected || payload != expected {
            return Err(Violation::Length);
        }
        Ok(Self { link_credit, body })
    }

    /// Whether the host that made the link sends this, and not its peer.
    pub fn is_from_connector(&self) -> bool {
        !matches!(self.body, Body::Port(..))
    }
}

/// Any message of a link for streams.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// One of a channel, or of the link itself.
    Stream(Header),
    /// One for datagrams.
    Dgram(DgramHeader),
}

impl From<Header> for Message {
    fn from(h: Header) -> Self {
        Self::Stream(h)
    }
}

impl Message {
    /// Decodes a message. `features`: the agreed feature bits; `from_connector`: the peer made the
    /// link. A message for datagrams is a violation on a link that does not have
    /// [`FEATURE`], and in the wrong direction.
    pub fn decode(
        bytes: &[u8; HEADER_LEN],
        payload: u32,
        features: u32,
        from_connector: bool,
    ) -> Result<Self, Violation> {
        let [_, kind, ..] = *bytes;
        let dgram = (FIRST..=LAST).contains(&kind) && features & FEATURE != 0;
        if !dgram {
            return Header::decode(bytes, payload).map(Self::Stream);
        }
        let h = DgramHeader::decode(bytes, payload)?;
        if h.is_from_connector() != from_connector {
            return Err(Violation::State);
        }
        Ok(Self::Dgram(h))
    }

    /// The link credit that every message carries.
    pub fn link_credit(&self) -> u32 {
        match self {
            Self::Stream(h) => h.link_credit,
            Self::Dgram(h) => h.link_credit,
        }
    }

    /// The same message with this link credit.
    pub fn with_credit(self, link_credit: u32) -> Self {
        match self {
            Self::Stream(h) => Self::Stream(Header { link_credit, ..h }),
            Self::Dgram(h) => Self::Dgram(DgramHeader { link_credit, ..h }),
        }
    }

    /// Bytes that follow the header, or that are written into the peer's window before it.
    pub fn bytes(&self) -> u32 {
        match self {
            Self::Stream(h) => h.len,
            Self::Dgram(DgramHeader {
                body: Body::Datagram(f),
                ..
            }) => f.len(),
            Self::Dgram(_) => 0,
        }
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        match self {
            Self::Stream(h) => h.encode(),
            Self::Dgram(h) => h.encode(),
        }
    }
}

// The least credit of a link is enough for the longest datagram, beside streams.
const _: () = assert!(FRAGMENTS_MAX * 2 <= super::super::link_flow::MIN_CREDIT);
