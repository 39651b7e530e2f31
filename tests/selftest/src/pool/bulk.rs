// SPDX-License-Identifier: GPL-2.0
//! More bulk senders than the pool has room for: all of them finish, and the pool is never larger
//! than it may be; also while what it may be changes.

use std::net::SocketAddrV4;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread;
use std::time::{Duration, Instant};

use zrs_sys::abi::zrs_ioc_cache;

use super::{becomes, cache, patience, said, set_param, LOOK};
use crate::scale::{call, serve};
use crate::support::args::{size, End, Side};
use crate::support::checks::{say, Checks};
use crate::support::pattern::{Pattern, Rng, Verifier};
use crate::support::raw::{self, Result};
use crate::support::rx::Rx;
use crate::support::verified;

/// Send bulk data on many connections at once; both ends get the same arguments
#[derive(clap::Args)]
pub struct Args {
    #[command(flatten)]
    end: End,
    /// Of the data, and of the sizes of messages
    #[arg(long, default_value_t = 1)]
    seed: u64,
    #[arg(long, default_value_t = 64)]
    conns: u64,
    /// Of them: those whose receivers have rings
    #[arg(long, default_value_t = 0)]
    rings: u64,
    /// Bytes on each, at least
    #[arg(long, value_parser = size, default_value = "512k")]
    bytes: usize,
    /// The parameter pool_mib while they send, and the parameter escape: 16:never
    #[arg(long, value_delimiter = ',', value_parser = setting)]
    settings: Vec<(u32, String)>,
}

/// Bytes of the largest message.
const LARGEST: usize = 1 << 20;
/// All connections together send so much under each setting.
const MOVED: u64 = 4 << 20;

fn setting(text: &str) -> std::result::Result<(u32, String), String> {
    let (mib, policy) = text.split_once(':').ok_or("MIB:POLICY is wanted")?;
    let mib = mib.parse().map_err(|e| format!("{mib}: {e}"))?;
    Ok((mib, policy.to_string()))
}

pub fn run(args: &Args, checks: &mut Checks) {
    match args.end.side() {
        Side::Server(addr) => drop(server(args, addr, checks)),
        Side::Client(addr) => drop(client(args, addr, checks)),
    }
}

fn server(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (control, listeners) = serve(addr, 1, checks)?;
    let mut readers = Vec::new();
    for index in 0..args.conns {
        let conn = checks.need("accept", raw::accept(&listeners[0]))?;
        let rx = Rx::new(&conn, index < args.rings && raw::is_zrs(), 0);
        let mut rx = checks.need("receiver", rx)?;
        let mut seen = Verifier::new(Pattern::new(args.seed, 0, index));
        readers.push(thread::spawn(move || -> Result<()> {
            rx.all(|bytes| seen.take(bytes))?;
            verified::answer(&conn, &seen)
        }));
    }
    checks.need("tell", control.tell(args.conns))?;
    for reader in readers {
        checks.need("receive", reader.join().expect("the reader panicked"))?;
    }
    checks.errno("the end", control.hear(), &[libc::EPIPE]);
    Some(())
}

/// State shared by the senders.
#[derive(Default)]
struct Course {
    /// Bytes that all of them have sent.
    sent: AtomicU64,
    /// They are to stop when they have sent enough.
    over: AtomicBool,
}

fn client(args: &Args, addr: SocketAddrV4, checks: &mut Checks) -> Option<()> {
    let (control, addrs) = call(addr, checks)?;
    let conns = (0..args.conns)
        .map(|_| raw::connected(addrs[0]))
        .collect::<Result<Vec<_>>>();
    let conns = checks.need("connect", conns)?;
    checks.need("hear", control.hear())?;
    let course = &Course::default();
    let sent: Result<Vec<u64>> = thread::scope(|scope| {
        let senders: Vec<_> = (0..)
            .zip(&conns)
            .map(|(index, conn)| scope.spawn(move || send(args, index, conn, course)))
            .collect();
        if raw::is_zrs() && !args.settings.is_empty() {
            change(args, course, checks);
        }
        course.over.store(true, Relaxed);
        if raw::is_zrs() && args.settings.is_empty() {
            watch(&|| senders.iter().all(|s| s.is_finished()), checks);
        }
        let ends = senders
            .into_iter()
            .map(|s| s.join().expect("a sender panicked"));
        ends.collect()
    });
    let sent = checks.need("send", sent)?;
    let all: u64 = sent.iter().sum();
    say(&format!(
        "# {} MiB on {} connections",
        all >> 20,
        conns.len()
    ));
    verified::end_all(&conns.into_iter().zip(sent).collect::<Vec<_>>(), checks)?;
    becomes(
        "nothing is leased or unread in the end",
        |c| c.large_bytes == 0 && c.unread == 0 && c.escaped == 0,
        checks,
    )
}

/// Sends messages of any size until all is over, and enough in any case. How many bytes that were.
fn send(args: &Args, index: u64, conn: &OwnedFd, course: &Course) -> Result<u64> {
    let pattern = Pattern::new(args.seed, 0, index);
    let mut rng = Rng::new(args.seed, index);
    let mut message = vec![0; LARGEST];
    let mut sent = 0;
    while sent < args.bytes as u64 || !course.over.load(Relaxed) {
        // Small ones as often as large ones.
        let most = 1 << rng.pick(&[12, 14, 16, 18, 20]);
        let len = 1 + rng.below(most);
        pattern.fill(sent, &mut message[..len]);
        raw::send_all(conn, &message[..len])?;
        sent += len as u64;
        course.sent.fetch_add(len as u64, Relaxed);
    }
    Ok(sent)
}

/// The parameters change while they send: the pool follows, and they go on.
fn change(args: &Args, course: &Course, checks: &mut Checks) -> Option<()> {
    for (mib, policy) in &args.settings {
        checks.need("escape", set_param("escape", policy))?;
        checks.need("pool_mib", set_param("pool_mib", &mib.to_string()))?;
        let bytes = u64::from(*mib) << 20;
        let fits = |c: &zrs_ioc_cache| c.bytes == bytes && c.small_bytes + c.large_bytes <= bytes;
        becomes(&format!("a pool of {mib} MiB, {policy}"), fits, checks)?;
        let before = course.sent.load(Relaxed);
        let moved = || course.sent.load(Relaxed) - before;
        // A slow machine takes its time; a stall is that nothing moves.
        let (mut last, mut since) = (moved(), Instant::now());
        while last < MOVED && since.elapsed() < patience() {
            thread::sleep(LOOK);
            if moved() > last {
                (last, since) = (moved(), Instant::now());
            }
        }
        let fine = moved() >= MOVED;
        checks.yes("they go on with it", fine, &format!("{} bytes", moved()));
    }
    Some(())
}

/// Looks at the pool all the time until they have `ended`: it is never larger than it may be.
fn watch(ended: &dyn Fn() -> bool, checks: &mut Checks) -> Option<()> {
    let (mut most, mut looks) = (0.0_f64, 0);
    // Once at least, also if this thread is late.
    while looks == 0 || !ended() {
        let now = cache(checks)?;
        let used = (now.small_bytes + now.large_bytes) as f64 / now.bytes as f64;
        let unread = now.unread as f64 / now.bytes as f64;
        most = most.max(used).max(unread);
        looks += 1;
        thread::sleep(Duration::from_millis(2));
    }
    let now = cache(checks)?;
    say(&format!("# {looks} looks: {}", said(&now)));
    let name = "blocks and windows together are within the pool";
    checks.yes(name, most <= 1.0 && looks > 0, &format!("{most:.3} of it"));
    let high = now.small_high.max(now.large_high).max(now.unread_high);
    let fine = high <= now.bytes;
    checks.yes("the most of each is", fine, &said(&now));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::setting;

    #[test]
    fn settings() {
        assert_eq!(setting("16:never"), Ok((16, "never".to_string())));
        assert!(setting("16").is_err() && setting("x:never").is_err());
    }
}
