// SPDX-License-Identifier: GPL-2.0
//! The rules of this process, read once.

use std::ffi::{CStr, CString, OsString};
use std::path::Path;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use zrs_rules::{Rules, LOG};

use crate::log;

/// The configuration, from the environment at the program's start.
pub struct Config {
    /// Which sockets become ZRS sockets.
    pub rules: Rules,
    /// Where decisions are written.
    pub log: Option<log::To>,
    /// The program, for the log.
    pub name: String,
}

/// Never freed: children and signal handlers may look at any time.
static CONFIG: AtomicPtr<Config> = AtomicPtr::new(null_mut());

/// The rules. The first call allocates.
pub fn get() -> &'static Config {
    let mut config = CONFIG.load(Ordering::Acquire);
    if config.is_null() {
        let new = Box::into_raw(Box::new(read()));
        config = match CONFIG.compare_exchange(null_mut(), new, Ordering::AcqRel, Ordering::Acquire)
        {
            Ok(_) => new,
            Err(first) => {
                // SAFETY: it came from a box just now, and was not shared.
                drop(unsafe { Box::from_raw(new) });
                first
            }
        };
    }
    // SAFETY: it came from a box, and is neither changed nor freed any more.
    unsafe { &*config }
}

fn read() -> Config {
    // Some programs define their own getenv(), so it is not called.
    let vars: Vec<(OsString, OsString)> = std::env::vars_os()
        .filter(|(name, _)| name.as_encoded_bytes().starts_with(b"ZRS_RUN_"))
        .collect();
    let var = |name: &str| {
        let (_, value) = vars.iter().find(|(n, _)| n == name)?;
        value.clone().into_string().ok()
    };
    let names = names();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let name = names.first().unwrap_or(&"?").to_string();
    let log = var(LOG).and_then(|to| match to.as_str() {
        "stderr" => Some(log::To::Stderr),
        path => CString::new(path).ok().map(log::To::File),
    });
    let mut bad = Vec::new();
    let rules = Rules::new(var, &names, |name| bad.push(name.to_string()));
    for variable in bad {
        log::write(
            &log,
            &name,
            format_args!("{variable} is not as it should be: ignored"),
        );
    }
    Config { rules, log, name }
}

/// The names of this program for rules: the name it was started by, and that of its file.
fn names() -> Vec<String> {
    // SAFETY: the kernel has put a path there, which ends with a zero; the program has not run yet,
    // or leaves it alone.
    let started = unsafe { libc::getauxval(libc::AT_EXECFN) as *const libc::c_char };
    let mut names = Vec::new();
    if !started.is_null() {
        // SAFETY: as above.
        let path = unsafe { CStr::from_ptr(started) }.to_string_lossy();
        names.extend(last(Path::new(&*path)));
    }
    names.extend(std::env::current_exe().ok().as_deref().and_then(last));
    names
}

fn last(path: &Path) -> Option<String> {
    Some(path.file_name()?.to_string_lossy().into_owned())
}
