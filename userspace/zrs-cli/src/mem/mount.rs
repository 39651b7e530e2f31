// SPDX-License-Identifier: GPL-2.0
//! `zrs mem mount`: memory nodes as directories.

use std::io;
use std::path::PathBuf;
use std::sync::mpsc;

use zrs::Zrs;
use zrs_memfs::{Mount, Options};
use zrs_sys::signals::Ending;

use super::admission;
use crate::report::out;
use crate::{said, Result};

/// Mount memory nodes as directories and regions as files, until unmounted or interrupted
///
/// Files are regions: cp from one node's directory to another's has the nodes move the bytes. The
/// extended attribute user.zrs.storage is a file's storage id.
#[derive(clap::Args)]
pub struct Args {
    dir: PathBuf,
    /// The nodes' admission key, in a file
    #[arg(long, value_name = "FILE")]
    admission: Option<PathBuf>,
    /// Leave the regions when it is unmounted, until they are freed by their storage ids
    #[arg(long)]
    keep: bool,
    /// Let other users use the files, too, as their modes say
    #[arg(long)]
    allow_other: bool,
    /// Have the kernel read files that are open for reading alone, without this process (by
    /// CAP_SYS_ADMIN); they cannot be mapped then, and an open file does not see what is behind the
    /// end that it had
    #[arg(long)]
    passthrough: bool,
}

pub fn run(zrs: Zrs, args: &Args) -> Result<()> {
    let key = args.admission.as_deref().map(admission).transpose()?;
    let shown = args.dir.display();
    let ending = said(Ending::block(), || "cannot wait for signals".into())?;
    let options = Options {
        admission: key.unwrap_or_default(),
        keep: args.keep,
        allow_other: args.allow_other,
        passthrough: args.passthrough,
    };
    let mount = Mount::new(zrs, &args.dir, options).map_err(|e| {
        let what = zrs::reason(&e);
        format!("cannot mount at {shown}: {what}{}", remedy(&e))
    })?;
    out(&format!("mounted at {shown}\n"));
    let (end, ended) = mpsc::channel();
    std::thread::spawn(move || {
        ending.wait();
        // The other side is gone if it was unmounted.
        let _ = end.send(());
    });
    said(mount.run(&ended), || format!("cannot unmount {shown}"))
}

fn remedy(e: &io::Error) -> &'static str {
    match e.kind() {
        io::ErrorKind::NotFound => {
            "; the directory has to be there, and the kernel needs FUSE: modprobe fuse"
        }
        io::ErrorKind::PermissionDenied => "; run it as root, or install fusermount3",
        io::ErrorKind::NotADirectory => "; mount at a directory",
        _ => "",
    }
}
