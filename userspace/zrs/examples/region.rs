// SPDX-License-Identifier: GPL-2.0
//! Has one memory node write a file's bytes to another one.
//!
//! `region FROM TO FILE` (nodes as 1:1 and 1:2): the file is put to the first node, which writes it to
//! the second one; it is read back from there, and compared.

use std::error::Error;
use std::os::unix::fs::FileExt;

use zrs::mem::{self, Alloc, Derive, NodeId, Region, Rights};
use zrs::Zrs;

fn main() -> Result<(), Box<dyn Error>> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let [from, to, file] = &args[..] else {
        return Err("usage: region FROM TO FILE".into());
    };
    let node = |text: &str| -> Result<NodeId, Box<dyn Error>> {
        text.parse()
            .map_err(|_| format!("'{text}' is no node").into())
    };
    let data = std::fs::read(file)?;
    let len = data.len() as u64;
    let zrs = Zrs::open()?;
    let alloc = |node| {
        let request = Alloc {
            node,
            len,
            ..Default::default()
        };
        Region::alloc(&zrs, &request)
    };
    let source = alloc(node(from)?)?;
    source.write_all_at(&data, 0)?;
    let target = alloc(node(to)?)?;
    if mem::copy(&source, 0, &target, 0, len)? != len {
        return Err("the copy is short".into());
    }
    // As another program would, with a key that allows no more than this.
    let key = target.derive(&Derive {
        rights: Rights::READ,
        range: (0, len),
        uses: 0,
        ttl_ms: 0,
    })?;
    let mut back = vec![0; data.len()];
    Region::open(&zrs, key)?.read_exact_at(&mut back, 0)?;
    if back != data {
        return Err("the copy differs".into());
    }
    println!("{len} bytes went from node {from} to node {to}, and are the same");
    source.free()?;
    target.free()?;
    Ok(())
}
