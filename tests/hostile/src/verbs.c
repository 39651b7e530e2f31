// SPDX-License-Identifier: GPL-2.0
/*
 * The parts of librdmacm and libibverbs that the hostile peer needs, in terms that Rust can call:
 * much of their interface is inline functions and unions. Functions return 0 or more, or a negative
 * errno.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <linux/types.h>
#include <poll.h>
#include <rdma/ib_user_mad.h>
#include <rdma/rdma_cma.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

/* A connection, or a listener: those have no queue pair. */
struct zh_ep {
	struct rdma_event_channel *channel;
	struct rdma_cm_id *id;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_mr *mr;
	void *buf;
	size_t len;
};

struct zh_event {
	__s32 type;		/* RDMA_CM_EVENT_* */
	__s32 status;
	__u32 data_len;
	__u8 data[256];
};

struct zh_send {
	__u64 wr_id;
	__u64 offset;	/* in the endpoint's buffer */
	__u64 raddr;
	__u32 len;
	__u32 rkey;
	__u32 imm;
	__u32 opcode;	/* enum ibv_wr_opcode */
};

struct zh_wc {
	__u64 wr_id;
	__u32 status;
	__u32 opcode;
	__u32 byte_len;
	__u32 reserved;
};

static int failed(void)
{
	return errno ? -errno : -EIO;
}

static struct sockaddr_in address(__u32 ip, __u16 port)
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_port = htons(port),
		.sin_addr.s_addr = htonl(ip),
	};

	return addr;
}

void zh_free(struct zh_ep *ep)
{
	if (!ep)
		return;
	if (ep->id && ep->id->qp)
		rdma_destroy_qp(ep->id);
	if (ep->mr)
		ibv_dereg_mr(ep->mr);
	if (ep->cq)
		ibv_destroy_cq(ep->cq);
	if (ep->pd)
		ibv_dealloc_pd(ep->pd);
	if (ep->id)
		rdma_destroy_id(ep->id);
	if (ep->channel)
		rdma_destroy_event_channel(ep->channel);
	free(ep->buf);
	free(ep);
}

static struct zh_ep *endpoint(struct rdma_cm_id *id)
{
	struct zh_ep *ep = calloc(1, sizeof(*ep));
	int rc;

	if (!ep)
		return NULL;
	ep->channel = rdma_create_event_channel();
	if (!ep->channel)
		goto err;
	if (id)
		rc = rdma_migrate_id(id, ep->channel);
	else
		rc = rdma_create_id(ep->channel, &id, NULL, RDMA_PS_TCP);
	if (rc)
		goto err;
	ep->id = id;
	return ep;
err:
	zh_free(ep);
	return NULL;
}

/* Waits for the next event; 1 if there was one. A new connection's id is put into @id. */
static int next_event(struct zh_ep *ep, int timeout_ms, struct zh_event *out,
		      struct rdma_cm_id **id)
{
	struct pollfd pfd = { .fd = ep->channel->fd, .events = POLLIN };
	struct rdma_cm_event *event;
	int rc = poll(&pfd, 1, timeout_ms);

	if (rc <= 0)
		return rc < 0 ? failed() : 0;
	if (rdma_get_cm_event(ep->channel, &event))
		return failed();
	memset(out, 0, sizeof(*out));
	out->type = event->event;
	out->status = event->status;
	out->data_len = event->param.conn.private_data_len;
	if (event->param.conn.private_data && out->data_len)
		memcpy(out->data, event->param.conn.private_data, out->data_len);
	if (id)
		*id = event->event == RDMA_CM_EVENT_CONNECT_REQUEST ? event->id : NULL;
	rdma_ack_cm_event(event);
	return 1;
}

int zh_event(struct zh_ep *ep, int timeout_ms, struct zh_event *out)
{
	return next_event(ep, timeout_ms, out, NULL);
}

static int expect(struct zh_ep *ep, int timeout_ms, int type)
{
	struct zh_event event;
	int rc = next_event(ep, timeout_ms, &event, NULL);

	if (rc <= 0)
		return rc ? rc : -ETIMEDOUT;
	if (event.type != type)
		return event.status < 0 ? event.status : -EHOSTUNREACH;
	return 0;
}

int zh_listen(__u32 ip, __u16 port, struct zh_ep **out)
{
	struct sockaddr_in addr = address(ip, port);
	struct zh_ep *ep = endpoint(NULL);
	int rc;

	if (!ep)
		return -ENOMEM;
	if (rdma_bind_addr(ep->id, (struct sockaddr *)&addr) || rdma_listen(ep->id, 64)) {
		rc = failed();
		zh_free(ep);
		return rc;
	}
	*out = ep;
	return 0;
}

/* Waits for a connection to a listener; 1 if there was one. */
int zh_request(struct zh_ep *listener, int timeout_ms, struct zh_event *event, struct zh_ep **out)
{
	struct rdma_cm_id *id = NULL;
	int rc = next_event(listener, timeout_ms, event, &id);

	if (rc <= 0 || !id)
		return rc < 0 ? rc : 0;
	*out = endpoint(id);
	return *out ? 1 : -ENOMEM;
}

/* An endpoint that knows the way to its peer. */
int zh_resolve(__u32 from, __u16 from_port, __u32 to, __u16 to_port,
	       struct zh_ep **out)
{
	struct sockaddr_in src = address(from, from_port), dst = address(to, to_port);
	struct zh_ep *ep;
	int rc, ms;

	ep = endpoint(NULL);
	if (!ep)
		return -ENOMEM;
	if (rdma_bind_addr(ep->id, (struct sockaddr *)&src)) {
		rc = failed();
		goto err;
	}
	/* In short attempts at first: the kernel may miss an answer that comes at once. */
	for (ms = 10, rc = -ETIMEDOUT; ms < 5000 && rc == -ETIMEDOUT; ms *= 2) {
		if (rdma_resolve_addr(ep->id, NULL, (struct sockaddr *)&dst, ms)) {
			rc = failed();
			break;
		}
		rc = expect(ep, 10000, RDMA_CM_EVENT_ADDR_RESOLVED);
	}
	if (rc)
		goto err;
	if (rdma_resolve_route(ep->id, 5000)) {
		rc = failed();
		goto err;
	}
	rc = expect(ep, 10000, RDMA_CM_EVENT_ROUTE_RESOLVED);
	if (rc)
		goto err;
	*out = ep;
	return 0;
err:
	zh_free(ep);
	return rc;
}

/* Gives it a queue pair, and a buffer that the peer may write into and read from. */
int zh_queues(struct zh_ep *ep, size_t len, __u32 depth)
{
	struct ibv_qp_init_attr attr = {
		.cap = {
			.max_send_wr = depth,
			.max_recv_wr = depth,
			.max_send_sge = 2,
			.max_recv_sge = 1,
		},
		.qp_type = IBV_QPT_RC,
		.sq_sig_all = 1,
	};
	int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

	if (posix_memalign(&ep->buf, 4096, len))
		return -ENOMEM;
	memset(ep->buf, 0, len);
	ep->len = len;
	ep->pd = ibv_alloc_pd(ep->id->verbs);
	if (!ep->pd)
		return failed();
	ep->cq = ibv_create_cq(ep->id->verbs, 2 * depth, NULL, NULL, 0);
	if (!ep->cq)
		return failed();
	ep->mr = ibv_reg_mr(ep->pd, ep->buf, len, access);
	if (!ep->mr)
		return failed();
	attr.send_cq = ep->cq;
	attr.recv_cq = ep->cq;
	return rdma_create_qp(ep->id, ep->pd, &attr) ? failed() : 0;
}

void *zh_buffer(struct zh_ep *ep)
{
	return ep->buf;
}

__u32 zh_rkey(struct zh_ep *ep)
{
	return ep->mr->rkey;
}

/* The numbers of its queue pair, and of the peer's that it is connected with. */
int zh_numbers(struct zh_ep *ep, __u32 *own, __u32 *theirs)
{
	struct ibv_qp_attr attr = {};
	struct ibv_qp_init_attr init;
	int rc = ibv_query_qp(ep->id->qp, &attr, IBV_QP_DEST_QPN, &init);

	*own = ep->id->qp->qp_num;
	*theirs = attr.dest_qp_num;
	return rc ? -abs(rc) : 0;
}

static struct rdma_conn_param conn_param(const void *data, __u8 len)
{
	struct rdma_conn_param param = {
		.private_data = data,
		.private_data_len = len,
		.responder_resources = 1,
		.initiator_depth = 1,
		/* Of Soft-RoCE, 7 is without end: the sender never learns that its peer is gone. */
		.retry_count = 6,
		.rnr_retry_count = 7,
	};

	return param;
}

int zh_connect(struct zh_ep *ep, const void *data, __u8 len)
{
	struct rdma_conn_param param = conn_param(data, len);

	return rdma_connect(ep->id, &param) ? failed() : 0;
}

int zh_accept(struct zh_ep *ep, const void *data, __u8 len)
{
	struct rdma_conn_param param = conn_param(data, len);

	return rdma_accept(ep->id, &param) ? failed() : 0;
}

int zh_reject(struct zh_ep *ep, const void *data, __u8 len)
{
	return rdma_reject(ep->id, data, len) ? failed() : 0;
}

int zh_disconnect(struct zh_ep *ep)
{
	return rdma_disconnect(ep->id) ? failed() : 0;
}

/* Sets the queue pair to error without a disconnect. */
int zh_break(struct zh_ep *ep)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };
	int rc = ibv_modify_qp(ep->id->qp, &attr, IBV_QP_STATE);

	return rc ? -abs(rc) : 0;
}

int zh_post_recv(struct zh_ep *ep, __u64 wr_id, __u64 offset, __u32 len)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)ep->buf + offset,
		.length = len,
		.lkey = ep->mr->lkey,
	};
	struct ibv_recv_wr wr = { .wr_id = wr_id, .sg_list = &sge, .num_sge = 1 }, *bad;

	return -ibv_post_recv(ep->id->qp, &wr, &bad);
}

int zh_post_send(struct zh_ep *ep, const struct zh_send *send)
{
	struct ibv_sge sge = {
		.addr = (uintptr_t)ep->buf + send->offset,
		.length = send->len,
		.lkey = ep->mr->lkey,
	};
	struct ibv_send_wr wr = {
		.wr_id = send->wr_id,
		.sg_list = &sge,
		.num_sge = send->len ? 1 : 0,
		.opcode = send->opcode,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	switch (send->opcode) {
	case IBV_WR_ATOMIC_CMP_AND_SWP:
	case IBV_WR_ATOMIC_FETCH_AND_ADD:
		wr.wr.atomic.remote_addr = send->raddr;
		wr.wr.atomic.rkey = send->rkey;
		wr.wr.atomic.compare_add = 1;
		break;
	case IBV_WR_SEND_WITH_INV:
		wr.invalidate_rkey = send->rkey;
		break;
	default:
		wr.imm_data = htonl(send->imm);
		wr.wr.rdma.remote_addr = send->raddr;
		wr.wr.rdma.rkey = send->rkey;
	}
	return -ibv_post_send(ep->id->qp, &wr, &bad);
}

/*
 * Sends the first @sent bytes of a message of twice as many, in whole packets:
 * the key of the rest is wrong, which breaks the queue pair.
 */
int zh_post_cut(struct zh_ep *ep, __u64 wr_id, __u64 offset, __u32 sent)
{
	struct ibv_sge sges[] = {
		{
			.addr = (uintptr_t)ep->buf + offset,
			.length = sent,
			.lkey = ep->mr->lkey,
		}, {
			.addr = (uintptr_t)ep->buf + offset,
			.length = sent,
			.lkey = ~ep->mr->lkey,
		},
	};
	struct ibv_send_wr wr = {
		.wr_id = wr_id,
		.sg_list = sges,
		.num_sge = 2,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	}, *bad;

	return -ibv_post_send(ep->id->qp, &wr, &bad);
}

int zh_poll(struct zh_ep *ep, struct zh_wc *out)
{
	struct ibv_wc wc;
	int n = ibv_poll_cq(ep->cq, 1, &wc);

	if (n <= 0)
		return n;
	memset(out, 0, sizeof(*out));
	out->wr_id = wc.wr_id;
	out->status = wc.status;
	out->opcode = wc.opcode;
	out->byte_len = wc.byte_len;
	return 1;
}

/* Sends a management datagram, headers included, by a device's node. */
int zh_mad(const char *node, void *mad, size_t len)
{
	struct ib_user_mad_reg_req agent = { .qpn = 1 };
	int fd = open(node, O_RDWR | O_CLOEXEC), rc = 0;

	if (fd < 0)
		return failed();
	if (ioctl(fd, IB_USER_MAD_ENABLE_PKEY) || ioctl(fd, IB_USER_MAD_REGISTER_AGENT, &agent)) {
		rc = failed();
	} else {
		((struct ib_user_mad *)mad)->hdr.id = agent.id;
		if (write(fd, mad, len) != (ssize_t)len)
			rc = failed();
	}
	/* The agent goes, and with it what it has not sent. */
	if (!rc)
		usleep(100000);
	close(fd);
	return rc;
}
