// SPDX-License-Identifier: GPL-2.0

//! Regions as files.

#![deny(unsafe_code)]

use kernel::iov::{IovIterDest, IovIterSource};
use kernel::prelude::*;
use kernel::sync::atomic::Atomic;
use kernel::sync::Arc;
use kernel::uaccess::{UserPtr, UserSlice};

use super::admin::key_of;
use super::context::HostRef;
use super::copying::ProgramCopy;
use super::host::Host;
use super::rw::{ask_ok, Memory};
use crate::kern::pin::{dest_pages, source_pages, Extracted, LockedPages, PinnedPages};
use crate::kern::regfile::{AsyncCall, RegularFile};
use crate::proto::mem::id::{Key, NodeId, StorageId};
use crate::proto::mem::rights::Rights;
use crate::proto::mem::wire::{MemHeader, Op};
use crate::uapi::*;

/// Most bytes of one COPY; a longer call is cut short.
const COPY_MAX: u64 = 1 << 30;
/// Where bytes of a region are, and the key that is shown.
#[derive(Clone, Copy)]
pub(super) struct Place {
    pub(super) node: NodeId,
    pub(super) key: Key,
    pub(super) addr: u64,
}

/// An open region.
pub(super) struct RegionFile {
    pub(super) host: HostRef,
    pub(super) node: NodeId,
    /// The broker that has allocated it.
    pub(super) via: Option<NodeId>,
    pub(super) storage: StorageId,
    pub(super) rights: Rights,
    /// It is freed when the file is closed.
    pub(super) owned: bool,
    /// See [`Memory::small_gets`].
    pub(super) small_gets: Atomic<u32>,
}

impl RegionFile {
    fn memory(&self) -> Memory<'_> {
        Memory {
            host: &self.host,
            node: self.node,
            storage: self.storage,
            small_gets: &self.small_gets,
        }
    }

    /// The host that frees it: that of the node, or of the broker.
    fn owner(&self) -> NodeId {
        self.via.unwrap_or(self.node)
    }

    fn header(&self, op: Op) -> MemHeader {
        MemHeader {
            key: self.storage.key,
            node: self.node,
            ..MemHeader::ask(0, op)
        }
    }

    /// Where the byte at `pos` is.
    pub(super) fn place(&self, pos: u64) -> Place {
        Place {
            node: self.node,
            key: self.storage.key,
            addr: self.storage.va + pos,
        }
    }

    /// Whether keys can be derived from the descriptor's.
    pub(super) fn may_grant(&self) -> bool {
        self.rights.contains(Rights::GRANT)
    }

    /// Begins to move the bytes of `pages`. Gives `call` back where there are none.
    fn begin_moving(
        &self,
        pos: u64,
        write: bool,
        pages: Result<KVec<PinnedPages>>,
        locked: LockedPages,
        call: AsyncCall,
    ) -> Result<(), AsyncCall> {
        match pages {
            Ok(pages) if pages.is_empty() => Err(call),
            Ok(pages) => {
                let place = self.place(pos);
                let host: &Arc<Host> = &self.host;
                host.with(|st| st.begin_async(place, write, pages, locked, call));
                Ok(())
            }
            Err(e) => {
                call.complete(Err(e));
                Ok(())
            }
        }
    }

    fn info(&self, info: &mut zrs_region_info) -> Result {
        zero(&info.reserved)?;
        let h = ask_ok(&self.host, self.node, self.header(Op::Info), KVec::new())?.h;
        let granted = Rights::from_bits(h.rights).is_some_and(|r| r.contains(Rights::GRANT));
        let key = self.storage.key;
        *info = zrs_region_info {
            node: zrs_mem_node {
                domain: self.node.domain,
                node: self.node.node,
            },
            storage: zrs_mem_storage {
                va: h.addr,
                len: h.bytes,
                key: zrs_mem_key {
                    region: key.region,
                    gen: key.gen,
                    secret: if granted { key.secret } else { 0 },
                },
            },
            rights: h.rights,
            keys: h.arg,
            holds: h.grant,
            ..Default::default()
        };
        Ok(())
    }

    fn derive(&self, k: &mut zrs_region_key) -> Result {
        zero(&[u64::from(k.reserved0)])?;
        let h = MemHeader {
            addr: self.storage.va.checked_add(k.off).ok_or(ERANGE)?,
            bytes: k.len,
            rights: Rights::from_bits(k.rights).ok_or(EINVAL)?.bits(),
            arg: k.ttl_ms,
            addr2: u64::from(k.uses),
            ..self.header(Op::Key)
        };
        if h.addr.checked_add(h.bytes).is_none() {
            return Err(ERANGE);
        }
        let key = ask_ok(&self.host, self.node, h, KVec::new())?.h.key2;
        k.key = zrs_mem_key {
            region: key.region,
            gen: key.gen,
            secret: key.secret,
        };
        Ok(())
    }

    fn revoke(&self, arg: usize) -> Result<isize> {
        let slice = UserSlice::new(UserPtr::from_addr(arg), size_of::<zrs_region_key>());
        let k: zrs_region_key = slice.reader().read()?;
        let rest = [k.rights, k.uses, k.ttl_ms, k.reserved0].map(u64::from);
        zero(&rest)?;
        zero(&[k.off, k.len])?;
        self.unkey(key_of(&k.key))?;
        Ok(0)
    }

    fn unkey(&self, key: Key) -> Result {
        let h = MemHeader {
            key2: key,
            ..self.header(Op::Unkey)
        };
        ask_ok(&self.host, self.node, h, KVec::new()).map(drop)
    }
}

/// The pages of the next `len` bytes, as far as they can be had; none at all: the iterator has not
/// moved.
fn pinned(
    len: usize,
    mut extract: impl FnMut(usize) -> Result<Extracted>,
) -> Result<KVec<PinnedPages>> {
    let mut all = KVec::new();
    let mut done = 0;
    while done < len {
        all.reserve(1, GFP_KERNEL)?;
        let Ok(Extracted::Pages(pages)) = extract(len - done) else {
            break;
        };
        done += pages.len();
        let _ = all.push_within_capacity(pages);
    }
    Ok(all)
}

impl RegularFile for RegionFile {
    fn read(&self, pos: u64, iter: &mut IovIterDest<'_>) -> Result<usize> {
        let left = self.storage.len.saturating_sub(pos);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(iter.len());
        if len == 0 {
            return Ok(0);
        }
        let got = self.memory().get(pos, len, iter);
        got.inspect(|n| self.host.counts.used(false, *n as u64))
    }

    fn write(&self, pos: u64, iter: &mut IovIterSource<'_>) -> Result<usize> {
        if iter.is_empty() {
            return Ok(0);
        }
        let left = self.storage.len.saturating_sub(pos);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(iter.len());
        if len == 0 {
            return Err(ENOSPC);
        }
        let put = self.memory().put(pos, len, iter);
        put.inspect(|n| self.host.counts.used(true, *n as u64))
    }

    fn begin_read(
        &self,
        pos: u64,
        iter: &mut IovIterDest<'_>,
        call: AsyncCall,
    ) -> Result<(), AsyncCall> {
        let left = self.storage.len.saturating_sub(pos);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(iter.len());
        let locked = dest_pages(iter).filter(|_| len != 0);
        let Some(Ok(locked)) = locked.map(LockedPages::new) else {
            return Err(call);
        };
        let pages = pinned(len, |left| {
            PinnedPages::extract_dest(iter, left, &self.host.memory.pages)
        });
        self.begin_moving(pos, false, pages, locked, call)
    }

    fn begin_write(
        &self,
        pos: u64,
        iter: &mut IovIterSource<'_>,
        call: AsyncCall,
    ) -> Result<(), AsyncCall> {
        let left = self.storage.len.saturating_sub(pos);
        let len = usize::try_from(left).unwrap_or(usize::MAX).min(iter.len());
        let locked = source_pages(iter).filter(|_| len != 0);
        let Some(Ok(locked)) = locked.map(LockedPages::new) else {
            return Err(call);
        };
        let pages = pinned(len, |left| PinnedPages::extract(iter, left));
        self.begin_moving(pos, true, pages, locked, call)
    }

    fn copy(from: &Self, from_pos: u64, to: &Self, pos: u64, len: u64) -> Result<usize> {
        if from.host.net != to.host.net {
            return Err(EXDEV);
        }
        let len = len
            .min(from.storage.len.saturating_sub(from_pos))
            .min(COPY_MAX);
        if len == 0 {
            return Ok(0);
        }
        let room = to.storage.len.saturating_sub(pos);
        if room == 0 {
            return Err(ENOSPC);
        }
        let len = len.min(room);
        let (from_place, to_place) = (from.place(from_pos), to.place(pos));
        ProgramCopy::new(from_place, to_place, to.may_grant(), len).run(&from.host)
    }

    fn ioctl(&self, cmd: u32, arg: usize) -> Result<isize> {
        match cmd {
            ZRS_REGION_INFO => answer(arg, |info| self.info(info)),
            ZRS_REGION_KEY => {
                let mut made = None;
                let told = answer(arg, |key| {
                    self.derive(key)?;
                    made = Some(key_of(&key.key));
                    Ok(())
                });
                // Nobody knows a key that could not be told.
                if let Some(key2) = made.filter(|_| told.is_err()) {
                    let ask = MemHeader {
                        key2,
                        ..self.header(Op::Unkey)
                    };
                    self.host
                        .with(|st| st.in_the_background(&self.host, self.node, ask));
                }
                told
            }
            ZRS_REGION_UNKEY => self.revoke(arg),
            ZRS_REGION_SEAL => {
                ask_ok(&self.host, self.node, self.header(Op::Seal), KVec::new())?;
                Ok(0)
            }
            ZRS_REGION_FREE => {
                ask_ok(&self.host, self.owner(), self.header(Op::Free), KVec::new())?;
                Ok(0)
            }
            _ => Err(ENOTTY),
        }
    }
}

impl Drop for RegionFile {
    /// Frees the region if it goes with its file. The answer is not waited for; if the link is lost
    /// before, the node is asked again when there is another one.
    fn drop(&mut self) {
        if !self.owned {
            return;
        }
        let (to, ask) = (self.owner(), self.header(Op::Free));
        self.host
            .with(|st| st.in_the_background(&self.host, to, ask));
    }
}
