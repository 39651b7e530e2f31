// SPDX-License-Identifier: GPL-2.0
//! The kernel's knobs for faults: a thread's fail-nth, and the module's points in debugfs.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const DEBUGFS: &str = "/sys/kernel/debug";

fn set(path: impl AsRef<Path>, value: &str) -> io::Result<()> {
    let path = path.as_ref();
    fs::write(path, value).map_err(|e| io::Error::other(format!("{}: {e}", path.display())))
}

fn number(path: impl AsRef<Path>) -> io::Result<i64> {
    let path = path.as_ref();
    let text = fs::read_to_string(path)
        .map_err(|e| io::Error::other(format!("{}: {e}", path.display())))?;
    text.trim().parse().map_err(io::Error::other)
}

/// Lets every allocation fail by fail-nth, and keeps the kernel from printing a trace each time.
pub fn prepare() -> io::Result<()> {
    for (file, value) in [
        ("failslab/ignore-gfp-wait", "N"),
        ("failslab/cache-filter", "N"),
        ("failslab/verbose", "0"),
        ("fail_page_alloc/ignore-gfp-wait", "N"),
        ("fail_page_alloc/ignore-gfp-highmem", "N"),
        ("fail_page_alloc/min-order", "0"),
        ("fail_page_alloc/verbose", "0"),
        ("fail_usercopy/verbose", "0"),
    ] {
        set(Path::new(DEBUGFS).join(file), value)?;
    }
    for point in points()? {
        set(point.dir.join("verbose"), "0")?;
    }
    // vmalloc prints a trace that cannot be turned off: it is left out. The module's own use of it
    // is a point, and the drivers' is in making queues.
    let (start, end) = range_of("__vmalloc_node_range_noprof")?;
    for attr in ["failslab", "fail_page_alloc"] {
        let dir = Path::new(DEBUGFS).join(attr);
        set(dir.join("reject-start"), &format!("{start:#x}"))?;
        set(dir.join("reject-end"), &format!("{end:#x}"))?;
    }
    Ok(())
}

/// Where a function of the kernel is.
fn range_of(function: &str) -> io::Result<(u64, u64)> {
    let text = fs::read_to_string("/proc/kallsyms")?;
    let symbols = || {
        text.lines().filter_map(|line| {
            let mut words = line.split(' ');
            let address = u64::from_str_radix(words.next()?, 16).ok()?;
            Some((address, words.nth(1)?))
        })
    };
    let start = symbols().find(|(_, name)| name.split('\t').next() == Some(function));
    let start = start.map(|(address, _)| address);
    let end = symbols().map(|(address, _)| address);
    let end = end.filter(|&address| Some(address) > start).min();
    match (start, end) {
        (Some(start), Some(end)) => Ok((start, end)),
        _ => Err(io::Error::other(format!("no {function} in /proc/kallsyms"))),
    }
}

/// The calling thread's fail-nth.
pub struct FailNth(File);

impl FailNth {
    pub fn open() -> io::Result<Self> {
        let path = "/proc/thread-self/fail-nth";
        File::options().read(true).write(true).open(path).map(Self)
    }

    /// Makes `call` with its `nth` allocation, copy or point failing. Its result, and whether the
    /// fault struck.
    pub fn run<T>(&self, nth: u32, call: impl FnOnce() -> T) -> io::Result<(T, bool)> {
        let text = nth.to_string();
        let mut left = [0; 16];
        self.0.write_all_at(text.as_bytes(), 0)?;
        let result = call();
        // Reading and writing here count as well. A copy that fails now has not failed before.
        let struck = match self.0.read_at(&mut left, 0) {
            Ok(n) => left[..n].trim_ascii() == b"0",
            Err(_) => false,
        };
        let _ = self.0.write_at(b"0", 0);
        Ok((result, struck))
    }
}

/// A knob that fails the next use in any context: a point of the module, or the asynchronous
/// contexts.
pub struct Knob {
    pub name: String,
    dir: PathBuf,
}

/// All points of the module.
pub fn points() -> io::Result<Vec<Knob>> {
    let mut points = Vec::new();
    for entry in fs::read_dir(Path::new(DEBUGFS).join("zrs"))? {
        let entry = entry?;
        if entry.path().join("space").exists() {
            points.push(Knob {
                name: entry.file_name().to_string_lossy().into_owned(),
                dir: entry.path(),
            });
        }
    }
    points.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(points)
}

/// How many faults have struck at posting since the module was loaded.
pub fn posts() -> io::Result<i64> {
    let points = points()?;
    let posts = points.iter().filter(|p| p.name.starts_with("fail_post"));
    posts.map(Knob::failed).sum()
}

/// The module's work items and handlers, which have a fail-nth together.
pub fn asynchronous() -> Knob {
    Knob {
        name: "fail_async".into(),
        dir: Path::new(DEBUGFS).join("zrs/fail_async"),
    }
}

impl Knob {
    fn is_async(&self) -> bool {
        self.name == "fail_async"
    }

    /// How often it has failed since the module was loaded.
    pub fn failed(&self) -> io::Result<i64> {
        number(self.dir.join("failed"))
    }

    /// The `nth` call from now on fails, and no other.
    pub fn arm(&self, nth: u32) -> io::Result<()> {
        if self.is_async() {
            return set(self.dir.join("nth"), &nth.to_string());
        }
        set(self.dir.join("space"), &nth.to_string())?;
        set(self.dir.join("times"), "1")?;
        set(self.dir.join("probability"), "100")
    }

    /// Nothing fails from now on; whether something has since it was armed.
    pub fn disarm(&self) -> io::Result<bool> {
        if self.is_async() {
            // -1 while one of them runs with it.
            let mut left = number(self.dir.join("nth"))?;
            for _ in 0..4000 {
                if left >= 0 {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(5));
                left = number(self.dir.join("nth"))?;
            }
            set(self.dir.join("nth"), "0")?;
            return Ok(left == 0);
        }
        set(self.dir.join("probability"), "0")?;
        Ok(number(self.dir.join("times"))? == 0)
    }
}

const CM_EVENT: &str = "/sys/kernel/debug/zrs/cm_event";

fn order(text: &str) -> Result<(), String> {
    fs::write(CM_EVENT, text).map_err(|e| format!("{text} to {CM_EVENT}: {e}"))
}

/// The links of `side` that are up, "connecting" or "accepting", are told of an event.
pub fn cm_event_now(side: &str, event: u32, status: i32) -> Result<(), String> {
    order(&format!("{side} now {event} {status}"))
}

/// The next `times` that the event `at` comes to a link of `side`, it is told of `event` instead;
/// "none": of nothing.
pub fn cm_events(side: &str, at: u32, event: &str, status: i32, times: u32) -> Result<(), String> {
    order(&format!("{side} {at} {event} {status} {times}"))
}

/// How many of those times are still to come.
pub fn cm_events_left() -> Result<u32, String> {
    let text = fs::read_to_string(CM_EVENT).map_err(|e| format!("{CM_EVENT}: {e}"))?;
    text.trim().parse().map_err(|e| format!("{CM_EVENT}: {e}"))
}
