// SPDX-License-Identifier: GPL-2.0

//! Shared by several tests: reproducible random numbers and a byte stream that can be checked
//! at any position.

pub mod headers;
pub mod parking;
pub mod table;

/// splitmix64's output function.
pub fn mix(x: u64) -> u64 {
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

const GOLDEN: u64 = 0x9e37_79b9_7f4a_7c15;

/// splitmix64: small, fast, and the same everywhere for ever.
pub struct Rng(u64);

impl Rng {
    pub fn new(seed: u64) -> Self {
        Self(mix(seed.wrapping_add(GOLDEN)))
    }

    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN);
        mix(self.0)
    }

    /// Below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next_u64() % n
    }

    /// From `low` to `high`, both included.
    pub fn range(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True in `percent` of 100 cases.
    pub fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize]
    }
}

/// Repetitions of a test with random numbers: `full`, and fewer where each step takes a thousand
/// times as long.
pub const fn cases(full: u32) -> u32 {
    if cfg!(miri) {
        1 + full / 2000
    } else {
        full
    }
}

/// The bytes of stream `key` from position `pos` on.
pub fn fill_stream(key: u64, pos: u64, out: &mut [u8]) {
    let word = |at: u64| mix(key ^ (at >> 3).wrapping_mul(GOLDEN)).to_le_bytes();
    let skew = (pos & 7) as usize;
    let head = if skew == 0 {
        0
    } else {
        out.len().min(8 - skew)
    };
    let (first, rest) = out.split_at_mut(head);
    first.copy_from_slice(&word(pos)[skew..skew + head]);
    let mut at = pos + head as u64;
    for chunk in rest.chunks_mut(8) {
        chunk.copy_from_slice(&word(at)[..chunk.len()]);
        at += 8;
    }
}

/// Whether `bytes` are those of stream `key` from position `pos` on.
pub fn is_stream(key: u64, pos: u64, bytes: &[u8]) -> bool {
    let mut want = [0; 4096];
    bytes.chunks(want.len()).enumerate().all(|(n, chunk)| {
        let want = &mut want[..chunk.len()];
        fill_stream(key, pos + 4096 * n as u64, want);
        chunk == want
    })
}
