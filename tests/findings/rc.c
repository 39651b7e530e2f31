// SPDX-License-Identifier: GPL-2.0
/*
 * A queue pair of one Soft-RoCE device whose peer, a queue pair of another one, drops what comes
 * until it is readied:
 *   rc retries COUNT SECONDS   posts a SEND with this retry count, and waits for its end
 *   rc send SECONDS            posts a SEND, and readies the peer when it has been repeated
 *   rc bind SECONDS            the same with the bind of a memory window behind the SEND
 *   rc full SECONDS COMMAND    posts a SEND of 128 packets, waits for its end, and runs the command
 *   rc range                   posts a WRITE into a memory window of the peer, and then one beyond
 *                              its end, in the same region
 *   rc error                   posts a SEND, is in error when the ACK comes, and then
 *                              gets a SEND of the peer
 * With slow.ko, which delays what the peer does with the first packet that it takes:
 *   rc destroy                 posts a SEND, and destroys the peer during the delay
 *   rc invalidate SECONDS      posts a WRITE of three packets to a memory window, which the peer
 *                              invalidates during the delay
 * Prints a line for each completion, "send: success after 12 ms", and the limit if it ends the
 * wait. Exit status 1 if it could not even post.
 */
#include <arpa/inet.h>
#include <infiniband/verbs.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define PSN 100
#define SIZE 64
#define MTU 1024
#define FULL (128 * MTU)
#define BIND 1
#define INVALIDATE 2
#define WRITE 3
/* Timeouts: 67 ms and 2.1 s. */
#define SHORT 14
#define LONG 19

struct end {
	struct ibv_context *context;
	struct ibv_pd *pd;
	struct ibv_cq *cq;
	struct ibv_qp *qp;
	struct ibv_mr *mr;
	union ibv_gid gid;
	int gid_index;
};

static char sent[FULL], received[FULL];

static void check(bool good, const char *what)
{
	if (!good) {
		perror(what);
		exit(1);
	}
}

static long now_ms(void)
{
	struct timespec t;

	clock_gettime(CLOCK_MONOTONIC, &t);
	return t.tv_sec * 1000 + t.tv_nsec / 1000000;
}

static struct ibv_context *open_device(const char *name)
{
	struct ibv_context *context = NULL;
	struct ibv_device **list;
	int i, n = 0;

	list = ibv_get_device_list(&n);
	for (i = 0; list && i < n; i++)
		if (!strcmp(ibv_get_device_name(list[i]), name))
			context = ibv_open_device(list[i]);
	check(context, name);
	return context;
}

/* The GID of an IPv4 address, for RoCE v2. */
static void find_gid(struct end *end, const char *addr)
{
	struct ibv_gid_entry entry;
	int i;

	memset(&end->gid, 0, sizeof(end->gid));
	end->gid.raw[10] = 0xff;
	end->gid.raw[11] = 0xff;
	check(inet_pton(AF_INET, addr, &end->gid.raw[12]) == 1, addr);
	for (i = 0; i < 64; i++) {
		if (ibv_query_gid_ex(end->context, 1, i, &entry, 0))
			continue;
		if (entry.gid_type != IBV_GID_TYPE_ROCE_V2 ||
		    memcmp(&entry.gid, &end->gid, sizeof(end->gid)))
			continue;
		end->gid_index = i;
		return;
	}
	check(false, "the device has no GID for the address");
}

static void make(struct end *end, const char *device, const char *addr, char *memory)
{
	struct ibv_qp_init_attr init = {
		.cap = { .max_send_wr = 8, .max_recv_wr = 8, .max_send_sge = 1, .max_recv_sge = 1 },
		.qp_type = IBV_QPT_RC,
	};
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_INIT,
		.port_num = 1,
		.qp_access_flags = IBV_ACCESS_REMOTE_WRITE,
	};

	end->context = open_device(device);
	find_gid(end, addr);
	end->pd = ibv_alloc_pd(end->context);
	check(end->pd, "ibv_alloc_pd");
	end->mr = ibv_reg_mr(end->pd, memory, FULL, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND);
	check(end->mr, "ibv_reg_mr");
	end->cq = ibv_create_cq(end->context, 16, NULL, NULL, 0);
	check(end->cq, "ibv_create_cq");
	init.send_cq = end->cq;
	init.recv_cq = end->cq;
	end->qp = ibv_create_qp(end->pd, &init);
	check(end->qp, "ibv_create_qp");
	check(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT |
			     IBV_QP_ACCESS_FLAGS), "ibv_modify_qp, INIT");
}

/* From now on the queue pair takes what comes from the peer. */
static void ready(struct end *end, struct end *peer)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTR,
		.path_mtu = IBV_MTU_1024,
		.dest_qp_num = peer->qp->qp_num,
		.rq_psn = PSN,
		.min_rnr_timer = 12,
		.ah_attr = {
			.is_global = 1,
			.port_num = 1,
			.grh = { .dgid = peer->gid, .sgid_index = end->gid_index, .hop_limit = 64 },
		},
	};

	check(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_AV | IBV_QP_PATH_MTU |
			     IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
			     IBV_QP_MIN_RNR_TIMER), "ibv_modify_qp, RTR");
}

static void start(struct end *end, int retries, int timeout)
{
	struct ibv_qp_attr attr = {
		.qp_state = IBV_QPS_RTS,
		.sq_psn = PSN,
		.timeout = timeout,
		.retry_cnt = retries,
		.rnr_retry = 7,
	};

	check(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE | IBV_QP_SQ_PSN | IBV_QP_TIMEOUT |
			     IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC),
	      "ibv_modify_qp, RTS");
}

static void post_receive(struct end *end)
{
	struct ibv_sge sge = { (unsigned long)received, SIZE, end->mr->lkey };
	struct ibv_recv_wr wr = { .sg_list = &sge, .num_sge = 1 }, *bad;

	check(!ibv_post_recv(end->qp, &wr, &bad), "ibv_post_recv");
}

static void fail(struct end *end)
{
	struct ibv_qp_attr attr = { .qp_state = IBV_QPS_ERR };

	check(!ibv_modify_qp(end->qp, &attr, IBV_QP_STATE), "ibv_modify_qp, ERR");
}

static void post(struct end *end, struct ibv_send_wr *wr)
{
	struct ibv_send_wr *bad;

	check(!ibv_post_send(end->qp, wr, &bad), "ibv_post_send");
}

static void post_send(struct end *end, unsigned int size, struct ibv_send_wr *next)
{
	struct ibv_sge sge = { (unsigned long)end->mr->addr, size, end->mr->lkey };
	struct ibv_send_wr wr = {
		.next = next,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_SEND,
		.send_flags = IBV_SEND_SIGNALED,
	};

	post(end, &wr);
}

static long number(const char *path)
{
	long n = -1;
	FILE *f;

	f = fopen(path, "r");
	check(f && fscanf(f, "%ld", &n) == 1, path);
	fclose(f);
	return n;
}

static long packets(void)
{
	return number("/sys/class/infiniband/rxeA/ports/1/hw_counters/sent_pkts");
}

/* Until what the file says is more than before. */
static void wait_more(const char *path, long before, const char *what)
{
	long from = now_ms();

	while (number(path) <= before) {
		check(now_ms() < from + 60000, what);
		usleep(20000);
	}
}

/* Until slow.ko delays. */
static void wait_slow(void)
{
	wait_more("/sys/module/slow/parameters/begun", 0, "slow.ko delays nothing");
}

/*
 * Up to count completions of the first queue pair; once it has sent two packets more than before,
 * the peer is readied.
 */
static void wait_for(struct end *ends, int count, int seconds, long before)
{
	static const char *const names[] = {
		[0] = "send", [BIND] = "bind", [INVALIDATE] = "invalidate",
		[WRITE] = "write",
	};
	long from = now_ms(), ms;
	bool readied = before < 0;
	struct ibv_wc wc;
	int n;

	while (count > 0) {
		ms = now_ms() - from;
		n = ibv_poll_cq(ends[0].cq, 1, &wc);
		check(n >= 0, "ibv_poll_cq");
		if (n == 1) {
			printf("%s: %s after %ld ms\n", names[wc.wr_id],
			       ibv_wc_status_str(wc.status), ms);
			count--;
			continue;
		}
		if (ms > seconds * 1000L) {
			printf("nothing more after %ld ms\n", ms);
			return;
		}
		if (!readied && packets() >= before + 2) {
			ready(&ends[1], &ends[0]);
			readied = true;
			printf("the SEND was repeated after %ld ms\n", ms);
		}
		usleep(20000);
	}
}

static struct ibv_send_wr bind_to(struct end *end, char *memory, unsigned int length,
				  unsigned int access)
{
	struct ibv_mw *mw = ibv_alloc_mw(end->pd, IBV_MW_TYPE_2);
	struct ibv_send_wr wr = {
		.wr_id = BIND,
		.opcode = IBV_WR_BIND_MW,
		.send_flags = IBV_SEND_SIGNALED,
	};

	check(mw, "ibv_alloc_mw");
	wr.bind_mw.mw = mw;
	wr.bind_mw.rkey = ibv_inc_rkey(mw->rkey);
	wr.bind_mw.bind_info.mr = end->mr;
	wr.bind_mw.bind_info.addr = (unsigned long)memory;
	wr.bind_mw.bind_info.length = length;
	wr.bind_mw.bind_info.mw_access_flags = access;
	return wr;
}

static int written(void)
{
	int i, n = 0;

	for (i = 0; i < FULL; i++)
		n += __atomic_load_n(&received[i], __ATOMIC_RELAXED) != 0;
	return n;
}

/* Binds a window of the second queue pair to length bytes of the empty memory; returns its key. */
static unsigned int open_window(struct end *ends, char *memory, unsigned int length)
{
	struct ibv_send_wr wr = bind_to(&ends[1], memory, length, IBV_ACCESS_REMOTE_WRITE);

	ready(&ends[1], &ends[0]);
	start(&ends[1], 6, LONG);
	post(&ends[1], &wr);
	wait_for(&ends[1], 1, 60, -1);
	memset(sent, 0xee, sizeof(sent));
	memset(received, 0, sizeof(received));
	return wr.bind_mw.rkey;
}

static void post_write(struct end *end, unsigned int size, char *to, unsigned int rkey)
{
	struct ibv_sge sge = { (unsigned long)sent, size, end->mr->lkey };

	post(end, &(struct ibv_send_wr) {
		.wr_id = WRITE,
		.sg_list = &sge,
		.num_sge = 1,
		.opcode = IBV_WR_RDMA_WRITE,
		.send_flags = IBV_SEND_SIGNALED,
		.wr.rdma = { (unsigned long)to, rkey },
	});
}

static void range(struct end *ends)
{
	unsigned int rkey = open_window(ends, received, SIZE);

	post_write(&ends[0], SIZE, received, rkey);
	wait_for(ends, 1, 60, -1);
	printf("written: %d bytes of the window\n", written());
	memset(received, 0, sizeof(received));
	post_write(&ends[0], SIZE, received + SIZE, rkey);
	wait_for(ends, 1, 60, -1);
	printf("written: %d bytes behind the window\n", written());
}

static void invalidate(struct end *ends, int seconds)
{
	unsigned int rkey = open_window(ends, received, FULL);
	int before;

	post_write(&ends[0], 3 * MTU, received, rkey);
	wait_slow();
	post(&ends[1], &(struct ibv_send_wr) {
		.wr_id = INVALIDATE,
		.opcode = IBV_WR_LOCAL_INV,
		.send_flags = IBV_SEND_SIGNALED,
		.invalidate_rkey = rkey,
	});
	wait_for(&ends[1], 1, seconds, -1);
	before = written();
	wait_for(ends, 1, seconds, -1);
	printf("written: %d bytes before the completion, %d after it\n", before,
	       written() - before);
}

int main(int argc, char **argv)
{
	const char *received_pkts = "/sys/class/infiniband/rxeB/ports/1/hw_counters/rcvd_pkts";
	const char *from_peer_pkts = "/sys/class/infiniband/rxeA/ports/1/hw_counters/rcvd_pkts";
	struct ibv_send_wr wr;
	struct end ends[2] = {};
	long before, from_peer;

	make(&ends[0], "rxeA", "10.77.0.1", sent);
	make(&ends[1], "rxeB", "10.77.0.2", received);
	post_receive(&ends[1]);
	ready(&ends[0], &ends[1]);
	if (argc == 4 && !strcmp(argv[1], "retries")) {
		start(&ends[0], atoi(argv[2]), SHORT);
		post_send(&ends[0], SIZE, NULL);
		wait_for(ends, 1, atoi(argv[3]), -1);
	} else if (argc == 3 && !strcmp(argv[1], "send")) {
		start(&ends[0], 6, LONG);
		before = packets();
		post_send(&ends[0], SIZE, NULL);
		wait_for(ends, 1, atoi(argv[2]), before);
	} else if (argc == 3 && !strcmp(argv[1], "bind")) {
		start(&ends[0], 6, LONG);
		wr = bind_to(&ends[0], sent, FULL, IBV_ACCESS_REMOTE_READ);
		before = packets();
		post_send(&ends[0], SIZE, &wr);
		wait_for(ends, 2, atoi(argv[2]), before);
	} else if (argc == 4 && !strcmp(argv[1], "full")) {
		start(&ends[0], 6, SHORT);
		post_send(&ends[0], FULL, NULL);
		wait_for(ends, 1, atoi(argv[2]), -1);
		fflush(stdout);
		check(!system(argv[3]), argv[3]);
	} else if (argc == 2 && !strcmp(argv[1], "error")) {
		start(&ends[0], 6, LONG);
		ready(&ends[1], &ends[0]);
		start(&ends[1], 6, LONG);
		before = number(received_pkts);
		from_peer = number(from_peer_pkts);
		post_send(&ends[0], SIZE, NULL);
		wait_more(received_pkts, before, "the peer receives nothing");
		fail(&ends[0]);
		wait_more(from_peer_pkts, from_peer, "no ACK");
		post_send(&ends[1], SIZE, NULL);
		wait_more(from_peer_pkts, from_peer + 1, "no SEND of the peer");
		usleep(500000);
	} else if (argc == 2 && !strcmp(argv[1], "destroy")) {
		start(&ends[0], 6, LONG);
		ready(&ends[1], &ends[0]);
		post_send(&ends[0], SIZE, NULL);
		wait_slow();
		before = now_ms();
		/* What the peer has received is dropped, at once. */
		fail(&ends[1]);
		check(!ibv_destroy_qp(ends[1].qp), "ibv_destroy_qp");
		printf("destroyed after %ld ms\n", now_ms() - before);
	} else if (argc == 2 && !strcmp(argv[1], "range")) {
		start(&ends[0], 6, LONG);
		range(ends);
	} else if (argc == 3 && !strcmp(argv[1], "invalidate")) {
		start(&ends[0], 6, LONG);
		invalidate(ends, atoi(argv[2]));
	} else {
		return 2;
	}
	return 0;
}
