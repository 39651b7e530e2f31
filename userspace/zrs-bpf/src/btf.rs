// SPDX-License-Identifier: GPL-2.0
//! The kernel's type information (`/sys/kernel/btf/vmlinux`): the number of a function in it.

const MAGIC: u16 = 0xeb9f;
const FUNC: u32 = 12;

/// Why a function was not found.
#[derive(Debug, PartialEq, Eq)]
pub enum Error {
    /// It is not type information, or is not whole.
    Malformed,
    /// It has a type of an unknown kind, whose length is not known.
    UnknownKind(u32),
    /// No function has the name.
    NotThere,
}

/// The number of the function `name`.
pub fn function(btf: &[u8], name: &str) -> Result<u32, Error> {
    let u16_at = |at: usize| {
        let bytes = btf.get(at..at + 2).ok_or(Error::Malformed)?;
        Ok::<_, Error>(u16::from_le_bytes([bytes[0], bytes[1]]))
    };
    let u32_at = |at: usize| {
        let bytes = btf.get(at..at + 4).ok_or(Error::Malformed)?;
        Ok::<_, Error>(u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]))
    };
    if u16_at(0)? != MAGIC {
        return Err(Error::Malformed);
    }
    // struct btf_header
    let header = u32_at(4)? as usize;
    let part = |offset: u32, len: u32| {
        let from = header
            .checked_add(offset as usize)
            .ok_or(Error::Malformed)?;
        let to = from.checked_add(len as usize).ok_or(Error::Malformed)?;
        (to <= btf.len())
            .then_some((from, to))
            .ok_or(Error::Malformed)
    };
    let (mut at, end) = part(u32_at(8)?, u32_at(12)?)?;
    let (strings, strings_end) = part(u32_at(16)?, u32_at(20)?)?;
    let is_named = |offset: u32| {
        let rest = btf[strings..strings_end].get(offset as usize..)?;
        let rest = rest.strip_prefix(name.as_bytes())?;
        (rest.first() == Some(&0)).then_some(())
    };
    // Number 0 is void, which is not written down.
    let mut id = 1;
    while at < end {
        let (name_off, info) = (u32_at(at)?, u32_at(at + 4)?);
        let kind = (info >> 24) & 0x7f;
        let n = (info & 0xff_ffff) as usize;
        if kind == FUNC && is_named(name_off).is_some() {
            return Ok(id);
        }
        let more = match kind {
            // A number, a variable, a tag of a declaration.
            1 | 14 | 17 => 4,
            // Pointers, forward declarations, typedefs, qualifiers, functions, floats, tags.
            2 | 7..=12 | 16 | 18 => 0,
            // An array.
            3 => 12,
            // Structures, unions, sections, enumerations of 64 bits.
            4 | 5 | 15 | 19 => 12 * n,
            // Enumerations, prototypes.
            6 | 13 => 8 * n,
            _ => return Err(Error::UnknownKind(kind)),
        };
        at += 12 + more;
        id += 1;
    }
    Err(Error::NotThere)
}
