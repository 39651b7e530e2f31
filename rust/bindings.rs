// SPDX-License-Identifier: GPL-2.0

//! The raw C API: the output of our own bindgen pass, and the kernel crate's bindings.
//!
//! Only `rust/ib` and `rust/kern` may use this module. The pass covers the RDMA, socket and memory
//! headers (`rust/bindings/bindings.h`, `bindgen_parameters`). A type that the kernel crate has
//! completely comes from `kernel::bindings`, so that both mean the same type; one that is opaque
//! there (`struct sock` is) is generated here and shadows it. The generated code asserts the size,
//! alignment and offsets of each of its types against what libclang computed from the headers;
//! `kern/layout.rs` compares the important ones with the C compiler's layout.

#![cfg_attr(CONFIG_RUSTC_HAS_UNNECESSARY_TRANSMUTES, allow(unnecessary_transmutes))]
#![allow(
    clippy::all,
    clippy::as_underscore,
    clippy::cast_lossless,
    clippy::ptr_as_ptr,
    clippy::ref_as_ptr,
    clippy::undocumented_unsafe_blocks,
    dead_code,
    missing_docs,
    non_camel_case_types,
    non_upper_case_globals,
    non_snake_case,
    improper_ctypes,
    unreachable_pub,
    unused_imports,
    unsafe_op_in_unsafe_fn
)]

mod generated {
    pub use kernel::bindings::*;
    use kernel::ffi;
    use pin_init::MaybeZeroable;

    // The parameters block these, as the kernel crate's pass does.
    type __kernel_size_t = usize;
    type __kernel_ssize_t = isize;
    type __kernel_ptrdiff_t = isize;

    include!(env!("ZRS_BINDINGS"));
}

pub use generated::*;
