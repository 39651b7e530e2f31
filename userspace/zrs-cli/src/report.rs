// SPDX-License-Identifier: GPL-2.0
//! The result of a transfer, as text and as JSON.

use std::fmt::Write as _;
use std::io::Write as _;
use std::time::Duration;

use serde_json::{json, Value};
use sha2::digest::Output;
use sha2::Sha256;

/// Prints to stdout; a reader that has gone away is no error.
pub fn out(text: &str) {
    let _ = shown(text);
}

/// Prints to stdout; false if the write fails, as when the reader has gone away.
pub fn shown(text: &str) -> bool {
    let mut stdout = std::io::stdout().lock();
    let written = stdout.write_all(text.as_bytes());
    written.and_then(|()| stdout.flush()).is_ok()
}

/// Prints one JSON value as one line.
pub fn json_line(value: &Value) {
    out(&format!("{value}\n"));
}

/// A transfer, as one side saw it.
pub struct Report {
    pub bytes: u64,
    /// The timed part.
    pub timed: Duration,
    /// The timed part with file I/O and hashing in between.
    pub wall: Duration,
    pub hash: Option<Output<Sha256>>,
    /// Payload bytes that the CPU copied on this side, where the transport counts them.
    pub copied: Option<u64>,
}

impl Report {
    fn mib_s(&self) -> f64 {
        match self.timed.as_secs_f64() {
            0.0 => 0.0,
            seconds => self.bytes as f64 / f64::from(1 << 20) / seconds,
        }
    }

    fn sha256(&self) -> Option<String> {
        let hash = self.hash.as_ref()?;
        Some(hash.iter().fold(String::new(), |mut text, byte| {
            let _ = write!(text, "{byte:02x}");
            text
        }))
    }

    /// One JSON object; `copied` is the name of the field for copied bytes.
    pub fn json(&self, copied: &str) -> Value {
        json!({
            "bytes": self.bytes,
            "seconds": round(self.timed.as_secs_f64(), 6),
            "mib_s": round(self.mib_s(), 2),
            "sha256": self.sha256(),
            copied: self.copied,
            "wall_seconds": round(self.wall.as_secs_f64(), 6),
        })
    }

    /// A few lines; `did` is "sent" or "received".
    pub fn text(&self, did: &str) -> String {
        let seconds = self.timed.as_secs_f64();
        let mut text = format!(
            "{did} {} bytes in {seconds:.3} s, {:.1} MiB/s\n",
            self.bytes,
            self.mib_s()
        );
        if let Some(hash) = self.sha256() {
            let _ = writeln!(text, "sha256 {hash}");
        }
        if let Some(copied) = self.copied {
            let _ = writeln!(text, "copied by the CPU on this side: {copied} bytes");
        }
        text
    }
}

fn round(value: f64, digits: i32) -> f64 {
    let scale = 10f64.powi(digits);
    (value * scale).round() / scale
}

#[cfg(test)]
mod tests {
    use super::*;
    use sha2::Digest;

    fn report() -> Report {
        Report {
            bytes: 3 << 20,
            timed: Duration::from_millis(1500),
            wall: Duration::from_millis(1600),
            hash: Some(Sha256::digest(b"abc")),
            copied: Some(0),
        }
    }

    #[test]
    fn json_fields() {
        let json = report().json("rx_copied");
        assert_eq!(json["bytes"], 3 << 20);
        assert_eq!(json["seconds"], 1.5);
        assert_eq!(json["mib_s"], 2.0);
        assert_eq!(json["rx_copied"], 0);
        let abc = "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad";
        assert_eq!(json["sha256"], abc);
        assert!(!json.to_string().contains('\n'));
    }

    #[test]
    fn nothing_in_no_time() {
        let empty = Report {
            bytes: 0,
            timed: Duration::ZERO,
            hash: None,
            copied: None,
            ..report()
        };
        let json = empty.json("tx_copied");
        assert_eq!(json["mib_s"], 0.0);
        assert!(json["sha256"].is_null() && json["tx_copied"].is_null());
    }
}
