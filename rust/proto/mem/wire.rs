// SPDX-License-Identifier: GPL-2.0

//! The messages of a memory link. `Documentation/memory-nodes.rst` has the tables that this file
//! encodes.
//!
//! A message is a header of 96 bytes in a SEND, perhaps with payload behind it. Version, type,
//! flags, length and link credit are where they are in the headers of stream links; LinkCredit,
//! Heartbeat, Challenge and Proof are the same as there. Fields that a message does not use are
//! zero.

use super::super::wire::{self, Header, HEADER_LEN, SMALL_MAX, VERSION};
use super::super::Violation;
use super::asks::ASKS_MIN;
use super::id::{Key, NodeId};
use super::rights::Rights;
use super::status::Status;

/// The most bytes that one WROTE may announce.
pub const PART_MAX: u64 = 16 << 20;

/// Flag of ALLOC: the region stays when its owner is gone.
pub const FLAG_KEEP: u16 = 1;

/// Flag of ALLOC: the receiver is a broker. It allocates the region at the node, which another host
/// may serve, and owns it.
pub const FLAG_VIA: u16 = 2;

/// A message's type; 48 to 52 of the types of ZRS.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u8)]
pub enum Type {
    /// The first message in both directions: the nodes of the sender, and its limits.
    Hello = 48,
    /// A request to the node's host.
    Ask = 49,
    /// The answer to a request.
    Answer = 50,
    /// The node takes a grant back.
    Revoke = 51,
    /// The requester does not use the grant any more.
    Revoked = 52,
}

/// The operation of an ask.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[repr(u16)]
pub enum Op {
    /// Allocate a region.
    Alloc = 1,
    /// Free a region.
    Free = 2,
    /// Tell about a region.
    Info = 3,
    /// Derive a key.
    Key = 4,
    /// Revoke a key.
    Unkey = 5,
    /// Let nothing write to a region any more.
    Seal = 6,
    /// Give remote keys.
    Open = 7,
    /// Take remote keys back, at the requester's wish.
    Close = 8,
    /// Write the payload.
    Put = 9,
    /// Read; the answer has the payload.
    Get = 10,
    /// Acknowledge bytes that were written with a remote key.
    Wrote = 11,
    /// Copy to another region, or another node.
    Copy = 12,
    /// Cancel a COPY.
    Cancel = 13,
}

impl Op {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 13] = [
        Self::Alloc,
        Self::Free,
        Self::Info,
        Self::Key,
        Self::Unkey,
        Self::Seal,
        Self::Open,
        Self::Close,
        Self::Put,
        Self::Get,
        Self::Wrote,
        Self::Copy,
        Self::Cancel,
    ];

    fn from_u16(v: u16) -> Option<Self> {
        Self::ALL.into_iter().find(|op| *op as u16 == v)
    }
}

/// The header of a message. Type and operation determine the meaning of the fields; their names fit
/// most operations.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct MemHeader {
    /// The message's type.
    pub kind: Type,
    /// Flags of ALLOC.
    pub flags: u16,
    /// Bytes of payload behind the header.
    pub len: u32,
    /// Ask, Answer: the requester's number of the ask; not 0.
    pub id: u32,
    /// Ask, Answer: the operation.
    pub op: Option<Op>,
    /// Answer: the result. Revoke: `Sealed` if the region is sealed.
    pub status: Status,
    /// Address of the first byte in the region, as its owner has it.
    pub addr: u64,
    /// Number of bytes.
    pub bytes: u64,
    /// Key of the region; of a COPY, of the source. ALLOC: the admission key.
    pub key: Key,
    /// A grant. COPY: domain of the source.
    pub grant: u32,
    /// Rights. COPY: number of the source node.
    pub rights: u32,
    /// ALLOC, KEY: time to live in milliseconds; CANCEL: number of the ask; OPEN's answer: 1 if it
    /// is for one operation.
    pub arg: u32,
    /// SENDs that the receiver of this message may ever have sent on this link.
    pub link_credit: u32,
    /// Node of the region; of a COPY, of the destination.
    pub node: NodeId,
    /// COPY: address at the destination. KEY: number of uses.
    pub addr2: u64,
    /// COPY: key of the destination. UNKEY: the key to revoke. Answers: the new key.
    pub key2: Key,
}

// Fields of a message, as bits.
const FLAGS: u16 = 1;
const LEN: u16 = 2;
const ADDR: u16 = 4;
const BYTES: u16 = 8;
const KEY: u16 = 16;
const GRANT: u16 = 32;
const RIGHTS: u16 = 64;
const ARG: u16 = 128;
const NODE: u16 = 256;
const ADDR2: u16 = 512;
const KEY2: u16 = 1024;

/// The fields that an ask uses, besides id and operation.
const fn fields_of_ask(op: Op) -> u16 {
    match op {
        Op::Alloc => FLAGS | ADDR | BYTES | KEY | ARG | NODE,
        Op::Free | Op::Info | Op::Seal => KEY | NODE,
        Op::Key => ADDR | BYTES | KEY | RIGHTS | ARG | NODE | ADDR2,
        Op::Unkey => KEY | NODE | KEY2,
        Op::Open => KEY | RIGHTS | NODE,
        Op::Close => GRANT,
        Op::Put => LEN | ADDR | KEY | NODE,
        Op::Get => ADDR | BYTES | KEY | NODE,
        Op::Wrote => ADDR | BYTES | GRANT,
        Op::Copy => ADDR | BYTES | KEY | GRANT | RIGHTS | NODE | ADDR2 | KEY2,
        Op::Cancel => ARG,
    }
}

/// The fields that an answer uses, besides id, operation and status.
const fn fields_of_answer(op: Op, ok: bool) -> u16 {
    match op {
        // How much has landed is told even if it was not all.
        Op::Copy => BYTES,
        _ if !ok => 0,
        Op::Alloc => ADDR | BYTES | NODE | KEY2,
        Op::Info => ADDR | BYTES | RIGHTS | ARG | GRANT,
        Op::Key => KEY2,
        Op::Open => LEN | ADDR | BYTES | GRANT | RIGHTS | ARG,
        Op::Get => LEN,
        Op::Free | Op::Unkey | Op::Seal | Op::Close | Op::Put | Op::Wrote | Op::Cancel => 0,
    }
}

impl MemHeader {
    fn new(kind: Type) -> Self {
        Self {
            kind,
            flags: 0,
            len: 0,
            id: 0,
            op: None,
            status: Status::Ok,
            addr: 0,
            bytes: 0,
            key: Key::default(),
            grant: 0,
            rights: 0,
            arg: 0,
            link_credit: 0,
            node: NodeId::default(),
            addr2: 0,
            key2: Key::default(),
        }
    }

    /// A hello with `len` bytes of nodes behind it, from a host that takes `asks` open asks and
    /// `grants` open grants.
    pub fn hello(asks: u32, grants: u32, len: u32) -> Self {
        Self {
            len,
            grant: grants,
            arg: asks,
            ..Self::new(Type::Hello)
        }
    }

    /// An ask with no field but its number and operation.
    pub fn ask(id: u32, op: Op) -> Self {
        Self {
            id,
            op: Some(op),
            ..Self::new(Type::Ask)
        }
    }

    /// An answer with no field but number, operation and result.
    pub fn answer(id: u32, op: Op, status: Status) -> Self {
        Self {
            id,
            op: Some(op),
            status,
            ..Self::new(Type::Answer)
        }
    }

    /// The node takes `grant` back.
    pub fn revoke(grant: u32) -> Self {
        Self {
            grant,
            ..Self::new(Type::Revoke)
        }
    }

    /// The same Revoke, for an operation that is told `why` it is stopped.
    pub fn because(self, why: Status) -> Self {
        let status = match why {
            Status::Sealed => why,
            _ => Status::Ok,
        };
        Self { status, ..self }
    }

    /// The requester uses `grant` no more.
    pub fn revoked(grant: u32) -> Self {
        Self {
            grant,
            ..Self::new(Type::Revoked)
        }
    }

    /// COPY: the node of the source.
    pub fn source_node(&self) -> NodeId {
        NodeId {
            domain: self.grant,
            node: self.rights,
        }
    }

    /// The same COPY, from a region of `node`.
    pub fn with_source_node(self, node: NodeId) -> Self {
        Self {
            grant: node.domain,
            rights: node.node,
            ..self
        }
    }

    /// The fields that the message may use.
    fn fields(&self) -> u16 {
        match (self.kind, self.op) {
            (Type::Hello, _) => LEN | GRANT | ARG,
            (Type::Ask, Some(op)) => fields_of_ask(op),
            (Type::Answer, Some(op)) => fields_of_answer(op, self.status == Status::Ok),
            (Type::Ask | Type::Answer, None) => 0,
            (Type::Revoke | Type::Revoked, _) => GRANT,
        }
    }

    /// The fields that are not zero.
    fn filled(&self) -> u16 {
        let none = Key::default();
        [
            (self.flags != 0, FLAGS),
            (self.len != 0, LEN),
            (self.addr != 0, ADDR),
            (self.bytes != 0, BYTES),
            (self.key != none, KEY),
            (self.grant != 0, GRANT),
            (self.rights != 0, RIGHTS),
            (self.arg != 0, ARG),
            (self.node != NodeId::default(), NODE),
            (self.addr2 != 0, ADDR2),
            (self.key2 != none, KEY2),
        ]
        .into_iter()
        .fold(0, |set, (filled, bit)| if filled { set | bit } else { set })
    }

    /// Encodes the header.
    pub fn encode(&self) -> [u8; HEADER_LEN] {
        let mut out = [0; HEADER_LEN];
        let mut w = Writer(&mut out);
        w.put([VERSION, self.kind as u8]);
        w.put(self.flags.to_le_bytes());
        w.put(self.len.to_le_bytes());
        w.put(self.id.to_le_bytes());
        w.put(self.op.map_or(0, |op| op as u16).to_le_bytes());
        w.put((self.status as u16).to_le_bytes());
        w.put(self.addr.to_le_bytes());
        w.put(self.bytes.to_le_bytes());
        w.put(self.key.encode());
        w.put(self.grant.to_le_bytes());
        w.put(self.rights.to_le_bytes());
        w.put(self.arg.to_le_bytes());
        w.put(self.link_credit.to_le_bytes());
        w.put(self.node.domain.to_le_bytes());
        w.put(self.node.node.to_le_bytes());
        w.put(self.addr2.to_le_bytes());
        w.put(self.key2.encode());
        out
    }

    /// Decodes a header and checks what it says of itself. `payload` is the number of bytes that
    /// arrived behind it.
    pub fn decode(bytes: &[u8; HEADER_LEN], payload: u32) -> Result<Self, Violation> {
        let mut r = Reader(bytes);
        let [version, kind] = r.take::<2>();
        if version != VERSION {
            return Err(Violation::Version);
        }
        let kind = match kind {
            48 => Type::Hello,
            49 => Type::Ask,
            50 => Type::Answer,
            51 => Type::Revoke,
            52 => Type::Revoked,
            _ => return Err(Violation::Type),
        };
        let (flags, len, id) = (r.u16(), r.u32(), r.u32());
        let (op, status) = (r.u16(), r.u16());
        let has_op = matches!(kind, Type::Ask | Type::Answer);
        if has_op == (op == 0) || has_op == (id == 0) {
            return Err(Violation::Type);
        }
        let sealed = kind == Type::Revoke && status == Status::Sealed as u16;
        if kind != Type::Answer && status != 0 && !sealed {
            return Err(Violation::Reserved);
        }
        let h = Self {
            kind,
            flags,
            len,
            id,
            op: match op {
                0 => None,
                op => Some(Op::from_u16(op).ok_or(Violation::Type)?),
            },
            status: Status::from_u16(status),
            addr: r.u64(),
            bytes: r.u64(),
            key: Key::decode(r.take()),
            grant: r.u32(),
            rights: r.u32(),
            arg: r.u32(),
            link_credit: r.u32(),
            node: NodeId {
                domain: r.u32(),
                node: r.u32(),
            },
            addr2: r.u64(),
            key2: Key::decode(r.take()),
        };
        if h.filled() & !h.fields() != 0 {
            return Err(Violation::Reserved);
        }
        h.check(payload)?;
        Ok(h)
    }

    /// Checks the values of the fields. Mistakes that a program can make are not checked here: the
    /// node answers those with a status.
    fn check(&self, payload: u32) -> Result<(), Violation> {
        if self.len != payload || self.len > SMALL_MAX {
            return Err(Violation::Length);
        }
        let small = 1..=u64::from(SMALL_MAX);
        let unwrapped = self.addr.checked_add(self.bytes).is_some();
        let unwrapped2 = self.addr2.checked_add(self.bytes).is_some();
        let data = self.rights != 0 && self.rights & !Rights::DATA.bits() == 0;
        let good = match (self.kind, self.op) {
            (Type::Revoke | Type::Revoked, _) => self.grant != 0,
            (Type::Hello, _) => self.arg >= ASKS_MIN && self.grant != 0,
            (Type::Ask, Some(op)) => match op {
                Op::Alloc => self.flags & !(FLAG_KEEP | FLAG_VIA) == 0,
                Op::Key => {
                    Rights::from_bits(self.rights).is_some() && self.addr2 <= u64::from(u32::MAX)
                }
                Op::Open => data,
                Op::Close => self.grant != 0,
                Op::Put => self.len != 0,
                Op::Get => small.contains(&self.bytes),
                Op::Wrote => self.grant != 0 && (1..=PART_MAX).contains(&self.bytes) && unwrapped,
                Op::Copy => unwrapped && unwrapped2,
                Op::Cancel => self.arg != 0,
                Op::Free | Op::Info | Op::Unkey | Op::Seal => true,
            },
            (Type::Answer, Some(op)) if self.status == Status::Ok => match op {
                Op::Alloc => self.key2.gen != 0 && self.bytes != 0 && unwrapped,
                Op::Key => self.key2.gen != 0,
                Op::Open => self.grant != 0 && self.len != 0 && data && self.arg <= 1 && unwrapped,
                Op::Get => self.len != 0,
                Op::Info => Rights::from_bits(self.rights).is_some() && unwrapped,
                _ => true,
            },
            _ => true,
        };
        good.then_some(()).ok_or(Violation::Length)
    }
}

/// Any message of a memory link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Message {
    /// LinkCredit or Heartbeat; Challenge or Proof, with payload.
    Link(Header),
    /// One for memory.
    Mem(MemHeader),
}

impl Message {
    /// Decodes a message; those of streams are violations.
    pub fn decode(bytes: &[u8; HEADER_LEN], payload: u32) -> Result<Self, Violation> {
        let [_, kind, ..] = *bytes;
        if kind >= Type::Hello as u8 {
            return MemHeader::decode(bytes, payload).map(Self::Mem);
        }
        let h = Header::decode(bytes, payload)?;
        match h.kind {
            wire::Type::LinkCredit
            | wire::Type::Heartbeat
            | wire::Type::Challenge
            | wire::Type::Proof => Ok(Self::Link(h)),
            _ => Err(Violation::Type),
        }
    }

    /// The link credit that every message carries.
    pub fn link_credit(&self) -> u32 {
        match self {
            Self::Link(h) => h.link_credit,
            Self::Mem(h) => h.link_credit,
        }
    }
}

struct Writer<'a>(&'a mut [u8]);

impl Writer<'_> {
    fn put<const N: usize>(&mut self, v: [u8; N]) {
        if let Some((head, tail)) = core::mem::take(&mut self.0).split_first_chunk_mut::<N>() {
            *head = v;
            self.0 = tail;
        }
    }
}

struct Reader<'a>(&'a [u8]);

impl Reader<'_> {
    fn take<const N: usize>(&mut self) -> [u8; N] {
        match self.0.split_first_chunk::<N>() {
            Some((head, tail)) => {
                self.0 = tail;
                *head
            }
            None => [0; N],
        }
    }

    fn u16(&mut self) -> u16 {
        u16::from_le_bytes(self.take())
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.take())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.take())
    }
}

// The fields fill the header.
const _: () = assert!(2 + 2 + 4 + 4 + 2 + 2 + 8 + 8 + 16 + 4 * 4 + 8 + 8 + 16 == HEADER_LEN);
