// SPDX-License-Identifier: GPL-2.0
//! Control groups: the own one, others by their path, and their numbers.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use crate::{said, Result};

/// Where the one hierarchy of version 2 may be mounted.
const ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];
/// The prefix of control groups that `zrs run` makes.
const OURS: &str = "zrs-run-";

/// A control group.
pub struct Cgroup {
    /// Its folder.
    pub path: PathBuf,
    /// The kernel's number.
    pub id: u64,
}

/// The root's folder.
fn root() -> Result<&'static Path> {
    let found = ROOTS
        .map(Path::new)
        .into_iter()
        .find(|root| root.join("cgroup.controllers").exists());
    found.ok_or_else(|| {
        "there are no control groups of version 2: mount -t cgroup2 cgroup2 /sys/fs/cgroup".into()
    })
}

fn at(path: PathBuf) -> Result<Cgroup> {
    let meta = said(fs::metadata(path.join("cgroup.procs")), || {
        format!("{} is not a control group", path.display())
    });
    meta?;
    let meta = said(fs::metadata(&path), || path.display().to_string())?;
    // The number of the folder's inode.
    Ok(Cgroup {
        id: meta.ino(),
        path,
    })
}

impl Cgroup {
    /// That of this process; of a unit's `ExecStartPre=` that of the unit.
    pub fn own() -> Result<Self> {
        let text = said(fs::read_to_string("/proc/self/cgroup"), || {
            "/proc/self/cgroup".into()
        })?;
        let path = text.lines().find_map(|line| line.strip_prefix("0::/"));
        let path = path.ok_or("this process is in no control group of version 2")?;
        let path = path.strip_suffix("/.control").unwrap_or(path);
        at(root()?.join(path))
    }

    /// By the path of its folder, or its name in the hierarchy, as `systemctl show -P ControlGroup` says it.
    pub fn named(name: &Path) -> Result<Self> {
        let root = root()?;
        if name.starts_with(root) {
            return at(name.to_owned());
        }
        at(root.join(name.strip_prefix("/").unwrap_or(name)))
    }

    /// Makes a control group below, and moves this process there.
    pub fn enter_new(&self) -> Result<Self> {
        let pid = std::process::id();
        let path = self.path.join(format!("{OURS}{pid}"));
        let made = said(fs::create_dir(&path), || {
            format!(
                "cannot make a control group below {} (as a user: systemd-run --user --scope zrs run --cgroup ...)",
                self.path.display()
            )
        });
        made?;
        let new = at(path)?;
        let moved = said(
            fs::write(new.path.join("cgroup.procs"), pid.to_string()),
            || format!("cannot move to the control group {}", new.path.display()),
        );
        if moved.is_err() {
            new.remove();
        }
        moved.map(|()| new)
    }

    /// Removes an empty one.
    pub fn remove(&self) {
        let _ = fs::remove_dir(&self.path);
    }

    /// Whether it is one that `zrs run` made, and no process is in it any more.
    pub fn is_left_over(&self) -> bool {
        let ours = self
            .path
            .file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with(OURS));
        let events = fs::read_to_string(self.path.join("cgroup.events")).unwrap_or_default();
        ours && events.lines().any(|line| line == "populated 0")
    }
}

/// All of the machine by their numbers; `None` if this process sees a part of the hierarchy only.
pub fn all() -> Result<Option<BTreeMap<u64, Cgroup>>> {
    let root = root()?;
    if root.join("cgroup.events").exists() {
        return Ok(None);
    }
    let mut found = BTreeMap::new();
    let mut folders = vec![root.to_owned()];
    while let Some(path) = folders.pop() {
        for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
            if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                folders.push(entry.path());
            }
        }
        if let Ok(meta) = fs::metadata(&path) {
            let id = meta.ino();
            found.insert(id, Cgroup { path, id });
        }
    }
    Ok(Some(found))
}
