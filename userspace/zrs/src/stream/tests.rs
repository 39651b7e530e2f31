// SPDX-License-Identifier: GPL-2.0
//! Reading and writing by several buffers, on a socket that takes the module's place.
// rows: B13

use std::net::{TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;

use super::*;

fn pair() -> (Stream, Stream) {
    let (a, b) = UnixStream::pair().unwrap();
    (OwnedFd::from(a).into(), OwnedFd::from(b).into())
}

/// Bytes that differ from their neighbours.
fn counted(count: usize) -> Vec<u8> {
    (0..count).map(|n| n as u8).collect()
}

#[test]
fn buffers_are_gathered_and_scattered() {
    let (mut tx, mut rx) = pair();
    let parts = [&b"one"[..], b"", b"three"].map(IoSlice::new);
    assert_eq!(tx.write_vectored(&parts).unwrap(), 8);
    let (mut a, mut b) = ([0; 5], [0; 5]);
    let mut parts = [&mut a[..], &mut b[..]].map(IoSliceMut::new);
    assert_eq!(rx.read_vectored(&mut parts).unwrap(), 8);
    assert_eq!((&a, &b[..3]), (b"oneth", &b"ree"[..]));
}

#[test]
fn more_buffers_than_a_call_takes_are_a_short_count() {
    let bytes = counted(MOST_SLICES + 1);
    let parts: Vec<_> = bytes.chunks(1).map(IoSlice::new).collect();
    let (mut tx, mut rx) = pair();
    assert_eq!(tx.write_vectored(&parts).unwrap(), MOST_SLICES);
    assert_eq!(tx.send_zero_copy_vectored(&parts).unwrap(), MOST_SLICES);
    let mut got = vec![0; 2 * MOST_SLICES];
    rx.read_exact(&mut got).unwrap();
    assert_eq!(got, [&bytes[..MOST_SLICES], &bytes[..MOST_SLICES]].concat());

    tx.write_all(&bytes).unwrap();
    let mut got = vec![0; bytes.len()];
    let mut parts: Vec<_> = got.chunks_mut(1).map(IoSliceMut::new).collect();
    assert_eq!(rx.read_vectored(&mut parts).unwrap(), MOST_SLICES);
}

#[test]
fn a_peer_that_is_gone_is_an_error() {
    let (mut tx, rx) = pair();
    drop(rx);
    let part = [IoSlice::new(b"lost")];
    for result in [
        tx.write_vectored(&part),
        tx.send_zero_copy_vectored(&part),
        tx.send_zero_copy(b"lost"),
    ] {
        assert_eq!(result.unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}

#[test]
fn several_buffers_are_one_call_with_one_completion() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let tx = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let mut rx = listener.accept().unwrap().0;
    let tx = Stream::from(OwnedFd::from(tx));
    tx.set_zero_copy(true).unwrap();
    let (a, b) = (vec![1; 10_000], vec![2; 20_000]);
    let reader = thread::spawn(move || {
        let mut got = vec![0; 30_000];
        rx.read_exact(&mut got).unwrap();
        got
    });
    let sent = tx
        .send_zero_copy_vectored(&[&a[..], &b].map(IoSlice::new))
        .unwrap();
    assert_eq!(sent, 30_000);
    let done = tx.wait_completion().unwrap();
    assert_eq!((done.first, done.last), (0, 0));
    assert_eq!(reader.join().unwrap(), [a, b].concat());
}
