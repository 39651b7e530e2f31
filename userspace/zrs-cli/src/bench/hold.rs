// SPDX-License-Identifier: GPL-2.0
//! The effect of idle connections on busy ones: the throughput of some, alone and while many others
//! are open.

use std::thread;
use std::time::Instant;

use super::client::Marks;
use super::control::{Answer, Control, Job, Values};
use super::memory::{expect_held, open, talk};
use super::rx::Rx;
use super::stream;
use super::tx::Tx;
use crate::transport::{Conn, Listener, Transport};
use crate::{said, Result};

/// Number of busy connections; the number of idle ones, if that is less.
pub const BUSY: u64 = 16;
/// Messages on each of them before the timed ones.
const WARM: u64 = 16;

/// Does `work` for each connection at once.
pub fn at_once<T: Sync>(of: &[T], work: impl Fn(&T) -> Result<()> + Sync) -> Result<()> {
    thread::scope(|scope| {
        let work = &work;
        let threads: Vec<_> = of
            .iter()
            .map(|one| scope.spawn(move || work(one)))
            .collect();
        let join = |t: thread::ScopedJoinHandle<'_, Result<()>>| {
            t.join()
                .unwrap_or_else(|_| Err("a connection's thread died".into()))
        };
        // All of them, also if one fails.
        let done: Vec<_> = threads.into_iter().map(join).collect();
        done.into_iter().collect()
    })
}

/// `count` messages on each of the connections at once: seconds.
pub fn busy(conns: &[Conn], job: &Job, count: u64) -> Result<f64> {
    let start = Instant::now();
    at_once(conns, |conn| {
        let mut rx = Rx::new(conn, job.carrier, job.size)?;
        let mut tx = Tx::new(conn, job)?;
        let phase = stream::phase(conn, &mut rx, &mut tx, &Job { count, ..*job });
        said(phase, || "the connection broke off".into())
    })?;
    Ok(start.elapsed().as_secs_f64())
}

/// No more messages on any of them.
pub fn end(conns: &[Conn]) -> Result<()> {
    at_once(conns, |conn| {
        let end = std::io::Write::write_all(&mut &*conn, &0u64.to_be_bytes());
        said(end, || "the connection broke off".into())
    })
}

/// The client's part.
pub fn near(
    transport: Transport,
    addr: &str,
    job: &Job,
    marks: &mut Marks,
    control: &mut Control,
) -> Result<Values> {
    let conns = open(transport, addr, BUSY.min(job.connections))?;
    for conn in &conns {
        said(conn.set_nodelay(), || "cannot switch delays off".into())?;
    }
    busy(&conns, job, WARM)?;
    marks.put("start");
    let alone = busy(&conns, job, job.count)?;
    let idle = open(transport, addr, job.connections)?;
    expect_held(control)?;
    let held = busy(&conns, job, job.count)?;
    marks.put("end");
    end(&conns)?;
    let mib = (conns.len() as u64 * job.count * job.size) as f64 / f64::from(1 << 20);
    Ok([
        ("idle", idle.len() as f64),
        ("seconds", alone + held),
        ("alone_mib_s", mib / alone),
        ("held_mib_s", mib / held),
        ("held_ratio", alone / held),
    ]
    .map(|(name, value)| (name.to_string(), value))
    .into())
}

/// The server's part.
pub fn far(listener: &Listener, job: &Job, control: &mut Control) -> Result<Values> {
    let accept = |count: u64| {
        (0..count)
            .map(|_| said(listener.accept(), || "cannot accept".into()))
            .collect::<Result<Vec<_>>>()
    };
    let conns = accept(BUSY.min(job.connections))?;
    thread::scope(|scope| {
        let streams = scope.spawn(|| at_once(&conns, |conn| stream::far(conn, job).map(drop)));
        let idle = accept(job.connections)?;
        talk(control.say(&Answer::Held))?;
        let done = streams.join();
        drop(idle);
        done.unwrap_or_else(|_| Err("the busy connections' thread died".into()))
    })?;
    Ok(Values::new())
}
