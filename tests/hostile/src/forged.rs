// SPDX-License-Identifier: GPL-2.0
//! Requests for a connection that no connection manager has made: each field says what the sender
//! likes. They are management datagrams to queue pair 1, which root can send.
//!
//! InfiniBand architecture, 12.6.5 (REQ) and 13.4.3 (the common header); the private data as in the
//! kernel's `struct cma_hdr`.

use std::fs;
use std::io;
use std::net::Ipv4Addr;

use crate::peer::said;
use crate::verbs;

/// Bytes of `struct ib_user_mad_hdr`, and of a datagram.
const HEADER: usize = 64;
const MAD: usize = 256;

/// `GSI_QKEY` of the kernel: every host has the same for queue pair 1.
const QKEY: u32 = 0x8001_0000;
/// `RDMA_PS_TCP`.
const PORT_SPACE: u64 = 0x0106;

/// What a request says.
pub struct Request<'a> {
    /// The address in the private data.
    pub claimed: Ipv4Addr,
    /// The address that the request goes from, by its GID, and the victim's.
    pub from: Ipv4Addr,
    pub to: Ipv4Addr,
    /// The ports of both.
    pub from_port: u16,
    pub to_port: u16,
    /// Distinguishes requests.
    pub number: u32,
    /// The time limits of the connection manager, 4.096 us * 2^n, n up to 31.
    pub timeout: u8,
    pub hello: &'a [u8],
}

/// A device's place of an address.
struct Place {
    node: String,
    gid_index: u8,
}

fn gid(ip: Ipv4Addr) -> [u8; 16] {
    ip.to_ipv6_mapped().octets()
}

fn place_of(ip: Ipv4Addr) -> io::Result<Place> {
    let wanted: Vec<_> = gid(ip)
        .chunks(2)
        .map(|b| format!("{:02x}{:02x}", b[0], b[1]))
        .collect();
    let wanted = wanted.join(":");
    for node in fs::read_dir("/sys/class/infiniband_mad")? {
        let node = node?;
        let Ok(device) = fs::read_to_string(node.path().join("ibdev")) else {
            continue;
        };
        let gids = format!("/sys/class/infiniband/{}/ports/1/gids", device.trim());
        for index in 0..=u8::MAX {
            match fs::read_to_string(format!("{gids}/{index}")) {
                Ok(text) if text.trim() == wanted => {
                    let name = node.file_name();
                    return Ok(Place {
                        node: format!("/dev/infiniband/{}", name.to_string_lossy()),
                        gid_index: index,
                    });
                }
                Ok(_) => {}
                Err(_) => break,
            }
        }
    }
    Err(said(&format!(
        "no device with a GID of {ip} (is ib_umad loaded?)"
    )))
}

/// Writes `bytes` at `at`.
fn put(out: &mut [u8], at: usize, bytes: &[u8]) {
    out[at..at + bytes.len()].copy_from_slice(bytes);
}

impl Request<'_> {
    fn req(&self, out: &mut [u8]) {
        let number = self.number.to_be_bytes();
        put(out, 0, &number);
        put(
            out,
            8,
            &((PORT_SPACE << 16) | u64::from(self.to_port)).to_be_bytes(),
        );
        // The adapter's GUID and the queue pair's number.
        put(out, 16, &number);
        put(out, 20, &number);
        put(out, 33, &number[2..]);
        out[35] = 1;
        out[39] = 1;
        // Reliable connection, flow control.
        out[43] = (self.timeout << 3) | 1;
        out[47] = (self.timeout << 3) | 7;
        put(out, 48, &0xffff_u16.to_be_bytes());
        // MTU 1024, RNR retries; retries of the connection manager's, a shared receive queue.
        out[50] = (3 << 4) | 7;
        out[51] = (15 << 4) | (1 << 3);
        put(out, 56, &gid(self.from));
        put(out, 72, &gid(self.to));
        // 10 Gb/s, hop limit, local acknowledgement timeout.
        out[91] = 3;
        out[93] = 64;
        out[95] = 18 << 3;
        let data = &mut out[140..];
        data[1] = 4 << 4;
        put(data, 2, &self.from_port.to_be_bytes());
        put(data, 16, &self.claimed.octets());
        put(data, 32, &self.to.octets());
        put(data, 36, self.hello);
    }

    /// Sends it.
    pub fn send(&self) -> io::Result<()> {
        let place = place_of(self.from)?;
        let mut out = vec![0; HEADER + MAD];
        out[16..20].copy_from_slice(&(MAD as u32).to_ne_bytes());
        put(&mut out, 20, &1_u32.to_be_bytes());
        put(&mut out, 24, &QKEY.to_be_bytes());
        out[32] = 1;
        out[33] = place.gid_index;
        out[34] = 64;
        put(&mut out, 36, &gid(self.to));
        let mad = &mut out[HEADER..];
        // Version 1, class 7 (communication management) version 2, Send; attribute REQ.
        put(mad, 0, &[1, 7, 2, 3]);
        put(mad, 8, &u64::from(self.number).to_be_bytes());
        put(mad, 16, &0x0010_u16.to_be_bytes());
        self.req(&mut mad[24..]);
        verbs::send_mad(&place.node, out)
    }
}
