// SPDX-License-Identifier: GPL-2.0
/*
 * What the C compiler made of the types that matter, for comparison with the
 * bindings when the module is loaded. In the order of rust/bindings.rs.
 */

#include "helpers.h"

const unsigned int zrs_layout[ZRS_LAYOUT_LEN] = {
	sizeof(struct sock_common),
	sizeof(struct sock),
	offsetof(struct sock, sk_socket),
	offsetof(struct sock, sk_state_change),
	offsetof(struct sock, sk_destruct),
	sizeof(struct inet_sock),
	offsetof(struct inet_sock, inet_sport),
	sizeof(struct proto),
	offsetof(struct proto, obj_size),
	sizeof(const struct proto_ops),
	sizeof(struct inet_protosw),
	sizeof(struct socket),
	sizeof(struct msghdr),
	sizeof(struct iov_iter),
	sizeof(struct file),
	sizeof(const struct file_operations),
	sizeof(struct vm_area_struct),
	sizeof(const struct vm_operations_struct),
	sizeof(struct miscdevice),
	sizeof(struct pernet_operations),
	sizeof(struct scatterlist),
	sizeof(struct ib_device),
	offsetof(struct ib_device, attrs),
	offsetof(struct ib_device, index),
	sizeof(struct ib_device_attr),
	sizeof(struct ib_client),
	sizeof(struct ib_pd),
	sizeof(struct ib_cq),
	sizeof(struct ib_cq_init_attr),
	sizeof(struct ib_srq_init_attr),
	sizeof(struct ib_qp),
	offsetof(struct ib_qp, qp_num),
	sizeof(struct ib_qp_init_attr),
	sizeof(struct ib_qp_attr),
	sizeof(struct ib_mr),
	sizeof(struct ib_send_wr),
	sizeof(struct ib_rdma_wr),
	sizeof(struct ib_reg_wr),
	sizeof(struct ib_recv_wr),
	sizeof(struct ib_wc),
	sizeof(struct rdma_cm_id),
	offsetof(struct rdma_cm_id, port_num),
	sizeof(struct rdma_cm_event),
	sizeof(struct rdma_conn_param),
};
