// SPDX-License-Identifier: GPL-2.0
//! Names and inodes: the root, a directory for each node, files in them. Inodes are never used again.

use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use zrs::mem::NodeId;

use crate::contents::Contents;

/// Inode of the root.
pub const ROOT: u64 = 1;

/// A file.
pub struct File {
    pub ino: u64,
    pub node: NodeId,
    pub contents: Mutex<Contents>,
    pub meta: Mutex<Meta>,
}

/// What the file system itself keeps of a file.
pub struct Meta {
    pub mode: u16,
    pub uid: u32,
    pub gid: u32,
    pub mtime: SystemTime,
    /// Names: 1, or 0 after unlink().
    pub links: u32,
    /// Opens that may write.
    pub writers: u32,
    /// The kernel's references to the inode.
    pub lookups: u64,
}

/// An inode.
#[derive(Clone)]
pub enum Inode {
    Root,
    Node(NodeId),
    File(Arc<File>),
}

/// All inodes.
pub struct Tree {
    next: u64,
    inodes: HashMap<u64, Inode>,
    dirs: BTreeMap<NodeId, Dir>,
}

struct Dir {
    ino: u64,
    files: BTreeMap<OsString, Arc<File>>,
}

impl Tree {
    pub fn new() -> Self {
        Self {
            next: ROOT + 1,
            inodes: HashMap::from([(ROOT, Inode::Root)]),
            dirs: BTreeMap::new(),
        }
    }

    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next - 1
    }

    pub fn inode(&self, ino: u64) -> Option<Inode> {
        self.inodes.get(&ino).cloned()
    }

    /// The inode of a node's directory.
    pub fn dir(&mut self, node: NodeId) -> u64 {
        if let Some(dir) = self.dirs.get(&node) {
            return dir.ino;
        }
        let ino = self.number();
        self.inodes.insert(ino, Inode::Node(node));
        let files = BTreeMap::new();
        self.dirs.insert(node, Dir { ino, files });
        ino
    }

    fn files(&mut self, node: NodeId) -> &mut BTreeMap<OsString, Arc<File>> {
        self.dir(node);
        let dir = self.dirs.get_mut(&node);
        &mut dir.expect("the directory was made").files
    }

    pub fn file(&mut self, node: NodeId, name: &OsStr) -> Option<Arc<File>> {
        self.files(node).get(name).cloned()
    }

    /// The files of a node, by name.
    pub fn list(&mut self, node: NodeId) -> Vec<(OsString, u64)> {
        let files = self.files(node).iter();
        files.map(|(name, f)| (name.clone(), f.ino)).collect()
    }

    /// A new, empty file; the caller knows that there is none of this name.
    pub fn create(&mut self, node: NodeId, name: &OsStr, meta: Meta) -> Arc<File> {
        let ino = self.number();
        let file = Arc::new(File {
            ino,
            node,
            contents: Mutex::default(),
            meta: Mutex::new(meta),
        });
        self.inodes.insert(ino, Inode::File(file.clone()));
        self.files(node).insert(name.to_owned(), file.clone());
        file
    }

    /// Takes a name away.
    pub fn remove(&mut self, node: NodeId, name: &OsStr) -> Option<Arc<File>> {
        self.files(node).remove(name)
    }

    /// Gives a name to a file; the file that had it.
    pub fn name(&mut self, node: NodeId, name: &OsStr, file: Arc<File>) -> Option<Arc<File>> {
        self.files(node).insert(name.to_owned(), file)
    }

    /// The inode has no name and no reference any more.
    pub fn forget(&mut self, ino: u64) {
        self.inodes.remove(&ino);
    }
}
