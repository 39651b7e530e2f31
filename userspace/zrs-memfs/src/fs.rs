// SPDX-License-Identifier: GPL-2.0
//! The requests of the kernel.

use std::ffi::OsStr;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use fuser::{
    BackingId, BsdFileFlags, CopyFileRangeFlags, Errno, FileAttr, FileHandle, FileType, Filesystem,
    FopenFlags, Generation, INodeNo, InitFlags, KernelConfig, LockOwner, OpenAccMode, OpenFlags,
    RenameFlags, ReplyAttr, ReplyCreate, ReplyData, ReplyDirectory, ReplyEmpty, ReplyEntry,
    ReplyOpen, ReplyWrite, ReplyXattr, Request, TimeOrNow, WriteFlags,
};
use zrs::mem::{NodeId, Region, RemoteStorage};
use zrs::Zrs;

use crate::contents::{Allocator, Contents, Opened};
use crate::tree::{File, Inode, Meta, Tree, ROOT};
use crate::Options;

/// How long the kernel believes an attribute: sizes change by this file system only.
const TTL: Duration = Duration::from_secs(1);

/// The extended attribute with a file's storage id. Set on an empty file, it makes the region the file.
const STORAGE: &str = "user.zrs.storage";

/// Bits of the handles of opens: it may write; the kernel was told a region.
const WRITER: u64 = 1;
const TOLD: u64 = 2;

/// A lock whose holder never panics half way.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The file system.
pub struct MemFs {
    zrs: Zrs,
    options: Options,
    tree: Mutex<Tree>,
}

type Answer<T> = Result<T, Errno>;

fn errno(e: io::Error) -> Errno {
    zrs::os_error(&e).map_or_else(|| e.into(), Errno::from_i32)
}

impl MemFs {
    pub fn new(zrs: Zrs, options: Options) -> Self {
        Self {
            zrs,
            options,
            tree: Mutex::new(Tree::new()),
        }
    }

    fn tree(&self) -> MutexGuard<'_, Tree> {
        locked(&self.tree)
    }

    fn at(&self, node: NodeId) -> Allocator<'_> {
        Allocator {
            zrs: &self.zrs,
            node,
            options: self.options,
        }
    }

    fn nodes(&self) -> Answer<Vec<NodeId>> {
        let nodes = self.zrs.mem_nodes().map(|entry| Ok(entry?.node));
        nodes.collect::<io::Result<_>>().map_err(errno)
    }

    /// The directory's name: the number alone while all nodes are of one domain.
    fn dir_name(nodes: &[NodeId], node: NodeId) -> String {
        match nodes.iter().all(|n| n.domain == node.domain) {
            true => node.node.to_string(),
            false => node.to_string(),
        }
    }

    fn node_of(&self, ino: INodeNo) -> Answer<NodeId> {
        match self.tree().inode(ino.0) {
            Some(Inode::Node(node)) => Ok(node),
            Some(Inode::Root) => Err(Errno::EPERM),
            Some(Inode::File(_)) => Err(Errno::ENOTDIR),
            None => Err(Errno::ENOENT),
        }
    }

    fn file_of(&self, ino: INodeNo) -> Answer<Arc<File>> {
        match self.tree().inode(ino.0) {
            Some(Inode::File(file)) => Ok(file),
            Some(_) => Err(Errno::EISDIR),
            None => Err(Errno::ENOENT),
        }
    }

    fn attr_of_dir(ino: u64) -> FileAttr {
        FileAttr {
            ino: INodeNo(ino),
            size: 0,
            blocks: 0,
            atime: UNIX_EPOCH,
            mtime: UNIX_EPOCH,
            ctime: UNIX_EPOCH,
            crtime: UNIX_EPOCH,
            kind: FileType::Directory,
            // Anybody may make files in the directories of nodes; the nodes decide on the memory.
            perm: if ino == ROOT { 0o755 } else { 0o1777 },
            nlink: 2,
            uid: 0,
            gid: 0,
            rdev: 0,
            flags: 0,
            blksize: 4096,
        }
    }

    fn attr_of(file: &File) -> FileAttr {
        let size = locked(&file.contents).size();
        let meta = locked(&file.meta);
        FileAttr {
            ino: INodeNo(file.ino),
            size,
            blocks: size.div_ceil(512),
            atime: meta.mtime,
            mtime: meta.mtime,
            ctime: meta.mtime,
            crtime: meta.mtime,
            kind: FileType::RegularFile,
            perm: meta.mode,
            nlink: meta.links,
            uid: meta.uid,
            gid: meta.gid,
            rdev: 0,
            flags: 0,
            blksize: 1 << 20,
        }
    }

    fn changed(file: &File) {
        locked(&file.meta).mtime = SystemTime::now();
    }

    fn find(&self, parent: INodeNo, name: &OsStr) -> Answer<FileAttr> {
        if parent.0 == ROOT {
            let nodes = self.nodes()?;
            let text = name.to_str().ok_or(Errno::ENOENT)?;
            let named = |n: &&NodeId| n.to_string() == text || Self::dir_name(&nodes, **n) == text;
            let node = *nodes.iter().find(named).ok_or(Errno::ENOENT)?;
            return Ok(Self::attr_of_dir(self.tree().dir(node)));
        }
        let node = self.node_of(parent)?;
        let file = self.tree().file(node, name).ok_or(Errno::ENOENT)?;
        locked(&file.meta).lookups += 1;
        Ok(Self::attr_of(&file))
    }

    fn attr(&self, ino: INodeNo) -> Answer<FileAttr> {
        let inode = self.tree().inode(ino.0);
        match inode.ok_or(Errno::ENOENT)? {
            Inode::File(file) => Ok(Self::attr_of(&file)),
            Inode::Root | Inode::Node(_) => Ok(Self::attr_of_dir(ino.0)),
        }
    }

    fn make(&self, req: &Request, parent: INodeNo, name: &OsStr, mode: u32) -> Answer<Arc<File>> {
        let node = self.node_of(parent)?;
        let mut tree = self.tree();
        if tree.file(node, name).is_some() {
            return Err(Errno::EEXIST);
        }
        let meta = Meta {
            mode: (mode & 0o7777) as u16,
            uid: req.uid(),
            gid: req.gid(),
            mtime: SystemTime::now(),
            links: 1,
            writers: 0,
            lookups: 1,
        };
        Ok(tree.create(node, name, meta))
    }

    /// A file has lost its name: without references its region is freed.
    fn unnamed(&self, file: &File) -> Answer<()> {
        let unused = {
            let mut meta = locked(&file.meta);
            meta.links = 0;
            meta.lookups == 0
        };
        if unused {
            self.gone(file)?;
        }
        Ok(())
    }

    fn gone(&self, file: &File) -> Answer<()> {
        self.tree().forget(file.ino);
        locked(&file.contents).free().map_err(errno)
    }

    fn resize(&self, file: &File, size: u64) -> Answer<()> {
        let mut contents = locked(&file.contents);
        let done = contents.truncate(&self.at(file.node), size);
        done.map_err(errno)?;
        Self::changed(file);
        Ok(())
    }

    /// An open that may write has ended. The region gets the file's length with the last one.
    fn written(&self, file: &File) {
        let last = {
            let mut meta = locked(&file.meta);
            meta.writers -= 1;
            meta.writers == 0
        };
        if last {
            // If the node has no room for that the file keeps the longer region.
            let _ = locked(&file.contents).settle(&self.at(file.node));
        }
    }

    fn copy(
        &self,
        (from, from_off): (INodeNo, u64),
        (to, to_off): (INodeNo, u64),
        len: u64,
    ) -> Answer<u64> {
        let (from, to) = (self.file_of(from)?, self.file_of(to)?);
        let at = self.at(to.node);
        let copied = if from.ino == to.ino {
            locked(&to.contents).copy_within(&at, to_off, from_off, len)
        } else {
            let (source, mut target): (MutexGuard<'_, Contents>, MutexGuard<'_, Contents>);
            if from.ino < to.ino {
                source = locked(&from.contents);
                target = locked(&to.contents);
            } else {
                target = locked(&to.contents);
                source = locked(&from.contents);
            }
            target.copy_from(&at, to_off, &source, from_off, len)
        };
        Self::changed(&to);
        copied.map_err(errno)
    }

    fn moved(
        &self,
        (parent, name): (INodeNo, &OsStr),
        (to, to_name): (INodeNo, &OsStr),
    ) -> Answer<()> {
        let (node, to) = (self.node_of(parent)?, self.node_of(to)?);
        if node != to {
            // mv copies then, and the nodes move the bytes.
            return Err(Errno::EXDEV);
        }
        let replaced = {
            let mut tree = self.tree();
            let file = tree.remove(node, name).ok_or(Errno::ENOENT)?;
            let ino = file.ino;
            tree.name(node, to_name, file).filter(|f| f.ino != ino)
        };
        replaced.map_or(Ok(()), |file| self.unnamed(&file))
    }

    fn entries(&self, ino: INodeNo) -> Answer<Vec<(String, u64, FileType)>> {
        let mut all = vec![
            (".".into(), ino.0, FileType::Directory),
            ("..".into(), ROOT, FileType::Directory),
        ];
        if ino.0 == ROOT {
            let nodes = self.nodes()?;
            let mut tree = self.tree();
            let dirs = nodes.iter().map(|n| {
                let name = Self::dir_name(&nodes, *n);
                (name, tree.dir(*n), FileType::Directory)
            });
            all.extend(dirs);
        } else {
            let node = self.node_of(ino)?;
            let files = self.tree().list(node).into_iter();
            all.extend(files.map(|(name, ino)| {
                let name = name.to_string_lossy().into_owned();
                (name, ino, FileType::RegularFile)
            }));
        }
        Ok(all)
    }

    /// Tells the kernel a region. Not without CAP_SYS_ADMIN, nor if the kernel cannot do it.
    fn pass(&self, reply: &ReplyOpen, region: &Region) -> Option<BackingId> {
        self.options
            .passthrough
            .then(|| reply.open_backing(region).ok())?
    }

    /// The region of a file. Its key has more rights than a mode can give: it is root's and the
    /// owner's.
    fn storage_of(&self, uid: u32, ino: INodeNo, name: &OsStr) -> Answer<RemoteStorage> {
        let file = self.file_of(ino).map_err(|_| Errno::NO_XATTR)?;
        if name != STORAGE {
            return Err(Errno::NO_XATTR);
        }
        if uid != 0 && uid != locked(&file.meta).uid {
            return Err(Errno::EPERM);
        }
        let storage = locked(&file.contents).storage();
        storage.ok_or(Errno::NO_XATTR)
    }

    fn adopt(&self, ino: INodeNo, name: &OsStr, value: &[u8]) -> Answer<()> {
        let file = self.file_of(ino)?;
        if name != STORAGE {
            return Err(Errno::EOPNOTSUPP);
        }
        let id = std::str::from_utf8(value).ok();
        let id: Option<RemoteStorage> = id.and_then(|text| text.trim().parse().ok());
        // A number alone is a node of the host's own domain.
        let own = |domain| domain == 0 || file.node.domain == 0 || domain == file.node.domain;
        let id = id
            .filter(|id| id.node.node == file.node.node && own(id.node.domain))
            .ok_or(Errno::EINVAL)?;
        let mut contents = locked(&file.contents);
        if contents.storage().is_some() {
            return Err(Errno::EEXIST);
        }
        contents.adopt(&self.zrs, id).map_err(errno)
    }
}

/// `$reply` with the error of `$result`, or its value.
macro_rules! or_error {
    ($reply:ident, $result:expr) => {
        match $result {
            Ok(value) => value,
            Err(e) => return $reply.error(e),
        }
    };
}

impl Filesystem for MemFs {
    fn init(&mut self, _: &Request, config: &mut KernelConfig) -> io::Result<()> {
        // Memory maps of files that this process reads and writes; old kernels refuse them.
        let _ = config.add_capabilities(InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP);
        if self.options.passthrough && config.add_capabilities(InitFlags::FUSE_PASSTHROUGH).is_ok()
        {
            // Regions are files of a file system that is stacked on nothing.
            let _ = config.set_max_stack_depth(1);
        }
        Ok(())
    }

    fn lookup(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEntry) {
        let attr = or_error!(reply, self.find(parent, name));
        reply.entry(&TTL, &attr, Generation(0));
    }

    fn forget(&self, _: &Request, ino: INodeNo, count: u64) {
        let Ok(file) = self.file_of(ino) else {
            return;
        };
        let unused = {
            let mut meta = locked(&file.meta);
            meta.lookups = meta.lookups.saturating_sub(count);
            meta.lookups == 0 && meta.links == 0
        };
        if unused {
            // The node frees the region with the descriptor if it does not now.
            let _ = self.gone(&file);
        }
    }

    fn getattr(&self, _: &Request, ino: INodeNo, _: Option<FileHandle>, reply: ReplyAttr) {
        let attr = or_error!(reply, self.attr(ino));
        reply.attr(&TTL, &attr);
    }

    fn setattr(
        &self,
        _: &Request,
        ino: INodeNo,
        mode: Option<u32>,
        uid: Option<u32>,
        gid: Option<u32>,
        size: Option<u64>,
        _atime: Option<TimeOrNow>,
        mtime: Option<TimeOrNow>,
        _ctime: Option<SystemTime>,
        _fh: Option<FileHandle>,
        _crtime: Option<SystemTime>,
        _chgtime: Option<SystemTime>,
        _bkuptime: Option<SystemTime>,
        _flags: Option<BsdFileFlags>,
        reply: ReplyAttr,
    ) {
        let file = or_error!(reply, self.file_of(ino));
        if let Some(size) = size {
            or_error!(reply, self.resize(&file, size));
        }
        {
            let mut meta = locked(&file.meta);
            meta.mode = mode.map_or(meta.mode, |m| (m & 0o7777) as u16);
            meta.uid = uid.unwrap_or(meta.uid);
            meta.gid = gid.unwrap_or(meta.gid);
            meta.mtime = match mtime {
                Some(TimeOrNow::SpecificTime(time)) => time,
                Some(TimeOrNow::Now) => SystemTime::now(),
                None => meta.mtime,
            };
        }
        reply.attr(&TTL, &Self::attr_of(&file));
    }

    fn mknod(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _rdev: u32,
        reply: ReplyEntry,
    ) {
        const FORMAT: u32 = 0o170_000;
        const REGULAR: u32 = 0o100_000;
        if mode & FORMAT != REGULAR {
            return reply.error(Errno::EPERM);
        }
        let file = or_error!(reply, self.make(req, parent, name, mode & !umask));
        reply.entry(&TTL, &Self::attr_of(&file), Generation(0));
    }

    fn mkdir(&self, _: &Request, _: INodeNo, _: &OsStr, _: u32, _: u32, reply: ReplyEntry) {
        reply.error(Errno::EPERM);
    }

    fn rmdir(&self, _: &Request, _: INodeNo, _: &OsStr, reply: ReplyEmpty) {
        reply.error(Errno::EPERM);
    }

    fn unlink(&self, _: &Request, parent: INodeNo, name: &OsStr, reply: ReplyEmpty) {
        let node = or_error!(reply, self.node_of(parent));
        let file = self.tree().remove(node, name);
        let file = or_error!(reply, file.ok_or(Errno::ENOENT));
        or_error!(reply, self.unnamed(&file));
        reply.ok();
    }

    fn rename(
        &self,
        _: &Request,
        parent: INodeNo,
        name: &OsStr,
        to: INodeNo,
        to_name: &OsStr,
        flags: RenameFlags,
        reply: ReplyEmpty,
    ) {
        if !flags.is_empty() {
            return reply.error(Errno::EINVAL);
        }
        or_error!(reply, self.moved((parent, name), (to, to_name)));
        reply.ok();
    }

    fn create(
        &self,
        req: &Request,
        parent: INodeNo,
        name: &OsStr,
        mode: u32,
        umask: u32,
        _flags: i32,
        reply: ReplyCreate,
    ) {
        let file = or_error!(reply, self.make(req, parent, name, mode & !umask));
        locked(&file.meta).writers += 1;
        let attr = Self::attr_of(&file);
        // An empty file has no region to tell.
        let opened = locked(&file.contents).open(true, false, |_| None).map(drop);
        or_error!(reply, opened);
        let (flags, fh) = (FopenFlags::FOPEN_DIRECT_IO, FileHandle(WRITER));
        reply.created(&TTL, &attr, Generation(0), fh, flags);
    }

    fn open(&self, _: &Request, ino: INodeNo, flags: OpenFlags, reply: ReplyOpen) {
        let file = or_error!(reply, self.file_of(ino));
        let write = flags.acc_mode() != OpenAccMode::O_RDONLY;
        let pass = |region: &Region| self.pass(&reply, region);
        let mut contents = locked(&file.contents);
        let settled = locked(&file.meta).writers == 0;
        let opened = or_error!(reply, contents.open(write, settled, pass));
        let writer = if write { WRITER } else { 0 };
        locked(&file.meta).writers += u32::from(write);
        let told = FileHandle(writer | TOLD);
        let direct = FopenFlags::FOPEN_DIRECT_IO;
        match opened {
            Opened::Served => reply.opened(FileHandle(writer), direct),
            Opened::Passed(id) => reply.opened_passthrough(told, FopenFlags::empty(), id),
            Opened::Beside(id) => reply.opened_passthrough(told, direct, id),
        }
    }

    fn read(
        &self,
        _: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        off: u64,
        size: u32,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyData,
    ) {
        let file = or_error!(reply, self.file_of(ino));
        let bytes = locked(&file.contents).read(off, size as usize);
        let bytes = or_error!(reply, bytes.map_err(errno));
        reply.data(&bytes);
    }

    fn write(
        &self,
        _: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        off: u64,
        data: &[u8],
        _write_flags: WriteFlags,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        reply: ReplyWrite,
    ) {
        let file = or_error!(reply, self.file_of(ino));
        let written = locked(&file.contents).write(&self.at(file.node), off, data);
        or_error!(reply, written.map_err(errno));
        Self::changed(&file);
        reply.written(data.len() as u32);
    }

    fn copy_file_range(
        &self,
        _: &Request,
        from: INodeNo,
        _from_fh: FileHandle,
        from_off: u64,
        to: INodeNo,
        _to_fh: FileHandle,
        to_off: u64,
        len: u64,
        _flags: CopyFileRangeFlags,
        reply: ReplyWrite,
    ) {
        let copied = or_error!(reply, self.copy((from, from_off), (to, to_off), len));
        // At most 1 GiB.
        reply.written(copied as u32);
    }

    fn flush(&self, _: &Request, _: INodeNo, _: FileHandle, _: LockOwner, reply: ReplyEmpty) {
        // Writes have arrived when they are answered.
        reply.ok();
    }

    fn fsync(&self, _: &Request, _: INodeNo, _: FileHandle, _: bool, reply: ReplyEmpty) {
        reply.ok();
    }

    fn release(
        &self,
        _: &Request,
        ino: INodeNo,
        fh: FileHandle,
        _flags: OpenFlags,
        _owner: Option<LockOwner>,
        _flush: bool,
        reply: ReplyEmpty,
    ) {
        let file = or_error!(reply, self.file_of(ino));
        locked(&file.contents).close(fh.0 & TOLD != 0);
        if fh.0 & WRITER != 0 {
            self.written(&file);
        }
        reply.ok();
    }

    fn readdir(
        &self,
        _: &Request,
        ino: INodeNo,
        _fh: FileHandle,
        offset: u64,
        mut reply: ReplyDirectory,
    ) {
        let entries = or_error!(reply, self.entries(ino));
        for (n, (name, ino, kind)) in (1..).zip(entries).skip(offset as usize) {
            if reply.add(INodeNo(ino), n, kind, name) {
                break;
            }
        }
        reply.ok();
    }

    fn setxattr(
        &self,
        _: &Request,
        ino: INodeNo,
        name: &OsStr,
        value: &[u8],
        _flags: i32,
        _position: u32,
        reply: ReplyEmpty,
    ) {
        or_error!(reply, self.adopt(ino, name, value));
        reply.ok();
    }

    fn getxattr(&self, req: &Request, ino: INodeNo, name: &OsStr, size: u32, reply: ReplyXattr) {
        let storage = or_error!(reply, self.storage_of(req.uid(), ino, name));
        let text = storage.to_string();
        match size {
            0 => reply.size(text.len() as u32),
            n if (n as usize) < text.len() => reply.error(Errno::ERANGE),
            _ => reply.data(text.as_bytes()),
        }
    }
}
