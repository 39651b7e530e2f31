// SPDX-License-Identifier: GPL-2.0
//! The pinned map and the pinned link.

use std::ffi::CString;
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt, PermissionsExt};
use std::path::{Path, PathBuf};

use crate::program::{program, Kernel, Tables, FUNCTION};
use crate::{btf, sys};

/// Where.
pub const DIR: &str = "/sys/fs/bpf/zrs";
/// How many control groups the map has room for.
pub const MOST: u32 = 65536;
const BPF_FS: &str = "/sys/fs/bpf";
const BTF: &str = "/sys/kernel/btf/vmlinux";
/// `BPF_FS_MAGIC`
const MAGIC: i64 = 0xcafe_4a11;
/// The value of each entry.
const ON: u32 = 1;

/// What [`Pinned::load`] has found.
#[derive(Debug, PartialEq, Eq)]
pub enum Loaded {
    /// It is pinned now.
    Now,
    /// It was pinned already.
    Before,
}

/// The map, opened by its pin.
#[derive(Debug)]
pub struct Pinned(OwnedFd);

fn path(name: &str) -> PathBuf {
    Path::new(DIR).join(name)
}

fn c_path(name: &str) -> CString {
    CString::new(format!("{DIR}/{name}")).expect("a name of ours")
}

/// An error, with the operation that failed.
fn said<T>(result: io::Result<T>, what: &str) -> Result<T, String> {
    result.map_err(|e| format!("{what}: {e}"))
}

/// Whether the file system for pins is mounted.
fn mounted() -> bool {
    // SAFETY: zeroed numbers are a value of it.
    let mut info: libc::statfs = unsafe { std::mem::zeroed() };
    let path = CString::new(BPF_FS).expect("a path of ours");
    // SAFETY: the path ends with a zero, and there is room for the result.
    unsafe { libc::statfs(path.as_ptr(), &raw mut info) == 0 && info.f_type == MAGIC }
}

impl Pinned {
    /// Opens the map. `None`: nothing is pinned.
    pub fn open() -> Result<Option<Self>, String> {
        match sys::get(&c_path("cgroups")) {
            Ok(fd) => Ok(Some(Self(fd))),
            Err(e) if matches!(e.kind(), ErrorKind::NotFound) => Ok(None),
            Err(e) if e.kind() == ErrorKind::PermissionDenied => Err(format!(
                "{DIR} is for root and the group that `zrs bpf load --group` names"
            )),
            Err(e) => Err(format!("{DIR}/cgroups: {e}")),
        }
    }

    /// Loads the program and pins it. The group `gid` may change which control groups it is for.
    pub fn load(gid: Option<u32>) -> Result<Loaded, String> {
        if !mounted() {
            return Err(format!(
                "the file system for BPF is not mounted: mount -t bpf bpf {BPF_FS}"
            ));
        }
        if path("link").exists() {
            return Ok(Loaded::Before);
        }
        let types = fs::read(BTF)
            .map_err(|e| format!("{BTF}: {e} (the kernel needs CONFIG_DEBUG_INFO_BTF)"))?;
        let missing = |e, what: &str| match e {
            btf::Error::NotThere => format!("the kernel has no {what}"),
            btf::Error::Malformed => format!("{BTF} is not type information of the kernel"),
            btf::Error::UnknownKind(kind) => format!("{BTF} has types of a kind {kind}"),
        };
        let function =
            btf::function(&types, FUNCTION).map_err(|e| missing(e, &format!("{FUNCTION}()")))?;
        let task_flags = btf::member(&types, "task_struct", "atomic_flags")
            .map_err(|e| missing(e, "atomic_flags in its task_struct"))?;
        let symbols = said(fs::read_to_string("/proc/kallsyms"), "/proc/kallsyms")?;
        let tables = Tables::from_kallsyms(&symbols).ok_or(
            "/proc/kallsyms does not tell where the kernel's protocols are: root has to ask, \
             and sysctl kernel.kptr_restrict to be 0 or 1",
        )?;
        let map = said(sys::map_create(MOST), "the map")?;
        let kernel = Kernel { tables, task_flags };
        let code = program(std::os::fd::AsRawFd::as_raw_fd(&map), kernel);
        let loaded = said(sys::load(&code, function), "the program")?;
        let link = sys::attach(loaded.as_fd())
            .map_err(|e| format!("{FUNCTION}(): {e} (the kernel needs CONFIG_MPTCP)"))?;
        let pinned = Self::pin(&map, &link, gid);
        if pinned.is_err() {
            // Undo the pins that were made before the failure.
            let _ = Self::unload();
        }
        pinned.map(|()| Loaded::Now)
    }

    fn pin(map: &OwnedFd, link: &OwnedFd, gid: Option<u32>) -> Result<(), String> {
        let made = fs::DirBuilder::new().mode(0o755).create(DIR);
        match made {
            Err(e) if e.kind() != ErrorKind::AlreadyExists => return Err(format!("{DIR}: {e}")),
            _ => {}
        }
        let at = path("cgroups");
        said(sys::pin(map.as_fd(), &c_path("cgroups")), "pinning the map")?;
        let mode = if gid.is_some() { 0o660 } else { 0o600 };
        said(std::os::unix::fs::chown(&at, None, gid), "the map's group")?;
        let mode = fs::Permissions::from_mode(mode);
        said(fs::set_permissions(&at, mode), "the map's mode")?;
        said(sys::pin(link.as_fd(), &c_path("link")), "pinning the link")
    }

    /// Takes the program out. False: nothing was pinned.
    pub fn unload() -> Result<bool, String> {
        let mut was = false;
        for name in ["link", "cgroups"] {
            match fs::remove_file(path(name)) {
                Ok(()) => was = true,
                Err(e) if e.kind() == ErrorKind::NotFound => {}
                Err(e) => return Err(format!("{DIR}/{name}: {e}")),
            }
        }
        match fs::remove_dir(DIR) {
            Err(e) if e.kind() != ErrorKind::NotFound => Err(format!("{DIR}: {e}")),
            _ => Ok(was),
        }
    }

    /// The sockets of this control group and those below it become ZRS sockets.
    pub fn add(&self, cgroup: u64) -> Result<(), String> {
        sys::update(self.0.as_fd(), cgroup, ON).map_err(|e| match e.raw_os_error() {
            Some(libc::E2BIG) => format!("the map has {MOST} control groups: `zrs bpf remove`"),
            _ => format!("{DIR}/cgroups: {e}"),
        })
    }

    /// No more. False: they did not.
    pub fn remove(&self, cgroup: u64) -> Result<bool, String> {
        match sys::delete(self.0.as_fd(), cgroup) {
            Ok(()) => Ok(true),
            Err(e) if e.kind() == ErrorKind::NotFound => Ok(false),
            Err(e) => Err(format!("{DIR}/cgroups: {e}")),
        }
    }

    /// All control groups of the map.
    pub fn cgroups(&self) -> Result<Vec<u64>, String> {
        let mut all = Vec::new();
        while let Some(next) = said(sys::next_key(self.0.as_fd(), all.last().copied()), DIR)? {
            all.push(next);
            // The walk starts again if the last key was removed.
            if all.len() > MOST as usize {
                break;
            }
        }
        Ok(all)
    }
}
