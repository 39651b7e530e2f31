// SPDX-License-Identifier: GPL-2.0

//! The raw C API: the output of our own bindgen pass, and the kernel crate's bindings.
//!
//! Only `rust/ib` and `rust/kern` may use this module. The pass covers the RDMA, socket and memory
//! headers (`rust/bindings/bindings.h`, `bindgen_parameters`). A type that the kernel crate has
//! completely comes from `kernel::bindings`, so that both mean the same type; one that is opaque
//! there (`struct sock` is) is generated here and shadows it. The generated code asserts the size,
//! alignment and offsets of each of its types against what libclang computed from the headers;
//! [`check_layout`] compares the important ones with the C compiler's layout.

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

use kernel::ffi;

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

/// The sizes and offsets that [`check_layout`] compares, in the order of `rust/helpers/layout.c`.
macro_rules! layout {
    ($($ty:ident $(. $field:ident)?),* $(,)?) => {
        [$(layout!(@one $ty $(. $field)?)),*]
    };
    (@one $ty:ident) => {
        (stringify!($ty), core::mem::size_of::<generated::$ty>())
    };
    (@one $ty:ident . $field:ident) => {
        (
            concat!(stringify!($ty), ".", stringify!($field)),
            core::mem::offset_of!(generated::$ty, $field),
        )
    };
}

/// Compares the bindings of the important types with the C compiler's layout.
///
/// Called when the module is loaded, before anything else. The generated code asserts all of its
/// types against libclang while it compiles; this is about the compiler that built the kernel.
pub(crate) fn check_layout() -> kernel::error::Result {
    const OURS: [(&str, usize); ZRS_LAYOUT_LEN as usize] = layout![
        sock_common,
        sock,
        sock.sk_socket,
        sock.sk_state_change,
        sock.sk_destruct,
        inet_sock,
        inet_sock.inet_sport,
        inet_sock.pinet6,
        ipv6_pinfo,
        ipv6_pinfo.hop_limit,
        proto,
        proto.obj_size,
        proto_ops,
        inet_protosw,
        socket,
        msghdr,
        iov_iter,
        file,
        file_operations,
        vm_area_struct,
        vm_operations_struct,
        miscdevice,
        pernet_operations,
        scatterlist,
        ib_device,
        ib_device.attrs,
        ib_device.index,
        ib_device_attr,
        ib_client,
        ib_pd,
        ib_cq,
        ib_cq_init_attr,
        ib_srq_init_attr,
        ib_qp,
        ib_qp.qp_num,
        ib_qp_init_attr,
        ib_qp_attr,
        ib_mr,
        ib_send_wr,
        ib_rdma_wr,
        ib_reg_wr,
        ib_recv_wr,
        ib_wc,
        rdma_cm_id,
        rdma_cm_id.port_num,
        rdma_cm_event,
        rdma_conn_param,
    ];
    // SAFETY: The table is a constant array of that many numbers.
    let theirs: [ffi::c_uint; ZRS_LAYOUT_LEN as usize] = unsafe { zrs_layout };
    for ((name, ours), theirs) in OURS.iter().zip(theirs) {
        if *ours != theirs as usize {
            kernel::pr_err!("layout of {}: {} here, {} in C\n", name, ours, theirs);
            return Err(kernel::error::code::EINVAL);
        }
    }
    Ok(())
}
