// SPDX-License-Identifier: GPL-2.0
//! Programs as text, drawing and changing them.

use proptest::prelude::*;

use crate::gen;
use crate::mutate::mutate;
use crate::prog::{Program, MAX_CALLS, VARS};
use crate::rng::Rng;
use crate::text::{parse, parse_all};

fn round_trip(program: &Program) {
    let text = program.to_string();
    let again = parse(&text).unwrap_or_else(|e| panic!("{e} in\n{text}"));
    assert!(*program == again, "{text}\nis read as\n{again}");
}

fn is_sound(program: &Program) {
    assert!(!program.calls.is_empty() && program.calls.len() <= MAX_CALLS);
    assert!(program.free_var() <= VARS);
}

proptest! {
    #[test]
    fn what_is_drawn_is_read_back(seed: u64) {
        let program = gen::program(&mut Rng::new(seed));
        is_sound(&program);
        round_trip(&program);
    }

    #[test]
    fn what_is_changed_is_read_back(seed: u64) {
        let rng = &mut Rng::new(seed);
        let corpus: Vec<Program> = (0..3).map(|_| gen::program(rng)).collect();
        let mut program = corpus[0].clone();
        for _ in 0..20 {
            program = mutate(rng, &program, &corpus);
            is_sound(&program);
            round_trip(&program);
        }
    }

    #[test]
    fn a_seed_gives_the_same_programs(seed: u64) {
        let draw = || gen::program(&mut Rng::new(seed));
        prop_assert!(draw() == draw());
    }

    #[test]
    fn reading_never_panics(text in "[ -~\n]{0,200}") {
        let _ = parse_all(&text);
    }

    #[test]
    fn reading_a_broken_line_never_panics(seed: u64, at: usize, put in "[ -~]{0,3}") {
        let mut text = gen::program(&mut Rng::new(seed)).to_string();
        let at = at % (text.len() + 1);
        text.insert_str(at, &put);
        let _ = parse_all(&text);
    }
}

#[test]
fn every_call_is_drawn() {
    let rng = &mut Rng::new(1);
    let mut missing: Vec<&str> = crate::calls::all().map(|d| d.name).collect();
    for _ in 0..5000 {
        for call in gen::program(rng).calls {
            missing.retain(|name| *name != call.desc.name);
        }
    }
    assert!(missing.is_empty(), "{missing:?}");
}

#[test]
fn a_program_is_read() {
    let text = "# comment\nuser nobody\n\nr0, r1 = pair(A, B, SOCK_NONBLOCK)\n\
                async sendto(r0, buf+0x10, 4097, MSG_DONTWAIT|MSG_PEEK|0x4000000, null, -1)\n\
                bind(r1, edge{AF_INET, 7000, ADDR_B}, 16)\n\
                writev(7, [{end-0x5, 1}, odd{r3+0x40, 0x100000}], 2)\n";
    let program = parse(text).unwrap();
    assert!(program.nobody && program.calls[1].alone);
    assert_eq!(program.calls.len(), 4);
    round_trip(&program);
    let printed = program.to_string();
    for part in [
        "edge{AF_INET, 7000, ADDR_B}, 16)",
        "MSG_DONTWAIT|MSG_PEEK|MSG_ZEROCOPY, null, -1)",
    ] {
        assert!(printed.contains(part), "{printed}");
    }
}

#[test]
fn several_programs_are_read() {
    let text = "close(1)\n---\n# nothing\n---\nuser nobody\nclose(2)\n";
    let all = parse_all(text).unwrap();
    assert_eq!(
        all.iter().map(|p| p.nobody).collect::<Vec<_>>(),
        [false, true]
    );
}

#[test]
fn what_is_wrong_is_refused() {
    for text in [
        "nothing()",
        "close(1",
        "close(1) 2",
        "close()",
        "close(1, 2)",
        "close(rubbish)",
        "close({1})",
        "r1 = close(1)",
        "dup(1)",
        "r64 = dup(1)",
        "r0, r1 = dup(1)",
        "bind(1, {AF_INET, 7000}, 16)",
        "bind(1, {AF_INET, 7000, ADDR_B, 0}, 16)",
        "read(1, buf, 5)",
        "read(1, buf+0x100000000, 5)",
        "close(0x10000000000000000)",
    ] {
        assert!(parse(text).is_err(), "{text}");
    }
    assert!(parse(&"close(1)\n".repeat(MAX_CALLS + 1)).is_err());
}
