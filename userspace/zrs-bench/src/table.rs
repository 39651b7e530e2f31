// SPDX-License-Identifier: GPL-2.0
//! Tables of text, and numbers as people read them.

use std::fmt::Write as _;

/// Columns as wide as their widest cell; the first is aligned to the left, the others to the right.
#[derive(Debug, Default)]
pub struct Table(Vec<Vec<String>>);

impl Table {
    /// With this header.
    pub fn new<S: Into<String>>(header: impl IntoIterator<Item = S>) -> Self {
        Self(vec![header.into_iter().map(Into::into).collect()])
    }

    /// One more row.
    pub fn row<S: Into<String>>(&mut self, row: impl IntoIterator<Item = S>) {
        self.0.push(row.into_iter().map(Into::into).collect());
    }

    fn widths(&self) -> Vec<usize> {
        let columns = self.0.iter().map(Vec::len).max().unwrap_or(0);
        let width = |c: usize| {
            self.0
                .iter()
                .filter_map(|r| r.get(c))
                .map(String::len)
                .max()
        };
        (0..columns).map(|c| width(c).unwrap_or(0)).collect()
    }

    fn line(row: &[String], widths: &[usize]) -> String {
        let mut line = String::new();
        for (column, &width) in widths.iter().enumerate() {
            let cell = row.get(column).map_or("", String::as_str);
            let _ = match column {
                0 => write!(line, "{cell:<width$}"),
                _ => write!(line, "  {cell:>width$}"),
            };
        }
        line.trim_end().to_string()
    }

    /// For a terminal.
    pub fn text(&self) -> String {
        let widths = self.widths();
        let lines = self.0.iter().map(|row| Self::line(row, &widths) + "\n");
        lines.collect()
    }

    /// For reStructuredText: a simple table. An empty first cell would join two rows: it is `-`.
    pub fn rst(&self) -> String {
        let filled: Vec<Vec<String>> = self
            .0
            .iter()
            .map(|row| {
                let mut row = row.clone();
                match row.first_mut() {
                    Some(first) if first.is_empty() => *first = "\\-".into(),
                    _ => {}
                }
                row
            })
            .collect();
        let filled = Self(filled);
        let widths = filled.widths();
        let bars: Vec<String> = widths.iter().map(|&w| "=".repeat(w.max(1))).collect();
        let bar = bars.join("  ") + "\n";
        let mut text = bar.clone();
        for (n, row) in filled.0.iter().enumerate() {
            text += &(Self::line(row, &widths) + "\n");
            if n == 0 {
                text += &bar;
            }
        }
        text + &bar
    }
}

/// Three digits that matter, without an exponent.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if !v.is_finite() => return "-".into(),
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        _ => 3,
    };
    format!("{value:.digits$}")
}

/// Bytes as 64, 16 Ki, 1 Mi.
pub fn size(bytes: u64) -> String {
    match bytes {
        b if b >= 1 << 20 && b % (1 << 20) == 0 => format!("{} Mi", b >> 20),
        b if b >= 1 << 10 && b % (1 << 10) == 0 => format!("{} Ki", b >> 10),
        b => b.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_line_up() {
        let mut table = Table::new(["size", "a"]);
        table.row(["64", "1.0"]);
        table.row(["", "10.0"]);
        assert_eq!(table.text(), "size     a\n64     1.0\n      10.0\n");
        assert_eq!(
            table.rst(),
            "====  ====\nsize     a\n====  ====\n64     1.0\n\\-    10.0\n====  ====\n"
        );
    }

    #[test]
    fn numbers_and_sizes() {
        assert_eq!(number(1234.56), "1235");
        assert_eq!(number(12.345), "12.3");
        assert_eq!(number(1.2345), "1.23");
        assert_eq!(number(0.12345), "0.123");
        assert_eq!(number(0.0), "0");
        assert_eq!(number(f64::NAN), "-");
        assert_eq!(size(64), "64");
        assert_eq!(size(16384), "16 Ki");
        assert_eq!(size(1 << 20), "1 Mi");
        assert_eq!(size(1000), "1000");
    }
}
