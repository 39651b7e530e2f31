// SPDX-License-Identifier: GPL-2.0
/*
 * An id of the connection manager whose device goes while its route is being
 * resolved, and which is destroyed by another thread at that moment, without
 * ZRS: see "Findings in the kernel" in Documentation/testing.rst. Load it with
 * the address of an RDMA device, then delete that device on processor 0.
 */
#include <linux/completion.h>
#include <linux/delay.h>
#include <linux/err.h>
#include <linux/inet.h>
#include <linux/kthread.h>
#include <linux/module.h>
#include <linux/sched.h>
#include <net/net_namespace.h>
#include <rdma/rdma_cm.h>

#define TIMEOUT_MS 2000

static char *addr;
module_param(addr, charp, 0);

struct conn {
	const char *name;
	struct rdma_cm_id *id;
	int error;
	/* Its handler does not return from the route's event. */
	bool stuck;
	struct completion event;
};

static struct conn victim = { .name = "victim" };
static struct conn other = { .name = "other" };
static DECLARE_COMPLETION(removal);

static int handler(struct rdma_cm_id *id, struct rdma_cm_event *event)
{
	struct conn *conn = id->context;

	pr_info("removal: %s: %s\n", conn->name,
		rdma_event_msg(event->event));
	if (event->event == RDMA_CM_EVENT_DEVICE_REMOVAL) {
		complete(&removal);
		return 0;
	}
	conn->error = event->status;
	complete(&conn->event);
	/* The connection manager's only thread waits here. */
	if (conn->stuck && event->event == RDMA_CM_EVENT_ROUTE_RESOLVED)
		msleep(60 * MSEC_PER_SEC);
	return 0;
}

static int resolve(struct conn *conn)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(7) };
	int ret;

	init_completion(&conn->event);
	to.sin_addr.s_addr = in_aton(addr);
	conn->id = rdma_create_id(&init_net, handler, conn, RDMA_PS_TCP,
				  IB_QPT_RC);
	if (IS_ERR(conn->id)) {
		ret = PTR_ERR(conn->id);
		conn->id = NULL;
		return ret;
	}
	ret = rdma_resolve_addr(conn->id, NULL, (struct sockaddr *)&to,
				TIMEOUT_MS);
	if (!ret)
		wait_for_completion(&conn->event);
	return ret ?: conn->error;
}

/*
 * Waits for the device's end, and then for the handler to return: it continues at the moment in
 * which the thread that removes the device has dropped the id, on the same processor and before
 * that thread.
 */
static int destroy(void *unused)
{
	wait_for_completion(&removal);
	rdma_destroy_id(victim.id);
	pr_info("removal: destroyed\n");
	return 0;
}

static int __init removal_init(void)
{
	struct task_struct *task;
	int ret;

	/* In the order in which the device's end reaches them. */
	ret = resolve(&victim) ?: resolve(&other);
	if (ret)
		goto err;
	task = kthread_create(destroy, NULL, "destroy");
	if (IS_ERR(task)) {
		ret = PTR_ERR(task);
		goto err;
	}
	other.stuck = true;
	ret = rdma_resolve_route(other.id, TIMEOUT_MS);
	if (ret)
		goto err_task;
	wait_for_completion(&other.event);
	ret = rdma_resolve_route(victim.id, TIMEOUT_MS);
	if (ret)
		goto err_task;
	kthread_bind(task, 0);
	sched_set_fifo(task);
	wake_up_process(task);
	return 0;

err_task:
	kthread_stop(task);
err:
	/* A handler that is stuck is waited for. */
	if (other.id)
		rdma_destroy_id(other.id);
	if (victim.id)
		rdma_destroy_id(victim.id);
	return ret;
}
module_init(removal_init);

MODULE_DESCRIPTION("rdma_destroy_id() while a device is removed");
MODULE_LICENSE("GPL");
