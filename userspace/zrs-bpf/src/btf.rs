// SPDX-License-Identifier: GPL-2.0
//! The kernel's type information (`/sys/kernel/btf/vmlinux`): the number of a function in it, and
//! where a structure has a member.

const MAGIC: u16 = 0xeb9f;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const FUNC: u32 = 12;
/// How deep structures without a name may be in each other.
const DEPTH: u32 = 8;

/// Why something was not found.
#[derive(Debug, PartialEq, Eq)]
pub enum Error {
    /// It is not type information, or is not whole.
    Malformed,
    /// It has a type of an unknown kind, whose length is not known.
    UnknownKind(u32),
    /// Nothing has the name.
    NotThere,
}

fn u16_at(btf: &[u8], at: usize) -> Result<u16, Error> {
    let bytes = btf.get(at..at + 2).ok_or(Error::Malformed)?;
    Ok(u16::from_le_bytes([bytes[0], bytes[1]]))
}

fn u32_at(btf: &[u8], at: usize) -> Result<u32, Error> {
    let bytes = btf.get(at..at + 4).ok_or(Error::Malformed)?;
    Ok(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
}

/// The types, and where each is.
struct Types<'a> {
    btf: &'a [u8],
    strings: &'a [u8],
    /// The next one, and where they end.
    at: usize,
    end: usize,
}

/// A type.
#[derive(Clone, Copy)]
struct Type {
    name: u32,
    kind: u32,
    /// How many members it has.
    n: usize,
    /// The offsets of members include a width in bits.
    bitfields: bool,
    /// Where it is.
    at: usize,
}

impl<'a> Types<'a> {
    fn new(btf: &'a [u8]) -> Result<Self, Error> {
        if u16_at(btf, 0)? != MAGIC {
            return Err(Error::Malformed);
        }
        // struct btf_header
        let header = u32_at(btf, 4)? as usize;
        let part = |offset: u32, len: u32| {
            let from = header
                .checked_add(offset as usize)
                .ok_or(Error::Malformed)?;
            let to = from.checked_add(len as usize).ok_or(Error::Malformed)?;
            (to <= btf.len())
                .then_some((from, to))
                .ok_or(Error::Malformed)
        };
        let (at, end) = part(u32_at(btf, 8)?, u32_at(btf, 12)?)?;
        let (strings, strings_end) = part(u32_at(btf, 16)?, u32_at(btf, 20)?)?;
        Ok(Self {
            btf,
            strings: &btf[strings..strings_end],
            at,
            end,
        })
    }

    /// The next type; `None` at the end.
    fn take(&mut self) -> Result<Option<Type>, Error> {
        let at = self.at;
        if at >= self.end {
            return Ok(None);
        }
        let (name, info) = (u32_at(self.btf, at)?, u32_at(self.btf, at + 4)?);
        let kind = (info >> 24) & 0x7f;
        let n = (info & 0xff_ffff) as usize;
        let more = match kind {
            // A number, a variable, a tag of a declaration.
            1 | 14 | 17 => 4,
            // Pointers, forward declarations, typedefs, qualifiers, functions, floats, tags.
            2 | 7..=12 | 16 | 18 => 0,
            // An array.
            3 => 12,
            // Structures, unions, sections, enumerations of 64 bits.
            STRUCT | UNION | 15 | 19 => 12 * n,
            // Enumerations, prototypes.
            6 | 13 => 8 * n,
            _ => return Err(Error::UnknownKind(kind)),
        };
        self.at = at + 12 + more;
        Ok(Some(Type {
            name,
            kind,
            n,
            bitfields: info >> 31 != 0,
            at,
        }))
    }

    fn is_named(&self, offset: u32, name: &str) -> bool {
        let rest = self.strings.get(offset as usize..).unwrap_or_default();
        let rest = rest.strip_prefix(name.as_bytes());
        rest.is_some_and(|rest| rest.first() == Some(&0))
    }
}

/// The number of the function `name`.
pub fn function(btf: &[u8], name: &str) -> Result<u32, Error> {
    let mut types = Types::new(btf)?;
    // Number 0 is void, which is not written down.
    let mut id = 1;
    while let Some(found) = types.take()? {
        if found.kind == FUNC && types.is_named(found.name, name) {
            return Ok(id);
        }
        id += 1;
    }
    Err(Error::NotThere)
}

/// Where the structure `name` has the member, in bytes. The member may be in a structure or union
/// without a name.
pub fn member(btf: &[u8], name: &str, member: &str) -> Result<u32, Error> {
    let mut types = Types::new(btf)?;
    let mut all = Vec::new();
    while let Some(found) = types.take()? {
        all.push(found);
    }
    let whole = all
        .iter()
        .find(|t| t.kind == STRUCT && types.is_named(t.name, name))
        .ok_or(Error::NotThere)?;
    let bits = member_of(&types, &all, whole, member, DEPTH)?.ok_or(Error::NotThere)?;
    (bits % 8 == 0).then_some(bits / 8).ok_or(Error::NotThere)
}

/// The same in bits.
fn member_of(
    types: &Types<'_>,
    all: &[Type],
    whole: &Type,
    name: &str,
    depth: u32,
) -> Result<Option<u32>, Error> {
    for n in 0..whole.n {
        let at = whole.at + 12 + 12 * n;
        let (named, kind) = (u32_at(types.btf, at)?, u32_at(types.btf, at + 4)?);
        let mut bits = u32_at(types.btf, at + 8)?;
        if whole.bitfields {
            bits &= 0xff_ffff;
        }
        if types.is_named(named, name) {
            return Ok(Some(bits));
        }
        let inner = (kind as usize).checked_sub(1).and_then(|n| all.get(n));
        let Some(inner) = inner.filter(|t| matches!(t.kind, STRUCT | UNION)) else {
            continue;
        };
        if !types.is_named(named, "") || depth == 0 {
            continue;
        }
        if let Some(more) = member_of(types, all, inner, name, depth - 1)? {
            return Ok(bits.checked_add(more));
        }
    }
    Ok(None)
}
