// SPDX-License-Identifier: GPL-2.0
//! Answers from the kernel rather than the module: the work requests that the driver gets
//! (`tests/lib/postlog`), the page frames of a program's memory (pagemap), and the number of pinned
//! pages (vmstat).

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;

use crate::support::raw::{Errno, Result};

pub const PAGE: u64 = 4096;
/// `enum ib_wr_opcode`.
pub const WRITE: u32 = 0;
pub const SEND: u32 = 2;
/// Where postlog keeps its record.
const POSTS: &str = "/proc/zrs_posts";

/// A gather element.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sge {
    pub addr: u64,
    pub len: u64,
}

/// A work request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Wr {
    pub opcode: u32,
    /// The address in the peer's memory that a WRITE goes to.
    pub remote: u64,
    pub sges: Vec<Sge>,
    /// The first bytes of a SEND.
    pub bytes: Vec<u8>,
}

/// The work requests of one call of `ib_post_send()`, in order.
pub type Post = Vec<Wr>;

/// Everything that is posted to Soft-RoCE while `work` runs, by any task.
pub fn posts<T>(work: impl FnOnce() -> Result<T>) -> Result<(T, Vec<Post>)> {
    fs::write(POSTS, "1")?;
    let done = work();
    fs::write(POSTS, "0")?;
    let posts = parse(&fs::read_to_string(POSTS)?).ok_or(Errno(libc::EBADMSG))?;
    Ok((done?, posts))
}

/// The posts of a record. `None`: a line is malformed, or requests were lost.
fn parse(text: &str) -> Option<Vec<Post>> {
    let text = text.strip_suffix("lost 0\n")?;
    let mut posts: Vec<(&str, Post)> = Vec::new();
    for line in text.lines() {
        let (number, wr) = line.split_once(' ')?;
        let wr = request(wr)?;
        match posts.last_mut() {
            Some((last, post)) if *last == number => post.push(wr),
            _ => posts.push((number, vec![wr])),
        }
    }
    Some(posts.into_iter().map(|(_, post)| post).collect())
}

fn request(line: &str) -> Option<Wr> {
    let words: Vec<&str> = line.split(' ').collect();
    let &[opcode, remote, sges, bytes] = &words[..] else {
        return None;
    };
    let hex = |text: &str| u64::from_str_radix(text, 16).ok();
    let sge = |text: &str| {
        let (addr, len) = text.split_once('+')?;
        Some(Sge {
            addr: hex(addr)?,
            len: hex(len)?,
        })
    };
    let sges = sges.split(',').filter(|text| *text != "-").map(sge);
    let bytes = bytes.strip_prefix('-').unwrap_or(bytes).as_bytes();
    let byte = |pair: &[u8]| Some(hex(std::str::from_utf8(pair).ok()?)? as u8);
    Some(Wr {
        opcode: opcode.parse().ok()?,
        remote: hex(remote)?,
        sges: sges.collect::<Option<_>>()?,
        bytes: bytes.chunks(2).map(byte).collect::<Option<_>>()?,
    })
}

/// Below are numbers that messages may well have for other reasons: lengths, and positions in the
/// stream.
const LOWEST: u64 = 16 << 20;

/// The addresses of these pieces of memory and of their pages, physical ones and those of the
/// direct map at `map`, that are in a message of the posts, in either byte order. All fields of
/// messages are at multiples of four bytes.
pub fn told(posts: &[Post], pieces: &[Sge], map: u64) -> Vec<u64> {
    let each = |piece: &Sge| [piece.addr, piece.addr / PAGE * PAGE];
    let physical = pieces.iter().flat_map(each).filter(|addr| *addr >= LOWEST);
    let secret: HashSet<u64> = physical.flat_map(|addr| [addr, addr + map]).collect();
    let mut found = Vec::new();
    for wr in posts.iter().flatten() {
        for at in (0..wr.bytes.len().saturating_sub(7)).step_by(4) {
            let bytes = wr.bytes[at..at + 8].try_into().expect("eight bytes");
            let both = [u64::from_le_bytes(bytes), u64::from_be_bytes(bytes)];
            found.extend(both.iter().filter(|value| secret.contains(value)));
        }
    }
    found
}

/// Physical addresses of the memory of this process: of `len` bytes from `addr` on, one piece for
/// each page that they touch. EPERM without CAP_SYS_ADMIN; EFAULT for a page that is not present.
pub fn physical(addr: u64, len: u64) -> Result<Vec<Sge>> {
    let map = File::open("/proc/self/pagemap")?;
    let end = addr + len;
    let mut pieces = Vec::new();
    let mut at = addr;
    while at < end {
        let mut entry = [0; 8];
        map.read_exact_at(&mut entry, at / PAGE * 8)?;
        let entry = u64::from_le_bytes(entry);
        let pfn = entry & ((1 << 55) - 1);
        if entry >> 63 == 0 {
            return Err(Errno(libc::EFAULT));
        }
        if pfn == 0 {
            return Err(Errno(libc::EPERM));
        }
        let next = end.min((at / PAGE + 1) * PAGE);
        pieces.push(Sge {
            addr: pfn * PAGE + at % PAGE,
            len: next - at,
        });
        at = next;
    }
    Ok(pieces)
}

/// The pieces with adjacent ones merged.
pub fn merged(pieces: &[Sge]) -> Vec<Sge> {
    let mut runs: Vec<Sge> = Vec::new();
    for piece in pieces {
        match runs.last_mut() {
            Some(last) if last.addr + last.len == piece.addr => last.len += piece.len,
            _ => runs.push(*piece),
        }
    }
    runs
}

/// The numbers of pages pinned and unpinned since boot, by the whole kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pins {
    pub acquired: u64,
    pub released: u64,
}

impl Pins {
    pub fn now() -> Result<Self> {
        // Fold the per-CPU counters.
        fs::write("/proc/sys/vm/stat_refresh", "1")?;
        let text = fs::read_to_string("/proc/vmstat")?;
        let count = |name: &str| {
            let line = text.lines().find_map(|line| line.strip_prefix(name));
            line.and_then(|n| n.trim().parse().ok())
                .ok_or(Errno(libc::ENOENT))
        };
        Ok(Self {
            acquired: count("nr_foll_pin_acquired ")?,
            released: count("nr_foll_pin_released ")?,
        })
    }

    /// Pinned now.
    pub fn held(self) -> u64 {
        self.acquired.wrapping_sub(self.released)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const RECORD: &str = "0 0 7f0000001000 ffff888000000010+40,ffff888000000080+9 -\n\
                          0 2 0 ffff888000000f00+c 000000010200000003040506\n\
                          7 11 0 - -\nlost 0\n";

    #[test]
    fn chains_of_a_record() {
        let posts = parse(RECORD).expect("a record");
        assert_eq!(posts.iter().map(Vec::len).collect::<Vec<_>>(), [2, 1]);
        let [write, send] = &posts[0][..] else {
            panic!("{posts:?}");
        };
        let (first, second) = (0xffff_8880_0000_0010, 0xffff_8880_0000_0080);
        let sges = [(first, 0x40), (second, 9)].map(|(addr, len)| Sge { addr, len });
        assert_eq!(write.sges, sges);
        assert_eq!((write.opcode, write.remote), (WRITE, 0x7f00_0000_1000));
        assert_eq!((send.opcode, send.bytes.len()), (SEND, 12));
        assert!(write.bytes.is_empty() && posts[1][0].sges.is_empty());
        assert!(parse(&RECORD.replace("lost 0", "lost 1")).is_none());
        assert!(parse(&RECORD.replace(" -\n", "\n")).is_none());
        assert!(parse("").is_none());
    }

    #[test]
    fn what_is_told() {
        let posts = |bytes: &[u8]| {
            vec![vec![Wr {
                opcode: SEND,
                remote: 0,
                sges: vec![],
                bytes: bytes.to_vec(),
            }]]
        };
        let pieces = [(0x500_1230, 10), (0x1000, 4096)].map(|(addr, len)| Sge { addr, len });
        let map = 0xffff_8880_0000_0000u64;
        let mut bytes = vec![9; 4];
        bytes.extend(0x500_1000u64.to_le_bytes());
        bytes.extend((map + 0x500_1230).to_be_bytes());
        let found = told(&posts(&bytes), &pieces, map);
        assert_eq!(found, [0x500_1000, map + 0x500_1230]);
        assert_eq!(told(&posts(&bytes), &pieces, 0), [0x500_1000]);
        assert!(told(&posts(&bytes[1..]), &pieces, map).is_empty());
        // A length.
        assert!(told(&posts(&0x1000u64.to_le_bytes()), &pieces, map).is_empty());
    }

    #[test]
    fn neighbours() {
        let pieces = [(4096, 4096), (8192, 10), (8202, 1), (0, 5)];
        let pieces = pieces.map(|(addr, len)| Sge { addr, len });
        let runs: Vec<_> = merged(&pieces).iter().map(|r| (r.addr, r.len)).collect();
        assert_eq!(runs, [(4096, 4107), (0, 5)]);
    }
}
