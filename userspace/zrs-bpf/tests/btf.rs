// SPDX-License-Identifier: GPL-2.0
//! A function's number, and the place of a member, in made-up type information.
// rows: B15

use zrs_bpf::btf::{function, member, Error};

/// Type information that is being written.
#[derive(Default)]
struct Btf {
    types: Vec<u8>,
    strings: Vec<u8>,
}

impl Btf {
    fn new() -> Self {
        Self {
            strings: vec![0],
            ..Self::default()
        }
    }

    /// A type of `kind` with `n` members, and `more` bytes behind it.
    fn add(&mut self, name: &str, kind: u32, n: u32, more: usize) {
        let offset = if name.is_empty() {
            0
        } else {
            self.strings.len() as u32
        };
        if !name.is_empty() {
            self.strings.extend(name.as_bytes());
            self.strings.push(0);
        }
        for word in [offset, (kind << 24) | n, 4] {
            self.types.extend(word.to_le_bytes());
        }
        self.types.extend(vec![0xee; more]);
    }

    /// A structure or union with members: their names, types and places in bits.
    fn add_whole(&mut self, name: &str, kind: u32, members: &[(&str, u32, u32)]) {
        let mut words = Vec::new();
        for (name, of, bits) in members {
            words.push(if name.is_empty() {
                0
            } else {
                self.strings.len() as u32
            });
            if !name.is_empty() {
                self.strings.extend(name.as_bytes());
                self.strings.push(0);
            }
            words.extend([*of, *bits]);
        }
        self.add(name, kind, members.len() as u32, 0);
        for word in words {
            self.types.extend(word.to_le_bytes());
        }
    }

    fn whole(&self) -> Vec<u8> {
        let mut all = vec![0x9f, 0xeb, 1, 0];
        let (types, strings) = (self.types.len() as u32, self.strings.len() as u32);
        for word in [24, 0, types, types, strings] {
            all.extend(word.to_le_bytes());
        }
        all.extend(&self.types);
        all.extend(&self.strings);
        all
    }
}

/// One type of each kind, and then some functions.
fn kinds() -> Btf {
    let mut btf = Btf::new();
    btf.add("int", 1, 0, 4);
    btf.add("", 2, 0, 0);
    btf.add("", 3, 0, 12);
    btf.add("sock", 4, 3, 36);
    btf.add("", 5, 2, 24);
    btf.add("states", 6, 5, 40);
    for kind in 7..=11 {
        btf.add("", kind, 0, 0);
    }
    btf.add("", 13, 3, 24);
    btf.add("var", 14, 0, 4);
    btf.add(".data", 15, 2, 24);
    btf.add("float", 16, 0, 0);
    btf.add("tag", 17, 0, 4);
    btf.add("tag", 18, 0, 0);
    btf.add("long", 19, 1, 12);
    btf
}

#[test]
fn the_number_of_a_function() {
    let mut btf = kinds();
    btf.add("update_socket_protocol_x", 12, 0, 0);
    // A structure of the same name.
    btf.add("update_socket_protocol", 4, 0, 0);
    btf.add("update_socket_protocol", 12, 1, 0);
    let all = btf.whole();
    assert_eq!(function(&all, "update_socket_protocol"), Ok(21));
    assert_eq!(function(&all, "update_socket_protocol_x"), Ok(19));
    assert_eq!(function(&all, "update_socket"), Err(Error::NotThere));
    assert_eq!(function(&all, "sock"), Err(Error::NotThere));
}

#[test]
fn what_is_not_type_information() {
    for bytes in [
        &[][..],
        &[0x9f],
        b"\x7fELF and more than a header of it",
        &[0x9f, 0xeb, 1, 0],
    ] {
        assert_eq!(function(bytes, "f"), Err(Error::Malformed), "{bytes:?}");
    }
    let mut btf = kinds();
    btf.add("f", 12, 0, 0);
    let all = btf.whole();
    for len in 0..all.len() {
        let found = function(&all[..len], "f");
        assert_eq!(found, Err(Error::Malformed), "{len} bytes");
    }
    let mut btf = kinds();
    btf.add("later", 99, 0, 0);
    btf.add("f", 12, 0, 0);
    assert_eq!(function(&btf.whole(), "f"), Err(Error::UnknownKind(99)));
}

#[test]
fn the_place_of_a_member() {
    let mut btf = kinds();
    let first = 19;
    btf.add_whole("", 5, &[("a", 1, 0), ("deep", 1, 64)]);
    btf.add_whole("named", 4, &[("hidden", 1, 8)]);
    let members = [
        ("flags", 1, 0),
        ("", first, 128),
        ("of", first + 1, 512),
        ("flag", 1, 1024),
        ("odd", 1, 1027),
    ];
    btf.add_whole("task", 4, &members);
    // With the widths of bitfields, and to itself.
    btf.add_whole(
        "bits",
        4 | 0x80,
        &[("one", 1, (3 << 24) | 800), ("", first + 3, 0)],
    );
    let all = btf.whole();
    let of_task = |name| member(&all, "task", name);
    assert_eq!(of_task("flags"), Ok(0));
    assert_eq!(of_task("deep"), Ok(24));
    assert_eq!(of_task("flag"), Ok(128));
    for name in ["hidden", "none", "odd", "fla"] {
        assert_eq!(of_task(name), Err(Error::NotThere), "{name}");
    }
    assert_eq!(member(&all, "bits", "one"), Ok(100));
    assert_eq!(member(&all, "bits", "two"), Err(Error::NotThere));
    assert_eq!(member(&all, "tas", "flags"), Err(Error::NotThere));
    for len in 0..all.len() {
        assert!(member(&all[..len], "task", "flags").is_err(), "{len} bytes");
    }
}
