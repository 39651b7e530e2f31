// SPDX-License-Identifier: GPL-2.0
//! The bytes of a file: a region that is replaced by another one when the file changes its size. The
//! nodes move the bytes from the old one to the new one.

use std::io;
use std::os::unix::fs::FileExt;

use fuser::{BackingId, Errno};
use zrs::mem::{self, Alloc, NodeId, Region, RemoteStorage, Rights};
use zrs::Zrs;

use crate::Options;

/// The first region of a file that is written in order; regions double from there on.
const FIRST: u64 = 1 << 20;

/// The largest count of one copy: a reply has 32 bits.
const COPY_MAX: u64 = 1 << 30;

/// Allocates regions at one node.
pub struct Allocator<'a> {
    pub zrs: &'a Zrs,
    pub node: NodeId,
    pub options: Options,
}

impl Allocator<'_> {
    fn alloc(&self, len: u64) -> io::Result<Region> {
        Region::alloc(
            self.zrs,
            &Alloc {
                node: self.node,
                len,
                keep: self.options.keep,
                admission: self.options.admission,
                ..Default::default()
            },
        )
    }
}

/// The bytes of a file.
#[derive(Default)]
pub struct Contents {
    /// At least `size` bytes, those behind are zero unless `soiled`; none for an empty file.
    region: Option<Region>,
    size: u64,
    /// A write or copy has failed that may have written behind the end.
    soiled: bool,
    /// The rights of a region that was not allocated here.
    rights: Option<Rights>,
    passing: Option<Passing>,
    /// Opens that this process serves alone.
    served: u32,
}

/// Opens that the kernel knows a region for. While there are any, it wants the same one for all.
struct Passing {
    id: BackingId,
    /// The region may be written.
    writable: bool,
    opens: u32,
    /// The region, when it is not the file's any more: it is freed when they are closed.
    replaced: Option<Region>,
}

/// How a file is opened.
pub enum Opened<'a> {
    /// Reads and writes come to this process.
    Served,
    /// The kernel reads the region.
    Passed(&'a BackingId),
    /// Reads and writes come to this process; the kernel has to be told the region of others.
    Beside(&'a BackingId),
}

impl Contents {
    pub fn size(&self) -> u64 {
        self.size
    }

    /// The region of a storage id becomes the file.
    pub fn adopt(&mut self, zrs: &Zrs, id: RemoteStorage) -> io::Result<()> {
        let region = Region::open(zrs, id)?;
        self.rights = Some(region.info()?.rights);
        self.size = region.len();
        self.region = Some(region);
        Ok(())
    }

    /// The file ends: frees its region.
    pub fn free(&mut self) -> io::Result<()> {
        (self.size, self.soiled) = (0, false);
        self.rights = None;
        let old = self.region.take();
        self.retire(old)
    }

    /// Frees a region that was the file's, or leaves that to the last open that reads it.
    fn retire(&mut self, old: Option<Region>) -> io::Result<()> {
        let Some(old) = old else {
            return Ok(());
        };
        match &mut self.passing {
            Some(passing) if passing.replaced.is_none() => passing.replaced = Some(old),
            _ => return old.free(),
        }
        Ok(())
    }

    fn may(&self, right: Rights) -> bool {
        self.rights.is_none_or(|rights| rights.contains(right))
    }

    /// The file is opened, to be read alone if not to `write`. `settled`: it keeps its region, as far
    /// as is known. `pass` tells the kernel a region, if that can be.
    pub fn open(
        &mut self,
        write: bool,
        settled: bool,
        pass: impl FnOnce(&Region) -> Option<BackingId>,
    ) -> Result<Opened<'_>, Errno> {
        let whole = |region: &&Region| region.len() == self.size;
        let region = self.region.as_ref().filter(whole);
        let direct = !write && settled && region.is_some() && self.may(Rights::READ);
        if self.passing.is_none() && direct && self.served == 0 {
            let new = |id| Passing {
                id,
                writable: self.may(Rights::WRITE),
                opens: 0,
                replaced: None,
            };
            self.passing = region.and_then(pass).map(new);
        }
        match &mut self.passing {
            // The kernel opens the region as the file.
            Some(passing) if write && !passing.writable => Err(Errno::EACCES),
            Some(passing) => {
                passing.opens += 1;
                Ok(match direct && passing.replaced.is_none() {
                    true => Opened::Passed(&passing.id),
                    false => Opened::Beside(&passing.id),
                })
            }
            None => {
                self.served += 1;
                Ok(Opened::Served)
            }
        }
    }

    /// An open was closed; `told`: the kernel had to know the region.
    pub fn close(&mut self, told: bool) {
        if !told {
            self.served -= 1;
            return;
        }
        if let Some(passing) = &mut self.passing {
            passing.opens -= 1;
        }
        if let Some(last) = self.passing.take_if(|passing| passing.opens == 0) {
            // The node frees one that it could not free now with the descriptor.
            let _ = last.replaced.map(Region::free);
        }
    }

    /// Replaces the region by one of `len` bytes with the first `bytes` of it.
    fn replace(&mut self, at: &Allocator<'_>, len: u64, bytes: u64) -> io::Result<()> {
        let new = at.alloc(len)?;
        if let Some(old) = &self.region {
            if let Err(e) = copy_all(old, 0, &new, 0, bytes) {
                // The file is as it was.
                let _ = new.free();
                return Err(e);
            }
        }
        let old = self.region.replace(new);
        self.rights = None;
        self.soiled = false;
        // The bytes are in the new one; the node frees an old one that it could not free now with the
        // descriptor.
        self.retire(old).or(Ok(()))
    }

    /// Makes room for `end` bytes; `all` of them will come.
    fn reserve(&mut self, at: &Allocator<'_>, end: u64, all: u64) -> io::Result<()> {
        let have = self.region.as_ref().map_or(0, Region::len);
        if end <= have {
            return match self.soiled && end > self.size {
                // What shows between the old end and the new bytes has to be zero.
                true => self.replace(at, have, self.size),
                false => Ok(()),
            };
        }
        let wanted = all.max(end);
        let ample = if all > end {
            wanted
        } else {
            wanted.max(have.saturating_mul(2)).max(FIRST)
        };
        match self.replace(at, ample, self.size) {
            Err(_) if ample != end => self.replace(at, end, self.size),
            result => result,
        }
    }

    /// Gives the region the length of the file.
    pub fn settle(&mut self, at: &Allocator<'_>) -> io::Result<()> {
        match &self.region {
            None => Ok(()),
            Some(region) if region.len() == self.size => Ok(()),
            Some(_) if self.size == 0 => self.free(),
            Some(_) => self.replace(at, self.size, self.size),
        }
    }

    /// Changes the size; new bytes are zero.
    pub fn truncate(&mut self, at: &Allocator<'_>, size: u64) -> io::Result<()> {
        if size == 0 {
            return self.free();
        }
        if size != self.size {
            self.replace(at, size, size.min(self.size))?;
            self.size = size;
        }
        Ok(())
    }

    /// Up to `len` bytes at `off`.
    pub fn read(&self, off: u64, len: usize) -> io::Result<Vec<u8>> {
        let left = self.size.saturating_sub(off);
        let mut bytes = vec![0; usize::try_from(left).map_or(len, |left| left.min(len))];
        let mut done = 0;
        if let Some(region) = &self.region {
            while done < bytes.len() {
                match region.read_at(&mut bytes[done..], off + done as u64)? {
                    0 => break,
                    n => done += n,
                }
            }
        }
        bytes.truncate(done);
        Ok(bytes)
    }

    /// Writes all of `data`.
    pub fn write(&mut self, at: &Allocator<'_>, off: u64, data: &[u8]) -> io::Result<()> {
        let end = off
            .checked_add(data.len() as u64)
            .ok_or(io::ErrorKind::FileTooLarge)?;
        self.reserve(at, end, end)?;
        if let Some(region) = &self.region {
            let wrote = region.write_all_at(data, off);
            self.soiled |= wrote.is_err() && end > self.size;
            wrote?;
        }
        self.size = self.size.max(end);
        Ok(())
    }

    /// Has the node of `from` write up to `len` bytes of it to this file; how many.
    pub fn copy_from(
        &mut self,
        at: &Allocator<'_>,
        off: u64,
        from: &Self,
        from_off: u64,
        len: u64,
    ) -> io::Result<u64> {
        let left = from.size.saturating_sub(from_off);
        let n = len.min(left).min(COPY_MAX);
        let Some(source) = from.region.as_ref().filter(|_| n != 0) else {
            return Ok(0);
        };
        let end = off.checked_add(n).ok_or(io::ErrorKind::FileTooLarge)?;
        // A copy of a whole file is asked for in parts.
        self.reserve(at, end, off.saturating_add(left.min(len)))?;
        let Some(target) = &self.region else {
            return Ok(0);
        };
        let copied = mem::copy(source, from_off, target, off, n);
        self.grown(off, end, copied)
    }

    /// The same within the file.
    pub fn copy_within(
        &mut self,
        at: &Allocator<'_>,
        off: u64,
        from_off: u64,
        len: u64,
    ) -> io::Result<u64> {
        let n = len.min(self.size.saturating_sub(from_off)).min(COPY_MAX);
        if n == 0 {
            return Ok(0);
        }
        let end = off.checked_add(n).ok_or(io::ErrorKind::FileTooLarge)?;
        self.reserve(at, end, end)?;
        let Some(region) = &self.region else {
            return Ok(0);
        };
        let copied = mem::copy(region, from_off, region, off, n);
        self.grown(off, end, copied)
    }

    /// A copy to the bytes from `off` to `end` is over.
    fn grown(&mut self, off: u64, end: u64, copied: io::Result<u64>) -> io::Result<u64> {
        // Behind what has landed for sure, more may have landed.
        let landed = copied.as_ref().map_or(0, |n| off + n);
        self.soiled |= landed < end && end > self.size;
        self.size = self.size.max(landed);
        copied
    }

    /// The storage id of the region.
    pub fn storage(&self) -> Option<RemoteStorage> {
        self.region.as_ref().map(Region::storage)
    }
}

fn copy_all(from: &Region, off: u64, to: &Region, to_off: u64, len: u64) -> io::Result<()> {
    match mem::copy(from, off, to, to_off, len)? {
        n if n == len => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}
