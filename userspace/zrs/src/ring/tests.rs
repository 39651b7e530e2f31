// SPDX-License-Identifier: GPL-2.0
//! The ring of a fake kernel with a Unix socket, whose poll() and recv() stand in for the module's.
// rows: B3 Z6

use std::io::Write;
use std::net::Shutdown;
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::thread;

use zrs_sys::fake::{pair_from, Bell, Kernel};

use super::*;

struct Fake {
    kernel: Kernel,
    bell: Bell,
    /// The far end of the socket: its bytes wait "in the kernel", its shutdown is the end.
    peer: UnixStream,
    rx: RxRing,
}

fn fake(entries: u32) -> Fake {
    fake_from(0, entries)
}

fn fake_from(first: u64, entries: u32) -> Fake {
    let bell = Bell::default();
    let (kernel, ring) = pair_from(first, entries, 4096, bell.clone()).unwrap();
    let (peer, ours) = UnixStream::pair().unwrap();
    let socket = Socket::from(OwnedFd::from(ours));
    Fake {
        kernel,
        bell,
        peer,
        rx: RxRing::new(ring, Arc::new(socket)),
    }
}

fn kind<T: std::fmt::Debug>(result: io::Result<T>) -> io::ErrorKind {
    result.unwrap_err().kind()
}

#[test]
fn segments_then_the_end() {
    let mut f = fake(4);
    assert_eq!(kind(f.rx.try_recv()), io::ErrorKind::WouldBlock);
    assert!(f.kernel.put(b"one") && f.kernel.put(b"two"));
    f.peer.shutdown(Shutdown::Write).unwrap();
    let one = f.rx.recv().unwrap().unwrap();
    let two = f.rx.recv().unwrap().unwrap();
    assert_eq!(
        (one.to_vec(), two.to_vec()),
        (b"one".to_vec(), b"two".to_vec())
    );
    assert!(one.is_zero_copy());
    assert!(f.rx.recv().unwrap().is_none());
    assert!(f.rx.recv().unwrap().is_none(), "the end stays");
}

#[test]
fn a_ring_made_late_begins_where_the_reads_ended() {
    let mut f = fake_from(1_000_003, 4);
    assert_eq!(kind(f.rx.try_recv()), io::ErrorKind::WouldBlock);
    for data in [b"x", b"y", b"z"] {
        assert!(f.kernel.put(data));
    }
    for data in [b"x", b"y", b"z"] {
        assert_eq!(f.rx.recv().unwrap().unwrap().to_vec(), data);
    }
    assert_eq!(f.kernel.reclaim(), 3);
}

#[test]
fn segments_outlive_ring_and_socket() {
    let mut f = fake(4);
    assert!(f.kernel.put(b"kept"));
    let kept = f.rx.recv().unwrap().unwrap();
    drop((f.rx, f.peer));
    assert_eq!(kept.to_vec(), b"kept");
    drop(kept);
    assert_eq!(f.kernel.reclaim(), 1);
}

#[test]
fn small_segments_are_fetched_in_order() {
    let mut f = fake(4);
    assert!(f.kernel.put(b"window"));
    f.peer.write_all(b"kernel").unwrap();
    assert!(f.kernel.put_kernel(6) && f.kernel.put(b"again"));
    let mut got = Vec::new();
    for zero_copy in [true, false, true] {
        let seg = f.rx.recv().unwrap().unwrap();
        assert_eq!(seg.is_zero_copy(), zero_copy);
        got.extend(seg.to_vec());
    }
    assert_eq!(got, b"windowkernelagain");
    assert_eq!(kind(f.rx.try_recv()), io::ErrorKind::WouldBlock);
}

#[test]
fn small_segments_are_read_in_the_ring() {
    let mut f = fake(4);
    assert!(f.kernel.put_small(b"small") && f.kernel.put(b"window") && f.kernel.put_small(b"x"));
    for (bytes, zero_copy) in [(&b"small"[..], false), (b"window", true), (b"x", false)] {
        let seg = f.rx.try_recv().unwrap().unwrap();
        assert_eq!((&seg.to_vec()[..], seg.is_zero_copy()), (bytes, zero_copy));
    }
    assert_eq!(f.kernel.reclaim(), 3);
}

#[test]
fn what_is_read_late_has_been_moved_and_is_the_same() {
    let mut f = fake(4);
    assert!(f.kernel.put(b"moved") && f.kernel.put(b"stayed"));
    assert!(f.kernel.escape().is_some());
    for (bytes, zero_copy) in [(&b"moved"[..], false), (b"stayed", true)] {
        let seg = f.rx.recv().unwrap().unwrap();
        assert_eq!((&seg.to_vec()[..], seg.is_zero_copy()), (bytes, zero_copy));
    }
    assert_eq!(f.kernel.reclaim(), 2);
}

#[test]
fn plain_reads_take_what_was_moved() {
    let mut f = fake(4);
    assert!(f.kernel.put(b"abcdef") && f.kernel.put(b"wholly") && f.kernel.put(b"next"));
    assert!(f.kernel.escape().is_some() && f.kernel.escape().is_some());
    // recv() took "ab", and then the ring is asked.
    f.kernel.recv(0, false);
    f.peer.write_all(b"cdef").unwrap();
    assert_eq!(f.rx.recv().unwrap().unwrap().to_vec(), b"cdef");
    f.kernel.recv(0, true);
    f.kernel.recv(1, true);
    assert_eq!(f.rx.recv().unwrap().unwrap().to_vec(), b"next");
}

#[test]
fn a_kernel_segment_may_come_in_parts() {
    let mut f = fake(4);
    assert!(f.kernel.put_kernel(6) && f.kernel.put(b"next"));
    f.peer.write_all(b"ker").unwrap();
    assert_eq!(f.rx.recv().unwrap().unwrap().to_vec(), b"ker");
    f.peer.write_all(b"nel").unwrap();
    assert_eq!(f.rx.recv().unwrap().unwrap().to_vec(), b"nel");
    assert_eq!(f.rx.recv().unwrap().unwrap().to_vec(), b"next");
}

#[test]
fn plain_reads_between_are_skipped() {
    let mut f = fake(2);
    assert!(f.kernel.put(b"a") && f.kernel.put(b"b"));
    f.kernel.recv(0, true);
    assert_eq!(f.rx.recv().unwrap().unwrap().to_vec(), b"b");
    // Plain reads take so much that the ring goes round.
    f.kernel.reclaim();
    for n in 2..7 {
        assert!(f.kernel.put(b"x"));
        f.kernel.recv(n, true);
        f.kernel.reclaim();
    }
    assert!(f.kernel.put(b"c"));
    assert_eq!(f.rx.recv().unwrap().unwrap().to_vec(), b"c");
}

#[test]
fn a_read_that_took_a_part_leaves_the_rest() {
    let mut f = fake(4);
    assert!(f.kernel.put(b"abcdef") && f.kernel.put(b"next"));
    // recv() took "ab"; "cdef" waits.
    f.kernel.recv(0, false);
    f.peer.write_all(b"cdef").unwrap();
    assert_eq!(f.rx.recv().unwrap().unwrap().to_vec(), b"cdef");
    f.kernel.recv(0, true);
    assert_eq!(f.rx.recv().unwrap().unwrap().to_vec(), b"next");
}

#[test]
fn data_without_descriptor_is_fetched() {
    let f = fake(4);
    (&f.peer).write_all(b"stray").unwrap();
    let seg = f.rx.recv().unwrap().unwrap();
    assert_eq!(seg.to_vec(), b"stray");
    assert!(!seg.is_zero_copy());
}

#[test]
fn timeouts_and_wakeups() {
    let f = fake(4);
    let start = Instant::now();
    let timeout = Duration::from_millis(30);
    assert_eq!(kind(f.rx.recv_timeout(timeout)), io::ErrorKind::TimedOut);
    assert!(start.elapsed() >= timeout);
    thread::scope(|s| {
        let reader = s.spawn(|| f.rx.recv());
        thread::sleep(Duration::from_millis(20));
        f.peer.shutdown(Shutdown::Both).unwrap();
        assert!(reader.join().unwrap().unwrap().is_none());
    });
}

#[test]
fn a_socket_without_zrs_has_no_ring() {
    let (a, _b) = UnixStream::pair().unwrap();
    let stream = crate::Stream::from(OwnedFd::from(a));
    let error = stream.rx_ring().unwrap_err();
    assert!(
        error
            .to_string()
            .starts_with("cannot make the receive ring: "),
        "{error}"
    );
}

#[test]
fn the_last_handle_shuts_down_despite_segments() {
    use std::io::Read;
    let mut f = fake(4);
    f.rx.socket.shut_down_at_end();
    assert!(f.kernel.put(b"held"));
    let held = f.rx.recv().unwrap().unwrap();
    let extra_reference = f.rx.socket.shared_fd().clone();
    drop(f.rx);
    assert_eq!(f.peer.read(&mut [0]).unwrap(), 0, "the peer sees the end");
    drop((held, extra_reference));
}

#[test]
fn it_waits_for_the_next_segment_and_no_longer_than_it_may() {
    let mut f = fake_from(7, 4);
    assert!(f.kernel.put(b"x"));
    f.rx.recv().unwrap();
    let limit = Duration::from_millis(20);
    assert_eq!(kind(f.rx.recv_timeout(limit)), io::ErrorKind::TimedOut);
    let waits = f.bell.1.lock().unwrap();
    assert!(!waits.is_empty());
    for (head, timeout) in waits.iter() {
        assert_eq!(*head, 9);
        assert!(timeout.is_some_and(|t| t <= limit && !t.is_zero()));
    }
}

#[test]
fn the_end_is_seen_without_time() {
    let f = fake(4);
    assert_eq!(
        kind(f.rx.recv_timeout(Duration::ZERO)),
        io::ErrorKind::TimedOut
    );
    f.peer.shutdown(Shutdown::Write).unwrap();
    assert!(f.rx.recv_timeout(Duration::ZERO).unwrap().is_none());
    assert!(f.bell.1.lock().unwrap().is_empty());
}
