// SPDX-License-Identifier: GPL-2.0
//! How far a transfer or a run is, on stderr: a bar on a terminal, else a line for every tenth.

use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};

pub struct Progress {
    bar: Option<ProgressBar>,
    unit: &'static str,
    total: u64,
    done: u64,
    /// The tenth that was said last.
    tenth: u64,
}

impl Progress {
    /// Progress of a transfer of `total` bytes.
    pub fn new(total: u64) -> Self {
        let template = "{bar:40} {percent:>3}% {bytes}/{total_bytes} {binary_bytes_per_sec} {eta}";
        Self::with(total, "bytes", template)
    }

    /// Progress of a run of `total` measurements.
    pub fn of_measurements(total: u64) -> Self {
        Self::with(
            total,
            "measurements",
            "{bar:40} {percent:>3}% {pos}/{len} {eta}",
        )
    }

    fn with(total: u64, unit: &'static str, template: &str) -> Self {
        let bar = std::io::stderr().is_terminal().then(|| {
            let bar = ProgressBar::new(total);
            bar.set_style(ProgressStyle::with_template(template).expect("the template is right"));
            bar
        });
        Self {
            bar,
            unit,
            total,
            done: 0,
            tenth: 0,
        }
    }

    pub fn add(&mut self, more: u64) {
        self.done += more;
        if let Some(bar) = &self.bar {
            bar.inc(more);
        } else if let Some(percent) = self.next_line() {
            let (done, total, unit) = (self.done, self.total, self.unit);
            eprintln!("{percent:3}% {done} of {total} {unit}");
        }
    }

    /// The percentage to print, when another tenth is complete.
    fn next_line(&mut self) -> Option<u64> {
        let percent = (u128::from(self.done) * 100 / u128::from(self.total.max(1))) as u64;
        let tenth = percent / 10;
        (tenth > self.tenth).then(|| {
            self.tenth = tenth;
            percent
        })
    }

    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_tenth() {
        let mut progress = Progress {
            bar: None,
            unit: "bytes",
            total: 1000,
            done: 0,
            tenth: 0,
        };
        let mut lines = Vec::new();
        for _ in 0..20 {
            progress.done += 50;
            lines.extend(progress.next_line());
        }
        assert_eq!(lines, [10, 20, 30, 40, 50, 60, 70, 80, 90, 100]);
    }
}
