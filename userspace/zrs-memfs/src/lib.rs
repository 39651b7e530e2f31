// SPDX-License-Identifier: GPL-2.0
//! Memory nodes as a file system, by FUSE: a directory for each node of the host's directory, and a
//! file for each region. `cp` from one node's directory to another's arrives here as
//! `copy_file_range()`, and goes on to the regions' descriptors as such: the nodes move the bytes.
//!
//! Locks: the tree's, then a file's contents; of two files the one with the lower inode first.
#![deny(unsafe_code)]

mod contents;
mod fs;
mod tree;

use std::io;
use std::path::Path;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use fuser::{BackgroundSession, Config, MountOption, Session, SessionACL};
use zrs::mem::Admission;
use zrs::Zrs;

/// How to mount.
#[derive(Clone, Copy, Debug, Default)]
pub struct Options {
    /// The admission key of allocations.
    pub admission: Admission,
    /// Regions stay when the file system is unmounted.
    pub keep: bool,
    /// All users may use the files, within their modes.
    pub allow_other: bool,
    /// The kernel reads regions without this process where it can.
    pub passthrough: bool,
}

/// Requests that are worked on at the same time.
const THREADS: usize = 4;

/// A mounted file system.
pub struct Mount(BackgroundSession);

/// How often it is looked whether the file system was unmounted.
const LOOK: Duration = Duration::from_millis(200);

impl Mount {
    /// Mounts at `dir`, and serves the files by threads of its own. Without CAP_SYS_ADMIN this takes
    /// fusermount3.
    pub fn new(zrs: Zrs, dir: &Path, options: Options) -> io::Result<Self> {
        let mut config = Config::default();
        config.mount_options = vec![
            MountOption::FSName("zrs".into()),
            MountOption::Subtype("zrs-mem".into()),
            MountOption::DefaultPermissions,
            MountOption::NoDev,
            MountOption::NoSuid,
        ];
        if options.allow_other {
            config.acl = SessionACL::All;
        }
        config.n_threads = Some(THREADS);
        config.clone_fd = true;
        let session = Session::new(fs::MemFs::new(zrs, options), dir, &config)?;
        session.spawn().map(Self)
    }

    /// Serves until something comes by `end`, and unmounts then; or until umount(8) has done so.
    pub fn run(self, end: &Receiver<()>) -> io::Result<()> {
        while !self.0.guard.is_finished() {
            if end.recv_timeout(LOOK).is_ok() {
                return self.0.umount_and_join();
            }
        }
        self.0.join()
    }
}
