// SPDX-License-Identifier: GPL-2.0
//! Draws programs, calls and values from the description.

use crate::calls;
use crate::desc::{is_written, Class, Desc, Kind, Set};
use crate::prog::{Base, Call, Place, Program, Value, MAX_CALLS, VARS};
use crate::rng::Rng;
use crate::text::{element, written};

/// Boundary lengths: the small class, pages, the pin threshold, chunks, windows.
const LENGTHS: &[u64] = &[
    1,
    16,
    100,
    4095,
    4096,
    4097,
    8192,
    16383,
    16384,
    20000,
    65536,
    262_144,
    262_145,
    1_000_000,
    1 << 20,
    3 << 20,
    4 << 20,
];
const ODD_LENGTHS: &[u64] = &[
    0,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    0x7fff_ffff_ffff_ffff,
    u64::MAX,
    u64::MAX - 4095,
];
/// The lengths that a mapping or structure of the interface has.
const NUMBERS: &[u64] = &[
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    16,
    64,
    255,
    256,
    4095,
    4096,
    65535,
    65536,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    0x1_0000_0000,
    i64::MAX as u64,
    i64::MIN as u64,
    u64::MAX,
];

/// The contents of the variables before a call.
pub struct Held(Vec<(u8, Class)>);

impl Held {
    /// Before call `at` of `program`.
    pub fn before(program: &Program, at: usize) -> Self {
        let mut held = Vec::new();
        for call in program.calls.iter().take(at) {
            held.extend(call.outs.iter().map(|out| (*out, call.desc.outs.class())));
        }
        Self(held)
    }

    fn pick(&self, rng: &mut Rng, class: Class) -> Option<u8> {
        let fits: Vec<u8> = self
            .0
            .iter()
            .filter(|(_, c)| class.takes(*c))
            .map(|(v, _)| *v)
            .collect();
        if !fits.is_empty() && rng.chance(94) {
            return Some(*rng.pick(&fits));
        }
        // A socket where a connected one is wanted, and the like.
        let near =
            |c: Class| matches!(class, Class::Conn | Class::Listener) && Class::Sock.takes(c);
        let others: Vec<u8> = self
            .0
            .iter()
            .filter(|(_, c)| near(*c))
            .map(|(v, _)| *v)
            .collect();
        if !others.is_empty() && rng.chance(80) {
            return Some(*rng.pick(&others));
        }
        (!self.0.is_empty() && rng.chance(70)).then(|| rng.pick(&self.0).0)
    }
}

/// A new program.
pub fn program(rng: &mut Rng) -> Program {
    let mut program = Program {
        nobody: rng.chance(20),
        calls: Vec::new(),
    };
    // Most of the code is about connected sockets.
    if rng.chance(75) {
        insert(rng, &mut program, 0, "pair");
    }
    for _ in 0..1 + rng.below(10) {
        let at = program.calls.len();
        let name = any(rng).name;
        insert(rng, &mut program, at, name);
    }
    if rng.chance(25) {
        for call in &mut program.calls {
            call.alone = rng.chance(50);
        }
    }
    program
}

/// One of the calls, by their weights.
fn any(rng: &mut Rng) -> &'static Desc {
    let by_weight = || calls::all().flat_map(|desc| std::iter::repeat_n(desc, desc.weight));
    let n = rng.below(by_weight().count());
    by_weight().nth(n).expect("calls have weights")
}

/// Inserts a new call `name`, or any with the name "", before call `at`.
pub fn insert(rng: &mut Rng, program: &mut Program, at: usize, name: &str) {
    let desc = crate::calls::find(name).unwrap_or_else(|| any(rng));
    let first = program.free_var();
    if program.calls.len() >= MAX_CALLS || first + desc.outs.count() > VARS {
        return;
    }
    let call = call(rng, desc, first as u8, &Held::before(program, at));
    program.calls.insert(at, call);
}

fn call(rng: &mut Rng, desc: &'static Desc, first: u8, held: &Held) -> Call {
    let mut args: Vec<Value> = Vec::new();
    for kind in desc.args.iter().filter(|k| is_written(k)) {
        args.push(value(rng, kind, held, args.last()));
    }
    Call {
        desc,
        alone: rng.chance(4),
        outs: (0..desc.outs.count() as u8).map(|i| first + i).collect(),
        args,
    }
}

/// A value of a kind; `last` is the one before it.
pub fn value(rng: &mut Rng, kind: &Kind, held: &Held, last: Option<&Value>) -> Value {
    match kind {
        Kind::Ns => Value::Int(rng.below(2) as u64),
        Kind::Fd(class) => match held.pick(rng, *class) {
            Some(var) => Value::Var(var),
            None => Value::Int(*rng.pick(&[u64::MAX, 0, 1, 250, 100_000, 0x8000_0000])),
        },
        Kind::One(set) => Value::Int(one(rng, set)),
        Kind::Flags(set) => Value::Int(flags(rng, set)),
        Kind::Num(numbers) if rng.chance(93) => Value::Int(*rng.pick(numbers)),
        Kind::Num(_) => Value::Int(*rng.pick(NUMBERS)),
        Kind::Len => Value::Int(length(rng)),
        Kind::Fixed(n) => Value::Int(*n),
        Kind::Count => match last {
            Some(Value::Seq(_, values)) if rng.chance(93) => Value::Int(values.len() as u64),
            _ => Value::Int(*rng.pick(&[0, 1, 2, 4, 1024, 1025, 0x7fff_ffff, u64::MAX])),
        },
        Kind::Mem => memory(rng, held),
        Kind::Struct(_) | Kind::Array(_) if rng.chance(4) => memory(rng, held),
        Kind::Struct(fields) => {
            let mut values: Vec<Value> = Vec::new();
            for field in written(fields) {
                let v = value(rng, &field.kind, held, values.last());
                values.push(v);
            }
            Value::Seq(place(rng), values)
        }
        Kind::Array(_) => {
            let n = *rng.pick(&[1, 1, 2, 2, 3, 0]);
            let mut values = Vec::new();
            for i in 0..n {
                let inner = element(kind, i).unwrap_or(Kind::Fixed(0));
                values.push(value(rng, &inner, held, None));
            }
            Value::Seq(place(rng), values)
        }
    }
}

fn one(rng: &mut Rng, set: Set) -> u64 {
    match rng.below(100) {
        // An option's name says nothing at another level: numbers at the lower end do.
        0..3 => rng.next() & 0xff,
        3 => rng.next(),
        4..50 => set.first().map_or(0, |(_, v)| *v),
        _ => rng.pick(set).1,
    }
}

fn flags(rng: &mut Rng, set: Set) -> u64 {
    let mut n = 0;
    if rng.chance(50) {
        n |= set.first().map_or(0, |(_, v)| *v);
    }
    for _ in 0..*rng.pick(&[0, 0, 0, 1, 1, 2]) {
        n |= rng.pick(set).1;
    }
    if rng.chance(2) {
        n ^= 1 << rng.below(32);
    }
    n
}

pub fn length(rng: &mut Rng) -> u64 {
    match rng.below(100) {
        0..8 => *rng.pick(ODD_LENGTHS),
        8..15 => rng.next() % 300_000,
        _ => *rng.pick(LENGTHS),
    }
}

fn memory(rng: &mut Rng, held: &Held) -> Value {
    if rng.chance(30) {
        let maps: Vec<u8> = held
            .0
            .iter()
            .filter(|(_, c)| *c == Class::Map)
            .map(|(v, _)| *v)
            .collect();
        if !maps.is_empty() {
            let off = *rng.pick(&[0, 0, 0, 64, 136, 4096, 0xf_fff0]);
            return Value::Mem(Base::Var(*rng.pick(&maps)), off);
        }
    }
    match rng.below(100) {
        0..5 => Value::Mem(Base::Null, 0),
        5..9 => Value::Mem(Base::Bad, 0),
        9..11 => Value::Mem(Base::Kern, 0),
        11..17 => Value::Mem(Base::Ro, *rng.pick(&[0, 1, 4090])),
        17..24 => Value::Mem(Base::End, *rng.pick(&[1, 2, 55, 4096, 5000, 20000])),
        _ => Value::Mem(Base::Buf, *rng.pick(&[0, 0, 0, 1, 8, 4095, 100_000])),
    }
}

fn place(rng: &mut Rng) -> Place {
    match rng.below(100) {
        0..88 => Place::Aligned,
        88..92 => Place::Odd,
        92..96 => Place::Edge,
        _ => Place::Cut,
    }
}
