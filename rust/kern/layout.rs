// SPDX-License-Identifier: GPL-2.0

//! Whether the bindings have the layout of the C compiler that built the kernel.

use crate::bindings;
use kernel::{ffi::c_uint, prelude::*};

/// The sizes and offsets that [`check`] compares, in the order of `rust/helpers/layout.c`.
macro_rules! layout {
    ($($ty:ident $(. $field:ident)?),* $(,)?) => {
        [$(layout!(@one $ty $(. $field)?)),*]
    };
    (@one $ty:ident) => {
        (stringify!($ty), core::mem::size_of::<bindings::$ty>())
    };
    (@one $ty:ident . $field:ident) => {
        (
            concat!(stringify!($ty), ".", stringify!($field)),
            core::mem::offset_of!(bindings::$ty, $field),
        )
    };
}

/// Compares the bindings of the important types with the C compiler's layout.
///
/// Called when the module is loaded, before anything else. The generated code asserts all of its
/// types against libclang while it compiles; this is about the compiler that built the kernel.
pub fn check() -> Result {
    const OURS: [(&str, usize); bindings::ZRS_LAYOUT_LEN as usize] = layout![
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
    let theirs: [c_uint; bindings::ZRS_LAYOUT_LEN as usize] = unsafe { bindings::zrs_layout };
    for ((name, ours), theirs) in OURS.iter().zip(theirs) {
        if *ours != theirs as usize {
            pr_err!("layout of {}: {} here, {} in C\n", name, ours, theirs);
            return Err(EINVAL);
        }
    }
    Ok(())
}
