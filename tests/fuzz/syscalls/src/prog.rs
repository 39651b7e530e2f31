// SPDX-License-Identifier: GPL-2.0
//! Programs, which are run, kept and mutated.

use crate::desc::{Desc, Kind};

/// Variables r0 to r63.
pub const VARS: usize = 64;
/// Calls of one program.
pub const MAX_CALLS: usize = 24;

/// Where an address begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Base {
    /// 0.
    Null,
    /// Where nothing is mapped.
    Bad,
    /// In the kernel.
    Kern,
    /// The buffer: 4 MiB that can be read and written.
    Buf,
    /// A page that can only be read.
    Ro,
    /// This number of bytes before the end of memory behind which nothing is mapped.
    End,
    /// The address in a variable.
    Var(u8),
}

/// Where the bytes of a structure lie.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    Aligned,
    /// At an odd address.
    Odd,
    /// Its end is the end of the page, and nothing is mapped behind it.
    Edge,
    /// Its last byte is where nothing is mapped.
    Cut,
}

/// An argument.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Value {
    Int(u64),
    /// The contents of a variable.
    Var(u8),
    Mem(Base, u32),
    /// A structure's fields, or an array's elements.
    Seq(Place, Vec<Value>),
}

/// A call of a program.
#[derive(Clone, Debug, PartialEq)]
pub struct Call {
    pub desc: &'static Desc,
    /// The next call does not wait for its end.
    pub alone: bool,
    pub outs: Vec<u8>,
    /// One for each kind of the description that is written.
    pub args: Vec<Value>,
}

/// A program.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Program {
    /// Runs as uid 65534, without privileges.
    pub nobody: bool,
    pub calls: Vec<Call>,
}

impl Call {
    /// Each written argument with its kind.
    pub fn args_mut(&mut self) -> impl Iterator<Item = (&'static Kind, &mut Value)> {
        let kinds = self.desc.args.iter().filter(|k| crate::desc::is_written(k));
        kinds.zip(self.args.iter_mut())
    }
}

impl Program {
    /// The first variable that no call fills.
    pub fn free_var(&self) -> usize {
        let outs = self.calls.iter().flat_map(|c| c.outs.iter());
        outs.map(|o| usize::from(*o) + 1).max().unwrap_or(0)
    }
}
