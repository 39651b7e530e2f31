// SPDX-License-Identifier: GPL-2.0

//! Unsigned module parameters that sysfs shows, read-only after load.
//!
//! The kernel crate's `module!` makes parameters that sysfs does not show.
//!
//! C header: [`include/linux/moduleparam.h`](srctree/include/linux/moduleparam.h)

use crate::bindings;
use kernel::sync::atomic::{Atomic, Relaxed};

/// A parameter's value: the default, or what was given at load time.
#[repr(transparent)]
pub(crate) struct Uint(Atomic<u32>);

impl Uint {
    /// A parameter with its default.
    pub(crate) const fn new(default: u32) -> Self {
        Self(Atomic::new(default))
    }

    /// The value. Any context.
    pub(crate) fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }

    #[doc(hidden)]
    pub(crate) const fn as_ptr(&self) -> *mut u32 {
        self.0.as_ptr()
    }
}

/// `struct kernel_param` as a static.
#[doc(hidden)]
#[repr(transparent)]
pub(crate) struct Entry(pub(crate) bindings::kernel_param);

// SAFETY: The C side serialises access to parameters, and Rust code only reads their values
// through the atomic in `Uint`.
unsafe impl Sync for Entry {}

/// Declares `static NAME: Uint`, a module parameter `name` with a default and a description.
macro_rules! uint_param {
    ($(#[doc = $doc:literal])* $static:ident, $name:literal, $default:expr, $desc:literal) => {
        $(#[doc = $doc])*
        pub(crate) static $static: $crate::kern::param::Uint =
            $crate::kern::param::Uint::new($default);

        const _: () = {
            const NAME: &::core::ffi::CStr =
                match ::core::ffi::CStr::from_bytes_with_nul(concat!($name, "\0").as_bytes()) {
                    Ok(name) => name,
                    Err(_) => panic!("no C string"),
                };

            #[link_section = "__param"]
            #[used(compiler)]
            static ENTRY: $crate::kern::param::Entry =
                $crate::kern::param::Entry($crate::bindings::kernel_param {
                    name: ::kernel::str::as_char_ptr_in_const_context(NAME),
                    // Only the address is taken.
                    mod_: ::core::ptr::addr_of_mut!(::kernel::bindings::__this_module),
                    ops: ::core::ptr::addr_of!($crate::bindings::param_ops_uint),
                    perm: 0o444,
                    level: -1,
                    flags: 0,
                    __bindgen_anon_1: $crate::bindings::kernel_param__bindgen_ty_1 {
                        // `param_ops_uint` writes an `unsigned int`, at load time only.
                        arg: $static.as_ptr().cast(),
                    },
                });

            #[link_section = ".modinfo"]
            #[used(compiler)]
            static TYPE: [u8; concat!("parmtype=", $name, ":uint\0").len()] =
                $crate::kern::param::bytes(concat!("parmtype=", $name, ":uint\0"));

            #[link_section = ".modinfo"]
            #[used(compiler)]
            static DESC: [u8; concat!("parm=", $name, ":", $desc, "\0").len()] =
                $crate::kern::param::bytes(concat!("parm=", $name, ":", $desc, "\0"));
        };
    };
}
pub(crate) use uint_param;

#[doc(hidden)]
pub(crate) const fn bytes<const N: usize>(s: &str) -> [u8; N] {
    match s.as_bytes().first_chunk::<N>() {
        Some(b) => *b,
        None => panic!("length mismatch"),
    }
}
