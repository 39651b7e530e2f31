// SPDX-License-Identifier: GPL-2.0
//! Programs as text. One call a line:
//!
//! ```text
//! # comment
//! user nobody
//! r0, r1 = pair(A, B, 0)
//! async sendto(r0, buf+0x10, 4097, MSG_DONTWAIT|MSG_NOSIGNAL, null, 0)
//! bind(r1, edge{AF_INET, 7000, ADDR_B}, 16)
//! writev(r1, [{buf+0, 1}, {end-5, 6}], 2)
//! ```
//!
//! An argument is a number (with names), a variable, an address (`null`, `bad`, `kern`, `buf+N`,
//! `ro+N`, `end-N`, `rN+N`), a structure `{..}` or an array `[..]`. Before a structure or array may
//! be where it lies: `odd`, `edge` or `cut`. In a file with several programs a line `---` is
//! between two.

use std::fmt::{self, Write};

use crate::calls;
use crate::consts;
use crate::desc::{is_written, Field, Kind, Set};
use crate::prog::{Base, Call, Place, Program, Value, MAX_CALLS, VARS};

impl fmt::Display for Program {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.nobody {
            writeln!(f, "user nobody")?;
        }
        self.calls.iter().try_for_each(|call| writeln!(f, "{call}"))
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.alone {
            f.write_str("async ")?;
        }
        for (i, out) in self.outs.iter().enumerate() {
            let end = if i + 1 == self.outs.len() {
                " = "
            } else {
                ", "
            };
            write!(f, "r{out}{end}")?;
        }
        write!(f, "{}(", self.desc.name)?;
        let kinds = self.desc.args.iter().filter(|k| is_written(k));
        for (i, (kind, value)) in kinds.zip(&self.args).enumerate() {
            f.write_str(if i == 0 { "" } else { ", " })?;
            put(f, kind, value)?;
        }
        f.write_char(')')
    }
}

fn put(f: &mut fmt::Formatter<'_>, kind: &Kind, value: &Value) -> fmt::Result {
    match value {
        Value::Int(n) => put_number(f, kind, *n),
        Value::Var(v) => write!(f, "r{v}"),
        Value::Mem(base, off) => match base {
            Base::Null => f.write_str("null"),
            Base::Bad => f.write_str("bad"),
            Base::Kern => f.write_str("kern"),
            Base::Buf => write!(f, "buf+{off:#x}"),
            Base::Ro => write!(f, "ro+{off:#x}"),
            Base::End => write!(f, "end-{off:#x}"),
            Base::Var(v) => write!(f, "r{v}+{off:#x}"),
        },
        Value::Seq(place, values) => {
            f.write_str(match place {
                Place::Aligned => "",
                Place::Odd => "odd",
                Place::Edge => "edge",
                Place::Cut => "cut",
            })?;
            let (open, close) = match kind {
                Kind::Array(_) => ('[', ']'),
                _ => ('{', '}'),
            };
            f.write_char(open)?;
            for (i, value) in values.iter().enumerate() {
                f.write_str(if i == 0 { "" } else { ", " })?;
                match element(kind, i) {
                    Some(kind) => put(f, &kind, value)?,
                    None => return Err(fmt::Error),
                }
            }
            f.write_char(close)
        }
    }
}

/// The kind of element `i` of a structure or array.
pub fn element(kind: &Kind, i: usize) -> Option<Kind> {
    match kind {
        Kind::Struct(fields) => written(fields).nth(i).map(|f| f.kind),
        Kind::Array(fields) => Some(Kind::Struct(fields)),
        _ => None,
    }
}

/// The fields that programs write down.
pub fn written(fields: &'static [Field]) -> impl Iterator<Item = &'static Field> {
    fields.iter().filter(|f| is_written(&f.kind))
}

fn put_number(f: &mut fmt::Formatter<'_>, kind: &Kind, n: u64) -> fmt::Result {
    let names: Set = match kind {
        Kind::One(set) => set,
        Kind::Flags(set) if n != 0 => return put_flags(f, set, n),
        Kind::Ns => consts::NAMESPACES,
        _ => &[],
    };
    match names.iter().find(|(_, v)| *v == n) {
        Some((name, _)) => f.write_str(name),
        None => put_plain(f, n),
    }
}

fn put_flags(f: &mut fmt::Formatter<'_>, set: Set, n: u64) -> fmt::Result {
    let (mut left, mut between) = (n, "");
    for (name, bits) in set {
        if left & bits == *bits && *bits != 0 {
            write!(f, "{between}{name}")?;
            (left, between) = (left & !bits, "|");
        }
    }
    if left != 0 {
        f.write_str(between)?;
        put_plain(f, left)?;
    }
    Ok(())
}

fn put_plain(f: &mut fmt::Formatter<'_>, n: u64) -> fmt::Result {
    match n as i64 {
        -4096..=99_999 => write!(f, "{}", n as i64),
        _ => write!(f, "{n:#x}"),
    }
}

/// Reads the programs of a file.
pub fn parse_all(text: &str) -> Result<Vec<Program>, String> {
    let mut all = Vec::new();
    for part in text.split("\n---") {
        let program = parse(part)?;
        if !program.calls.is_empty() {
            all.push(program);
        }
    }
    Ok(all)
}

/// Reads a program.
pub fn parse(text: &str) -> Result<Program, String> {
    let mut program = Program::default();
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') || line.starts_with("---") {
            continue;
        }
        if line == "user nobody" {
            program.nobody = true;
            continue;
        }
        let call = Reader(line).call();
        let call = call.map_err(|e| format!("line {}: {e}: {line}", number + 1))?;
        program.calls.push(call);
        if program.calls.len() > MAX_CALLS {
            return Err(format!("more than {MAX_CALLS} calls"));
        }
    }
    Ok(program)
}

/// The rest of a line.
struct Reader<'a>(&'a str);

type Parsed<T> = Result<T, String>;

impl<'a> Reader<'a> {
    fn eat(&mut self, token: &str) -> bool {
        let rest = self.0.trim_start();
        match rest.strip_prefix(token) {
            Some(rest) => {
                self.0 = rest;
                true
            }
            None => false,
        }
    }

    fn need(&mut self, token: &str) -> Parsed<()> {
        if self.eat(token) {
            return Ok(());
        }
        Err(format!("'{token}' is missing before '{}'", self.0))
    }

    /// The letters, digits and underscores that come next.
    fn word(&mut self) -> &'a str {
        let rest = self.0.trim_start();
        let end = rest.find(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let (word, rest) = rest.split_at(end.unwrap_or(rest.len()));
        self.0 = rest;
        word
    }

    fn call(&mut self) -> Parsed<Call> {
        let mut outs = Vec::new();
        let mut name = self.word();
        let alone = name == "async";
        if alone {
            name = self.word();
        }
        while let Some(var) = var(name) {
            outs.push(var);
            if !self.eat(",") {
                self.need("=")?;
            }
            name = self.word();
        }
        let desc = calls::find(name).ok_or_else(|| format!("no call {name}"))?;
        if outs.len() != desc.outs.count() {
            return Err(format!("{name} fills {} variables", desc.outs.count()));
        }
        self.need("(")?;
        let mut args = Vec::new();
        for kind in desc.args.iter().filter(|k| is_written(k)) {
            if !args.is_empty() {
                self.need(",")?;
            }
            args.push(self.value(kind)?);
        }
        self.need(")")?;
        if !self.0.trim().is_empty() {
            return Err(format!("'{}' is too much", self.0));
        }
        Ok(Call {
            desc,
            alone,
            outs,
            args,
        })
    }

    fn value(&mut self, kind: &Kind) -> Parsed<Value> {
        match self.0.trim_start().chars().next() {
            Some('{' | '[') => return self.seq(Place::Aligned, kind),
            Some('-') => return self.number().map(Value::Int),
            _ => {}
        }
        let before = self.0;
        let place = match self.word() {
            "null" => return Ok(Value::Mem(Base::Null, 0)),
            "bad" => return Ok(Value::Mem(Base::Bad, 0)),
            "kern" => return Ok(Value::Mem(Base::Kern, 0)),
            "buf" => return self.offset(Base::Buf, "+"),
            "ro" => return self.offset(Base::Ro, "+"),
            "end" => return self.offset(Base::End, "-"),
            "odd" => Place::Odd,
            "edge" => Place::Edge,
            "cut" => Place::Cut,
            word => match var(word) {
                Some(v) if self.0.trim_start().starts_with('+') => {
                    return self.offset(Base::Var(v), "+")
                }
                Some(v) => return Ok(Value::Var(v)),
                None => {
                    self.0 = before;
                    return self.number().map(Value::Int);
                }
            },
        };
        self.seq(place, kind)
    }

    fn offset(&mut self, base: Base, sign: &str) -> Parsed<Value> {
        self.need(sign)?;
        let off = u32::try_from(self.number()?).map_err(|e| e.to_string())?;
        Ok(Value::Mem(base, off))
    }

    fn seq(&mut self, place: Place, kind: &Kind) -> Parsed<Value> {
        let (open, close, wanted) = match kind {
            Kind::Struct(fields) => ("{", "}", Some(written(fields).count())),
            Kind::Array(_) => ("[", "]", None),
            _ => return Err("there is no structure here".into()),
        };
        self.need(open)?;
        let mut values = Vec::new();
        while !self.eat(close) {
            if !values.is_empty() {
                self.need(",")?;
            }
            let kind = element(kind, values.len()).ok_or("too many fields")?;
            values.push(self.value(&kind)?);
        }
        if wanted.is_some_and(|n| n != values.len()) {
            return Err(format!("{} fields, not {wanted:?}", values.len()));
        }
        Ok(Value::Seq(place, values))
    }

    /// Numbers and names of numbers, with `|` between them.
    fn number(&mut self) -> Parsed<u64> {
        let mut n = 0;
        loop {
            let minus = self.eat("-");
            let word = self.word();
            let one = match word.strip_prefix("0x") {
                Some(hex) => u64::from_str_radix(hex, 16).ok(),
                None if word.starts_with(|c: char| c.is_ascii_digit()) => word.parse().ok(),
                None => consts::number(word),
            };
            let one = one.ok_or_else(|| format!("'{word}' is no number"))?;
            n |= if minus { one.wrapping_neg() } else { one };
            if !self.eat("|") {
                return Ok(n);
            }
        }
    }
}

/// "r5" is variable 5.
fn var(word: &str) -> Option<u8> {
    let digits = word.strip_prefix('r')?;
    let n: u8 = digits.parse().ok()?;
    (usize::from(n) < VARS && n.to_string() == digits).then_some(n)
}
