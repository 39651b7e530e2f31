// SPDX-License-Identifier: GPL-2.0
//! Changes programs.

use crate::desc::{Kind, Outs};
use crate::gen::{self, Held};
use crate::prog::{Base, Call, Place, Program, Value, MAX_CALLS, VARS};
use crate::rng::Rng;
use crate::text::element;

/// A changed `program`; `corpus` is where parts of others come from.
pub fn mutate(rng: &mut Rng, program: &Program, corpus: &[Program]) -> Program {
    let mut new = program.clone();
    loop {
        let at = rng.below(new.calls.len());
        match rng.below(100) {
            0..10 if !corpus.is_empty() => {
                let other = rng.pick(corpus).clone();
                splice(rng, &mut new, &other);
            }
            10..38 => gen::insert(rng, &mut new, at + 1, ""),
            38..50 if new.calls.len() > 1 => drop(new.calls.remove(at)),
            50..54 if new.calls.len() > 1 => {
                let other = rng.below(new.calls.len());
                new.calls.swap(at, other);
            }
            54..58 => repeat(&mut new, at),
            58..64 => {
                if let Some(call) = new.calls.get_mut(at) {
                    call.alone = !call.alone;
                }
            }
            64..66 => new.nobody = !new.nobody,
            _ => change_call(rng, &mut new, at),
        }
        if rng.chance(50) && !new.calls.is_empty() {
            return new;
        }
    }
}

/// Puts the beginning of `other` before, or its whole behind, the calls of `program`. Each keeps
/// its own variables.
fn splice(rng: &mut Rng, program: &mut Program, other: &Program) {
    let first = program.free_var();
    if first + other.free_var() > VARS || program.calls.len() + other.calls.len() > MAX_CALLS {
        return;
    }
    let mut calls = other.calls.clone();
    for call in &mut calls {
        shift(call, first as u8);
    }
    let at = if rng.chance(50) {
        program.calls.len()
    } else {
        rng.below(program.calls.len() + 1)
    };
    program.calls.splice(at..at, calls);
}

/// Adds `by` to each variable of a call.
fn shift(call: &mut Call, by: u8) {
    fn in_value(value: &mut Value, by: u8) {
        match value {
            Value::Var(v) | Value::Mem(Base::Var(v), _) => *v = (*v + by) % VARS as u8,
            Value::Seq(_, values) => values.iter_mut().for_each(|v| in_value(v, by)),
            _ => {}
        }
    }
    call.outs.iter_mut().for_each(|out| *out += by);
    call.args.iter_mut().for_each(|value| in_value(value, by));
}

/// Makes a call twice.
fn repeat(program: &mut Program, at: usize) {
    let first = program.free_var();
    let Some(mut call) = program.calls.get(at).cloned() else {
        return;
    };
    if program.calls.len() >= MAX_CALLS || first + call.outs.len() > VARS {
        return;
    }
    for (i, out) in call.outs.iter_mut().enumerate() {
        *out = (first + i) as u8;
    }
    program.calls.insert(at + 1, call);
}

fn change_call(rng: &mut Rng, program: &mut Program, at: usize) {
    let held = Held::before(program, at);
    let Some(call) = program.calls.get_mut(at) else {
        return;
    };
    let which = rng.below(call.args.len());
    let last = which.checked_sub(1).and_then(|i| call.args.get(i)).cloned();
    if let Some((kind, value)) = call.args_mut().nth(which) {
        change(rng, kind, value, &held, last.as_ref());
    }
    // Sometimes what it makes goes where another one is.
    if rng.chance(2) && matches!(call.desc.outs, Outs::One(_)) {
        call.outs[0] = (rng.below(8)) as u8;
    }
}

/// Changes a value, or something in it.
fn change(rng: &mut Rng, kind: &Kind, value: &mut Value, held: &Held, last: Option<&Value>) {
    match value {
        Value::Int(n) if rng.chance(40) => {
            *n = match rng.below(6) {
                0 => n.wrapping_add(1),
                1 => n.wrapping_sub(1),
                2 => *n ^ (1 << rng.below(64)),
                3 => n.wrapping_neg(),
                4 => n.wrapping_mul(2),
                _ => gen::length(rng),
            };
        }
        Value::Mem(Base::Buf | Base::End | Base::Var(_), off) if rng.chance(30) => {
            *off = rng.below(1 << 21) as u32;
        }
        Value::Seq(place, values) if rng.chance(85) => {
            if rng.chance(10) {
                *place = *rng.pick(&[Place::Aligned, Place::Odd, Place::Edge, Place::Cut]);
                return;
            }
            if matches!(kind, Kind::Array(_)) && rng.chance(25) {
                if values.len() > 1 && rng.chance(50) {
                    values.pop();
                } else if let Some(first) = values.first().cloned().filter(|_| values.len() < 8) {
                    values.push(first);
                }
                return;
            }
            let i = rng.below(values.len());
            let last = i.checked_sub(1).and_then(|i| values.get(i)).cloned();
            if let (Some(kind), Some(value)) = (element(kind, i), values.get_mut(i)) {
                change(rng, &kind, value, held, last.as_ref());
            }
        }
        _ => *value = gen::value(rng, kind, held, last),
    }
}
