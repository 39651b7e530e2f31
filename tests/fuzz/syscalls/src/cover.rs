// SPDX-License-Identifier: GPL-2.0
//! The range of coverage: the module's functions, and the number of its points.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

/// The functions of the module by their addresses.
pub struct Functions(BTreeMap<u64, String>);

/// The covered points.
#[derive(Default)]
pub struct Sum {
    pub points: usize,
    /// Of these: in functions that are written in Rust.
    pub rust: usize,
    pub functions: BTreeMap<String, usize>,
}

impl Functions {
    /// From /proc/kallsyms.
    pub fn of_module() -> Self {
        let text = fs::read_to_string("/proc/kallsyms").unwrap_or_default();
        Self::from(&text)
    }

    fn from(kallsyms: &str) -> Self {
        let mut all = BTreeMap::new();
        for line in kallsyms.lines().filter(|l| l.ends_with("[zrs]")) {
            let mut words = line.split_whitespace();
            let (addr, kind, name) = (words.next(), words.next(), words.next());
            let (Some(addr), Some("t" | "T"), Some(name)) = (addr, kind, name) else {
                continue;
            };
            if let Ok(addr) = u64::from_str_radix(addr, 16) {
                all.insert(addr, name.to_owned());
            }
        }
        Self(all)
    }

    /// Counts `pcs` by functions. What Rust has mangled begins with `_R`.
    pub fn sum(&self, pcs: impl Iterator<Item = u64>) -> Sum {
        let mut sum = Sum::default();
        for pc in pcs {
            sum.points += 1;
            // A call's return address lies behind the call.
            let before = self.0.range(..pc).next_back();
            let name = before.map_or("?", |(_, name)| name.as_str());
            sum.rust += usize::from(name.starts_with("_R"));
            *sum.functions.entry(name.to_owned()).or_default() += 1;
        }
        sum
    }
}

/// How many points of a module are instrumented: the relocations to the function that is called at
/// each. 0 if it is not built for that.
pub fn points(module: &Path) -> Option<usize> {
    count(&fs::read(module).ok()?, b"__sanitizer_cov_trace_pc")
}

/// Counts the relocations to a symbol in an ELF file of 64 bits, little-endian.
fn count(elf: &[u8], symbol: &[u8]) -> Option<usize> {
    const SHT_SYMTAB: u64 = 2;
    const SHT_RELA: u64 = 4;
    let sections = number(elf, 40, 8)?;
    let (size, n) = (number(elf, 58, 2)?, number(elf, 60, 2)?);
    let section = |i: usize| elf.get(sections.checked_add(i.checked_mul(size)?)?..);
    let bytes = |header: &[u8]| {
        let (at, len) = (number(header, 24, 8)?, number(header, 32, 8)?);
        elf.get(at..at.checked_add(len)?)
    };
    let of = |wanted: u64| {
        let all = (0..n).filter_map(section);
        all.filter(move |h| number(h, 4, 4) == Some(wanted as usize))
    };
    let table = of(SHT_SYMTAB).next()?;
    let names = bytes(section(number(table, 40, 4)?)?)?;
    let index = bytes(table)?.chunks_exact(24).position(|entry| {
        let name = number(entry, 0, 4).and_then(|at| names.get(at..));
        name.is_some_and(|n| n.starts_with(symbol) && n.get(symbol.len()) == Some(&0))
    });
    let Some(index) = index else {
        return Some(0);
    };
    let mut found = 0;
    for header in of(SHT_RELA) {
        let entries = bytes(header)?.chunks_exact(24);
        found += entries.filter(|e| number(e, 12, 4) == Some(index)).count();
    }
    Some(found)
}

/// A little-endian number.
fn number(bytes: &[u8], at: usize, len: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(len)?)?;
    let n = bytes
        .iter()
        .rev()
        .fold(0_u64, |n, b| (n << 8) | u64::from(*b));
    usize::try_from(n).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn points_are_counted_by_functions() {
        let functions = Functions::from(
            "ffffffffc0000000 t _RNvfoo\t[zrs]\nffffffffc0000100 T bar\t[zrs]\n\
             ffffffffc0000050 d data\t[zrs]\nffffffffc0000080 t other\t[rdma_rxe]\n",
        );
        let pcs = [
            0xffff_ffff_c000_0005,
            0xffff_ffff_c000_0100,
            0xffff_ffff_c000_0110,
        ];
        let sum = functions.sum(pcs.into_iter());
        assert_eq!((sum.points, sum.rust), (3, 2));
        assert_eq!(sum.functions.get("_RNvfoo"), Some(&2));
        assert_eq!(sum.functions.get("bar"), Some(&1));
    }

    /// An object of two sections more than nothing: a symbol table, names, relocations.
    #[test]
    fn relocations_are_counted() {
        let mut elf = vec![0; 64];
        let names_at = elf.len();
        elf.extend_from_slice(b"\0other\0hook\0hooked\0");
        let names_len = elf.len() - names_at;
        let symbols_at = elf.len();
        for name in [0_u32, 1, 7, 12] {
            elf.extend_from_slice(&name.to_le_bytes());
            elf.extend_from_slice(&[0; 20]);
        }
        let rela_at = elf.len();
        for symbol in [2_u32, 1, 2, 3] {
            elf.extend_from_slice(&[0; 12]);
            elf.extend_from_slice(&symbol.to_le_bytes());
            elf.extend_from_slice(&[0; 8]);
        }
        let headers_at = elf.len();
        for (kind, at, len, link) in [
            (0, 0, 0, 0_u32),
            (3_u32, names_at, names_len, 0),
            (2, symbols_at, 4 * 24, 1),
            (4, rela_at, 4 * 24, 2),
        ] {
            let mut header = [0; 64];
            header[4..8].copy_from_slice(&kind.to_le_bytes());
            header[24..32].copy_from_slice(&(at as u64).to_le_bytes());
            header[32..40].copy_from_slice(&(len as u64).to_le_bytes());
            header[40..44].copy_from_slice(&link.to_le_bytes());
            elf.extend_from_slice(&header);
        }
        elf[40..48].copy_from_slice(&(headers_at as u64).to_le_bytes());
        elf[58..60].copy_from_slice(&64_u16.to_le_bytes());
        elf[60..62].copy_from_slice(&4_u16.to_le_bytes());
        assert_eq!(count(&elf, b"hook"), Some(2));
        assert_eq!(count(&elf, b"hooked"), Some(1));
        assert_eq!(count(&elf, b"nothing"), Some(0));
        assert_eq!(count(&elf[..100], b"hook"), None);
    }
}
