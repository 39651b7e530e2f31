// SPDX-License-Identifier: GPL-2.0
//! A connection between two honest hosts, on whose device the victim's links live too: it goes on
//! all the time, each byte compared, and must not notice anything.

use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{self, sleep, JoinHandle};
use std::time::{Duration, Instant};

use zrs::{Listener, Stream};

use crate::peer::said;
use crate::verbs::in_net;

#[derive(Default)]
struct Shared {
    rounds: AtomicU64,
    stop: AtomicBool,
    trouble: Mutex<Option<String>>,
}

pub struct Bystander {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    /// Its two sockets.
    ends: [Stream; 2],
    /// The victim host's number of its channel.
    pub channel: u32,
}

/// The sizes sent in turn: small, bulk that is copied, bulk that is pinned.
const SIZES: [usize; 3] = [700, 6_000, 20_000];

fn pattern(round: u64, len: usize) -> Vec<u8> {
    let mut x = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
            x as u8
        })
        .collect()
}

impl Bystander {
    /// From the namespace `from` to `ip` in `to`.
    pub fn start(from: &str, to: &str, ip: Ipv4Addr) -> io::Result<Self> {
        let addr = SocketAddrV4::new(ip, 9999);
        let listener = in_net(to, || Listener::bind(addr))?;
        let client = in_net(from, || Stream::connect(addr))?;
        let (server, _) = listener.accept()?;
        let channel = server.info()?.channel;
        let ends = [client.try_clone()?, server.try_clone()?];
        let shared = Arc::new(Shared::default());
        let threads = vec![
            Self::spawn(&shared, client, talk),
            Self::spawn(&shared, server, echo),
        ];
        let bystander = Self {
            shared,
            threads,
            ends,
            channel,
        };
        // Each way has used what it needs: windows are there.
        bystander.goes_on(Duration::from_secs(60), SIZES.len() as u64 * 2)?;
        Ok(bystander)
    }

    fn spawn(
        shared: &Arc<Shared>,
        stream: Stream,
        run: fn(&Shared, Stream) -> io::Result<()>,
    ) -> JoinHandle<()> {
        let shared = shared.clone();
        thread::spawn(move || {
            if let Err(e) = run(&shared, stream) {
                shared.trouble.lock().unwrap().get_or_insert(e.to_string());
            }
        })
    }

    /// It makes `rounds` more, without an error.
    pub fn goes_on(&self, limit: Duration, rounds: u64) -> io::Result<()> {
        let (end, from) = (
            Instant::now() + limit,
            self.shared.rounds.load(Ordering::SeqCst),
        );
        loop {
            if let Some(trouble) = &*self.shared.trouble.lock().unwrap() {
                return Err(said(&format!("the bystander: {trouble}")));
            }
            if self.shared.rounds.load(Ordering::SeqCst) >= from + rounds {
                return Ok(());
            }
            if Instant::now() > end {
                return Err(said("the bystander stands still"));
            }
            sleep(Duration::from_millis(2));
        }
    }

    /// Bytes of the windows of both ends.
    pub fn windows(&self) -> io::Result<u64> {
        let [client, server] = &self.ends;
        Ok(client.info()?.window + server.info()?.window)
    }

    pub fn rounds(&self) -> u64 {
        self.shared.rounds.load(Ordering::SeqCst)
    }

    /// Ends it in order.
    pub fn stop(self) -> io::Result<()> {
        self.shared.stop.store(true, Ordering::SeqCst);
        // The server ends when the last copy of the client's socket is closed.
        drop(self.ends);
        for thread in self.threads {
            let _ = thread.join();
        }
        match self.shared.trouble.lock().unwrap().take() {
            Some(trouble) => Err(said(&format!("the bystander: {trouble}"))),
            None => Ok(()),
        }
    }
}

fn talk(shared: &Shared, mut stream: Stream) -> io::Result<()> {
    let mut round = 0;
    while !shared.stop.load(Ordering::SeqCst) {
        let sent = pattern(round, SIZES[round as usize % SIZES.len()]);
        let mut back = vec![0; sent.len()];
        stream.write_all(&sent)?;
        stream.read_exact(&mut back)?;
        if back != sent {
            return Err(said("other bytes came back"));
        }
        round += 1;
        shared.rounds.store(round, Ordering::SeqCst);
        sleep(Duration::from_millis(20));
    }
    Ok(())
}

fn echo(_: &Shared, mut stream: Stream) -> io::Result<()> {
    let mut round = 0;
    let mut buf = vec![0; SIZES[SIZES.len() - 1]];
    loop {
        let want = pattern(round, SIZES[round as usize % SIZES.len()]);
        let got = &mut buf[..want.len()];
        match stream.read(&mut got[..1])? {
            0 => return Ok(()),
            _ => stream.read_exact(&mut got[1..])?,
        }
        if *got != want[..] {
            return Err(said("other bytes arrived"));
        }
        stream.write_all(got)?;
        round += 1;
    }
}
