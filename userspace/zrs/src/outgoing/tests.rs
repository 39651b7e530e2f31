// SPDX-License-Identifier: GPL-2.0
//! Buffers that come back, over TCP, which numbers and completes calls in the same way.
// rows: B2 B13

use std::io::Read;
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::thread::{self, JoinHandle};

use super::*;
use crate::Stream;

/// A stream, and its peer.
fn pair() -> (Stream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let peer = listener.accept().unwrap().0;
    (OwnedFd::from(ours).into(), peer)
}

/// All bytes that the peer receives.
fn all(mut peer: TcpStream) -> JoinHandle<Vec<u8>> {
    thread::spawn(move || {
        let mut got = Vec::new();
        peer.read_to_end(&mut got).unwrap();
        got
    })
}

fn filled(with: u8, len: usize) -> PageBuf {
    let mut pages = PageBuf::new(len).unwrap();
    pages.fill(with);
    pages
}

#[test]
fn buffers_come_back_in_any_order() {
    let (stream, peer) = pair();
    stream.set_zero_copy(true).unwrap();
    let got = all(peer);
    let mut sent: Vec<_> = (1..=5)
        .map(|n| stream.outgoing(filled(n, 100_000), 70_000))
        .collect();
    for out in &mut sent {
        out.send_all().unwrap();
        assert_eq!((out.left(), out.send().unwrap()), (0, 0));
    }
    for (n, out) in (1..=5).zip(sent).rev() {
        let pages = out.wait().unwrap();
        assert_eq!((pages[0], pages.len()), (n, 100_000));
    }
    drop(stream);
    let expected: Vec<u8> = (1..=5).flat_map(|n| [n; 70_000]).collect();
    assert!(got.join().unwrap() == expected);
}

#[test]
fn threads_wait_for_their_own() {
    let (stream, peer) = pair();
    stream.set_zero_copy(true).unwrap();
    let got = all(peer);
    thread::scope(|s| {
        for n in 0..4 {
            let stream = stream.try_clone().unwrap();
            s.spawn(move || {
                let mut pages = filled(n, 20_000);
                for _ in 0..50 {
                    let mut out = stream.outgoing(pages, 20_000);
                    out.send_all().unwrap();
                    pages = out.wait().unwrap();
                }
            });
        }
    });
    drop(stream);
    assert_eq!(got.join().unwrap().len(), 4 * 50 * 20_000);
}

#[test]
fn what_is_dropped_is_sent_all_the_same() {
    let (stream, peer) = pair();
    stream.set_zero_copy(true).unwrap();
    for n in 0..10 {
        let mut out = stream.outgoing(filled(n, 50_000), 50_000);
        out.send_all().unwrap();
    }
    let got = all(peer);
    // Nobody waited for any of the first ten.
    let mut last = stream.outgoing(filled(10, 50_000), 50_000);
    last.send_all().unwrap();
    last.wait().unwrap();
    drop(stream);
    let expected: Vec<u8> = (0..=10).flat_map(|n| [n; 50_000]).collect();
    assert!(got.join().unwrap() == expected);
}

#[test]
fn what_does_not_go_now_goes_later() {
    // The pages of two calls keep within RLIMIT_MEMLOCK.
    const SIZE: usize = 2 << 20;
    let (stream, peer) = pair();
    rustix::net::sockopt::set_socket_send_buffer_size(&stream, 64 << 10).unwrap();
    stream.set_zero_copy(true).unwrap();
    stream.set_nonblocking(true).unwrap();
    let mut out = stream.outgoing(filled(7, SIZE), SIZE);
    let error = out.send_all().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::WouldBlock);
    let left = out.left();
    assert!(left > 0 && left < SIZE);
    let got = all(peer);
    stream.set_nonblocking(false).unwrap();
    out.send_all().unwrap();
    assert_eq!(out.wait().unwrap().len(), SIZE);
    drop(stream);
    let got = got.join().unwrap();
    assert!(got.len() == SIZE && got.iter().all(|&b| b == 7));
}

#[test]
fn without_the_option_there_is_nothing_to_wait_for() {
    let (stream, peer) = pair();
    let got = all(peer);
    let mut out = stream.outgoing(filled(3, 10_000), 10_000);
    out.send_all().unwrap();
    assert!(out.is_complete().unwrap());
    // The numbers begin with the option.
    stream.set_zero_copy(true).unwrap();
    let mut counted = stream.outgoing(filled(3, 10_000), 10_000);
    counted.send_all().unwrap();
    while !counted.is_complete().unwrap() {
        thread::yield_now();
    }
    out.wait().unwrap();
    counted.wait().unwrap();
    drop(stream);
    assert_eq!(got.join().unwrap().len(), 20_000);
}

#[test]
fn nothing_is_complete_at_once() {
    let (stream, _peer) = pair();
    stream.set_zero_copy(true).unwrap();
    let out = stream.outgoing(PageBuf::new(0).unwrap(), 0);
    assert!(out.is_complete().unwrap());
    out.wait().unwrap();
}
