// SPDX-License-Identifier: GPL-2.0
//! The baseline of counts that repeat: `{KEY: {KIND: {VALUE: [least, most]}}}`. A key names a
//! kernel's series, its compiler and QEMU's version; the key "default" has what depends on none of
//! them. A bound of the own key goes before one of the default.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde_json::Value;

const DEFAULT: &str = "default";

pub struct Baseline<'a> {
    /// By kind and value.
    bounds: BTreeMap<(&'a str, &'a str), (f64, f64)>,
    /// The key, and whether there are bounds for it.
    key: &'a str,
    known: bool,
}

impl<'a> Baseline<'a> {
    /// The bounds for `key`.
    pub fn new(json: &'a Value, key: &'a str) -> Result<Self, String> {
        let mut bounds = BTreeMap::new();
        for part in [DEFAULT, key] {
            let Some(part) = json.get(part) else { continue };
            for (kind, values) in part.as_object().ok_or("a key has kinds")? {
                let values = values.as_object();
                for (value, bound) in values.ok_or_else(|| format!("{kind}: bounds are missing"))? {
                    let (Some(least), Some(most)) = (bound[0].as_f64(), bound[1].as_f64()) else {
                        return Err(format!("{kind} {value}: a bound is [least, most]"));
                    };
                    bounds.insert((kind.as_str(), value.as_str()), (least, most));
                }
            }
        }
        match bounds.is_empty() {
            true => Err(format!("the baseline has neither {key} nor {DEFAULT}")),
            false => Ok(Self {
                bounds,
                key,
                known: json.get(key).is_some(),
            }),
        }
    }

    /// A comment that says which bounds are used.
    pub fn about(&self) -> String {
        let key = self.key;
        match self.known {
            true => format!("# bounds of {key}\n"),
            false => format!("# the baseline has no bounds of {key}: those that are the same everywhere are used\n"),
        }
    }

    /// Ends the lines of a comparison: with a result also where no value has a bound.
    pub fn end(&self, text: &mut String) {
        if !text.contains("ok - ") {
            let key = self.key;
            let _ = writeln!(
                text,
                "ok - counts of {key} # SKIP the baseline has no bounds of them"
            );
        }
    }

    /// The values that have bounds, of the kinds that are `of` it.
    pub fn values(&self, of: impl Fn(&str) -> bool) -> Vec<(&'a str, &'a str)> {
        let all = self.bounds.keys().copied();
        all.filter(|(kind, _)| of(kind)).collect()
    }

    /// Writes a line for a value, and whether all that was seen of it is within its bound. Without
    /// a bound it is a comment.
    pub fn judge(&self, kind: &str, value: &str, seen: &[f64], text: &mut String) -> bool {
        // As many digits as mean something.
        let shown: Vec<f64> = seen.iter().map(|v| (v * 1e5).round() / 1e5).collect();
        let Some(&(least, most)) = self.bounds.get(&(kind, value)) else {
            let _ = writeln!(text, "# {kind}: {value}: saw {shown:?}");
            return true;
        };
        let fine = !seen.is_empty() && seen.iter().all(|v| (least..=most).contains(v));
        let _ = match fine {
            true => writeln!(
                text,
                "# {kind}: {value}: saw {shown:?}, expected {least} to {most}\nok - {kind}: {value}"
            ),
            false => writeln!(
                text,
                "not ok - {kind}: {value}: saw {shown:?}, expected {least} to {most}"
            ),
        };
        fine
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_own_key_goes_before_the_default() {
        let json = json!({
            "default": { "a": { "x": [1, 1], "y": [0, 9] } },
            "7.2": { "a": { "y": [2, 3] }, "b": { "z": [0, 1] } },
        });
        let (mut text, own) = (String::new(), Baseline::new(&json, "7.2").unwrap());
        assert!(own.judge("a", "x", &[1.0], &mut text));
        assert!(!own.judge("a", "y", &[2.5, 4.0], &mut text));
        assert!(!own.judge("b", "z", &[], &mut text));
        assert_eq!(own.values(|kind| kind == "b"), [("b", "z")]);
        assert!(
            text.contains("not ok - a: y: saw [2.5, 4.0], expected 2 to 3\n"),
            "{text}"
        );
        let unknown = Baseline::new(&json, "7.4").unwrap();
        assert!(unknown.about().contains("no bounds of 7.4") && !own.about().contains("no bounds"));
        let mut nothing = String::new();
        assert!(unknown.judge("b", "z", &[99.0], &mut nothing));
        unknown.end(&mut nothing);
        assert!(nothing.contains("\nok - counts of 7.4 # SKIP"), "{nothing}");
        assert!(unknown.judge("a", "y", &[4.0], &mut text));
        assert!(
            unknown.judge("b", "z", &[99.0], &mut text) && text.ends_with("# b: z: saw [99.0]\n")
        );
    }

    #[test]
    fn what_is_no_baseline() {
        for bad in [
            json!({}),
            json!({ "k": { "a": { "x": 1 } } }),
            json!({ "k": { "a": 1 } }),
            json!({ "k": 1 }),
        ] {
            assert!(Baseline::new(&bad, "k").is_err(), "{bad}");
        }
    }
}
