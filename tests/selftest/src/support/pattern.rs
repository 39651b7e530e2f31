// SPDX-License-Identifier: GPL-2.0
//! A deterministic stream of bytes, which either end can make at any position.

use crate::support::raw::Result;

/// The bytes of one direction of one connection.
#[derive(Clone, Copy)]
pub struct Pattern {
    key: u64,
}

fn mix(x: u64) -> u64 {
    // splitmix64
    let x = x.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

impl Pattern {
    /// Direction 0 is client to server, 1 the other; `index` counts connections.
    pub fn new(seed: u64, direction: u64, index: u64) -> Self {
        Self {
            key: mix(mix(mix(seed) ^ direction) ^ index),
        }
    }

    /// Writes the bytes from position `pos` on into `buf`.
    pub fn fill(&self, pos: u64, buf: &mut [u8]) {
        let mut done = 0;
        while done < buf.len() {
            let at = pos + done as u64;
            let word = mix(self.key ^ (at / 8)).to_le_bytes();
            let from = (at % 8) as usize;
            let len = (8 - from).min(buf.len() - done);
            buf[done..done + len].copy_from_slice(&word[from..from + len]);
            done += len;
        }
    }

    /// The first position at which `buf`, from position `pos` on, is wrong.
    pub fn mismatch(&self, pos: u64, buf: &[u8]) -> Option<u64> {
        let mut expected = [0; 4096];
        for (n, part) in buf.chunks(expected.len()).enumerate() {
            let at = pos + (n * expected.len()) as u64;
            self.fill(at, &mut expected[..part.len()]);
            if part != &expected[..part.len()] {
                let bad = part.iter().zip(&expected).position(|(a, b)| a != b);
                return bad.map(|i| at + i as u64);
            }
        }
        None
    }
}

/// Random numbers from a seed.
pub struct Rng(u64);

impl Rng {
    /// `stream` tells apart the users of one seed.
    pub fn new(seed: u64, stream: u64) -> Self {
        Self(mix(mix(seed) ^ stream))
    }

    pub fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number below `n`; 0 if there is none.
    pub fn below(&mut self, n: usize) -> usize {
        (self.word() % n.max(1) as u64) as usize
    }

    /// One of `all`, which is not empty.
    pub fn pick<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len())]
    }

    /// True once in `n` times.
    pub fn one_in(&mut self, n: usize) -> bool {
        self.below(n) == 0
    }
}

/// Compares received bytes with the expected ones.
pub struct Verifier {
    pattern: Pattern,
    pub pos: u64,
    /// Position of the first wrong byte.
    pub wrong: Option<u64>,
}

impl Verifier {
    pub fn new(pattern: Pattern) -> Self {
        Self {
            pattern,
            pos: 0,
            wrong: None,
        }
    }

    pub fn pattern(&self) -> Pattern {
        self.pattern
    }

    pub fn take(&mut self, buf: &[u8]) -> Result<()> {
        if self.wrong.is_none() {
            self.wrong = self.pattern.mismatch(self.pos, buf);
        }
        self.pos += buf.len() as u64;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_from_any_position() {
        let pattern = Pattern::new(1, 0, 0);
        let mut whole = [0; 10_000];
        pattern.fill(0, &mut whole);
        for (pos, len) in [(0, 1), (3, 5), (7, 9_000), (9_999, 1)] {
            assert_eq!(pattern.mismatch(pos as u64, &whole[pos..pos + len]), None);
        }
        whole[5_000] ^= 1;
        assert_eq!(pattern.mismatch(0, &whole), Some(5_000));
        assert_eq!(pattern.mismatch(4_999, &whole[4_999..]), Some(5_000));
    }

    #[test]
    fn directions_and_connections_differ() {
        let first = |s, d, i| {
            let mut bytes = [0; 16];
            Pattern::new(s, d, i).fill(0, &mut bytes);
            bytes
        };
        let all = [
            first(1, 0, 0),
            first(1, 1, 0),
            first(1, 0, 1),
            first(2, 0, 0),
        ];
        for (n, a) in all.iter().enumerate() {
            assert!(all[n + 1..].iter().all(|b| a != b));
        }
    }
}
