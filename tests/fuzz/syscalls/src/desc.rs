// SPDX-License-Identifier: GPL-2.0
//! The parts of a call's description. The calls themselves are in `calls.rs`.

use crate::special::Special;

/// Names of numbers.
pub type Set = &'static [(&'static str, u64)];

/// The kind of descriptor in a variable. Only a hint: programs use all of them everywhere.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// `/dev/zrs`.
    Dev,
    /// A ZRS socket.
    Sock,
    /// One that listens.
    Listener,
    /// One that is connected.
    Conn,
    Epoll,
    Pipe,
    Unix,
    File,
    /// A region of a memory node.
    Region,
    /// A queue of operations on regions.
    Queue,
    /// The address of a mapping.
    Map,
    /// Any descriptor.
    Any,
}

impl Class {
    /// Whether a variable that holds `held` fits where this is wanted.
    pub fn takes(self, held: Self) -> bool {
        use Class::{Any, Conn, Listener, Map, Sock};
        match self {
            Any => held != Map,
            Sock => matches!(held, Sock | Listener | Conn),
            Conn => matches!(held, Conn | Any),
            _ => held == self,
        }
    }
}

/// The values of an argument, or of a field of a structure.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// The network namespace that the call is made in. Not passed to the kernel.
    Ns,
    /// A file descriptor.
    Fd(Class),
    /// One of these, mostly.
    One(Set),
    /// Some of these bits, mostly.
    Flags(Set),
    /// A number; these are the interesting ones.
    Num(&'static [u64]),
    /// A number of bytes.
    Len,
    /// Always this, and not written in programs.
    Fixed(u64),
    /// How many elements the array before it has.
    Count,
    /// An address in memory.
    Mem,
    /// The address of a structure.
    Struct(&'static [Field]),
    /// The address of an array of structures.
    Array(&'static [Field]),
}

/// A field of a structure.
#[derive(Clone, Copy, Debug)]
pub struct Field {
    /// 1, 2, 4 or 8 bytes; more only for `Fixed(0)`.
    pub size: usize,
    /// In network byte order.
    pub big_endian: bool,
    pub kind: Kind,
}

/// The executor of a call.
#[derive(Clone, Copy, Debug)]
pub enum Does {
    /// This system call, with the arguments as they come.
    Call(i64),
    /// Several calls.
    Special(Special),
}

/// The variables that a call sets.
#[derive(Clone, Copy, Debug)]
pub enum Outs {
    None,
    /// Its result.
    One(Class),
    /// The two `int`s that it writes to where this argument points; a special says them itself.
    Two(usize, Class),
}

impl Outs {
    pub fn count(self) -> usize {
        match self {
            Self::None => 0,
            Self::One(_) => 1,
            Self::Two(..) => 2,
        }
    }

    pub fn class(self) -> Class {
        match self {
            Self::None => Class::Any,
            Self::One(class) | Self::Two(_, class) => class,
        }
    }
}

/// A call.
#[derive(Debug)]
pub struct Desc {
    pub name: &'static str,
    pub does: Does,
    pub args: &'static [Kind],
    pub outs: Outs,
    /// The relative frequency of the call.
    pub weight: usize,
}

impl Desc {
    /// A system call.
    pub const fn call(name: &'static str, nr: i64, args: &'static [Kind]) -> Self {
        Self {
            name,
            does: Does::Call(nr),
            args,
            outs: Outs::None,
            weight: 4,
        }
    }

    /// Several calls.
    pub const fn special(name: &'static str, special: Special, args: &'static [Kind]) -> Self {
        Self {
            name,
            does: Does::Special(special),
            args,
            outs: Outs::None,
            weight: 4,
        }
    }

    pub const fn makes(mut self, class: Class) -> Self {
        self.outs = Outs::One(class);
        self
    }

    pub const fn makes_two(mut self, arg: usize, class: Class) -> Self {
        self.outs = Outs::Two(arg, class);
        self
    }

    pub const fn weight(mut self, weight: usize) -> Self {
        self.weight = weight;
        self
    }
}

impl PartialEq for Desc {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::eq(self, other)
    }
}

/// A field in the machine's byte order.
pub const fn field(size: usize, kind: Kind) -> Field {
    Field {
        size,
        big_endian: false,
        kind,
    }
}

/// A field in network byte order.
pub const fn big(size: usize, kind: Kind) -> Field {
    Field {
        size,
        big_endian: true,
        kind,
    }
}

/// Zeroes.
pub const fn pad(size: usize) -> Field {
    field(size, Kind::Fixed(0))
}

/// Whether programs write it down.
pub fn is_written(kind: &Kind) -> bool {
    !matches!(kind, Kind::Fixed(_))
}
