// SPDX-License-Identifier: GPL-2.0
//! The cost of idle connections: the memory in use by the whole machine, programs, slab and pages
//! together, before and after a number of them has been made; and the rate of connects.

use std::thread;
use std::time::Instant;

use zrs_bench::Used;

use super::control::{Answer, Control, Go, Job, Values};
use crate::transport::{Conn, Listener, Transport};
use crate::{said, Result};

fn values(more: Used) -> Values {
    [
        ("used_bytes".to_string(), more.all),
        ("slab_bytes".to_string(), more.slab),
    ]
    .into()
}

/// Threads that open connections at the same time.
const OPENERS: u64 = 8;

/// Opens `count` connections, several at a time.
pub fn open(transport: Transport, addr: &str, count: u64) -> Result<Vec<Conn>> {
    let part = |n: u64| count / OPENERS + u64::from(n < count % OPENERS);
    thread::scope(|scope| {
        let some = |n| move || (0..part(n)).map(|_| transport.connect(addr)).collect();
        let openers: Vec<_> = (0..OPENERS).map(|n| scope.spawn(some(n))).collect();
        let mut held = Vec::with_capacity(count as usize);
        for opener in openers {
            let opened: Result<Vec<Conn>> = opener
                .join()
                .unwrap_or_else(|_| Err("a thread that connects died".into()));
            held.extend(opened?);
        }
        Ok(held)
    })
}

/// The client's part: `same` if the server runs on the same kernel.
pub fn near(
    transport: Transport,
    addr: &str,
    job: &Job,
    control: &mut Control,
    same: bool,
) -> Result<Values> {
    // Objects made once, with the first connection, are not counted for any connection.
    let first = transport.connect(addr)?;
    expect_held(control)?;
    let before = Used::at_rest()?;
    talk(control.say(&Go))?;
    let begin = Instant::now();
    let held = open(transport, addr, job.count)?;
    expect_held(control)?;
    let took = begin.elapsed();
    let near = values(Used::now()?.since(before));
    talk(control.say(&Go))?;
    let far = match talk(control.must_hear())? {
        Answer::Done(values) => values,
        other => return Err(unexpected(&other)),
    };
    drop((first, held));
    // One kernel has both ends in it, two have one each.
    let mut values = Values::new();
    for (name, value) in near {
        let other = far.get(&name).copied().unwrap_or(f64::NAN);
        let sum = if same { value } else { value + other };
        values.insert(
            name.replace("_bytes", "_bytes_per_endpoint")
                .replace("used_", ""),
            sum / (2 * job.count) as f64,
        );
    }
    values.insert("connections".into(), job.count as f64);
    values.insert("opened_per_s".into(), job.count as f64 / took.as_secs_f64());
    Ok(values)
}

/// The server's part.
pub fn far(listener: &Listener, job: &Job, control: &mut Control) -> Result<Values> {
    let accept = || said(listener.accept(), || "cannot accept".into());
    let first = accept()?;
    let before = Used::at_rest()?;
    talk(control.say(&Answer::Held))?;
    talk(control.must_hear::<Go>())?;
    let held = (0..job.count)
        .map(|_| accept())
        .collect::<Result<Vec<_>>>()?;
    talk(control.say(&Answer::Held))?;
    talk(control.must_hear::<Go>())?;
    let more = Used::now()?.since(before);
    drop((first, held));
    Ok(values(more))
}

pub fn talk<T>(result: std::io::Result<T>) -> Result<T> {
    said(result, || "the other side is gone".into())
}

pub fn expect_held(control: &mut Control) -> Result<()> {
    match talk(control.must_hear())? {
        Answer::Held => Ok(()),
        other => Err(unexpected(&other)),
    }
}

fn unexpected(answer: &Answer) -> String {
    match answer {
        Answer::Failed(reason) => format!("the server: {reason}"),
        _ => "the server does not keep to the protocol; are both sides of the same version?".into(),
    }
}
