// SPDX-License-Identifier: GPL-2.0
/*
 * Events that hardware has and Soft-RoCE has not. The name of a network
 * interface in the writer's network namespace, written to a parameter, makes
 * its RDMA device say
 *   fatal      that it has failed;
 *   speed      that the rate of a port has changed;
 *   srq_error  that its shared receive queues have;
 *   srq_limit  that few receives are left in these;
 *   comm_est   that a message has arrived on each of its queue pairs.
 * The queues are those that were made while this module was loaded.
 * drop_rtu=1 drops what the writer's network namespace sends to end the
 * handshake of the connection manager (RTU) by IPv4.
 */
#include <linux/ip.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/netfilter.h>
#include <linux/netfilter_ipv4.h>
#include <linux/nsproxy.h>
#include <linux/sched.h>
#include <linux/udp.h>
#include <net/net_namespace.h>
#include <rdma/ib_verbs.h>

/* What was made and has not been destroyed. */
struct queues {
	void *all[256];
	unsigned int n;
};

static struct queues srqs, qps;
static DEFINE_SPINLOCK(lock);

static void keep(struct queues *queues, void *made)
{
	unsigned long flags;

	if (IS_ERR_OR_NULL(made))
		return;
	spin_lock_irqsave(&lock, flags);
	if (queues->n < ARRAY_SIZE(queues->all))
		queues->all[queues->n++] = made;
	else
		pr_err("rdmaevent: too many queues\n");
	spin_unlock_irqrestore(&lock, flags);
}

static void forget(struct queues *queues, void *gone)
{
	unsigned long flags;
	unsigned int i;

	spin_lock_irqsave(&lock, flags);
	for (i = 0; i < queues->n; i++)
		if (queues->all[i] == gone)
			queues->all[i--] = queues->all[--queues->n];
	spin_unlock_irqrestore(&lock, flags);
}

static int srq_made(struct kretprobe_instance *ri, struct pt_regs *regs)
{
	keep(&srqs, (void *)regs_return_value(regs));
	return 0;
}

static int qp_made(struct kretprobe_instance *ri, struct pt_regs *regs)
{
	keep(&qps, (void *)regs_return_value(regs));
	return 0;
}

static int srq_goes(struct kprobe *p, struct pt_regs *regs)
{
	forget(&srqs, (void *)regs_get_kernel_argument(regs, 0));
	return 0;
}

static int qp_goes(struct kprobe *p, struct pt_regs *regs)
{
	forget(&qps, (void *)regs_get_kernel_argument(regs, 0));
	return 0;
}

static struct kretprobe srq_making = {
	.kp.symbol_name = "ib_create_srq_user",
	.handler = srq_made,
};

static struct kretprobe qp_making = {
	.kp.symbol_name = "ib_create_qp_kernel",
	.handler = qp_made,
};

static struct kprobe srq_end = { .symbol_name = "ib_destroy_srq_user", .pre_handler = srq_goes };
static struct kprobe qp_end = { .symbol_name = "ib_destroy_qp_user", .pre_handler = qp_goes };

/* The RDMA device of the interface, with a reference. */
static struct ib_device *device_of(const char *name)
{
	char text[IFNAMSIZ];
	struct net_device *netdev;
	struct ib_device *device;

	if (strscpy(text, name) < 0)
		return NULL;
	netdev = dev_get_by_name(current->nsproxy->net_ns, strim(text));
	if (!netdev)
		return NULL;
	device = ib_device_get_by_netdev(netdev, RDMA_DRIVER_UNKNOWN);
	dev_put(netdev);
	return device;
}

static int device_event(const char *name, enum ib_event_type type)
{
	struct ib_event event = { .event = type, .element.port_num = 1 };

	event.device = device_of(name);
	if (!event.device)
		return -ENODEV;
	/* The core delivers it in a work item, which the device's end waits for. */
	ib_dispatch_event(&event);
	ib_device_put(event.device);
	return 0;
}

static int fatal_set(const char *name, const struct kernel_param *kp)
{
	return device_event(name, IB_EVENT_DEVICE_FATAL);
}

static int speed_set(const char *name, const struct kernel_param *kp)
{
	return device_event(name, IB_EVENT_DEVICE_SPEED_CHANGE);
}

/* As a driver's interrupt does, under the lock that keeps the queues. */
static int queue_event(const char *name, struct queues *queues, enum ib_event_type type)
{
	struct ib_event event = { .event = type };
	struct ib_device *device = device_of(name);
	unsigned int i, told = 0;
	unsigned long flags;

	if (!device)
		return -ENODEV;
	event.device = device;
	spin_lock_irqsave(&lock, flags);
	for (i = 0; i < queues->n; i++) {
		if (queues == &srqs) {
			struct ib_srq *srq = queues->all[i];

			if (srq->device != device || !srq->event_handler)
				continue;
			event.element.srq = srq;
			srq->event_handler(&event, srq->srq_context);
		} else {
			struct ib_qp *qp = queues->all[i];

			if (qp->device != device || qp->qp_type != IB_QPT_RC || !qp->event_handler)
				continue;
			event.element.qp = qp;
			qp->event_handler(&event, qp->qp_context);
		}
		told++;
	}
	spin_unlock_irqrestore(&lock, flags);
	ib_device_put(device);
	return told ? 0 : -ENOENT;
}

static int srq_error_set(const char *name, const struct kernel_param *kp)
{
	return queue_event(name, &srqs, IB_EVENT_SRQ_ERR);
}

static int srq_limit_set(const char *name, const struct kernel_param *kp)
{
	return queue_event(name, &srqs, IB_EVENT_SRQ_LIMIT_REACHED);
}

static int comm_est_set(const char *name, const struct kernel_param *kp)
{
	return queue_event(name, &qps, IB_EVENT_COMM_EST);
}

/*
 * UDP to RoCE's port; base and datagram transport header; a MAD of the class of
 * the connection manager.
 */
static unsigned int look_for_rtu(void *priv, struct sk_buff *skb, const struct nf_hook_state *state)
{
	struct {
		struct udphdr udp;
		u8 transport[20];
		u8 base, class, version, method;
		__be16 status, specific;
		__be64 tid;
		__be16 attribute;
	} __packed mad, *seen;

	if (ip_hdr(skb)->protocol != IPPROTO_UDP)
		return NF_ACCEPT;
	seen = skb_header_pointer(skb, ip_hdrlen(skb), sizeof(mad), &mad);
	if (!seen || seen->udp.dest != htons(4791) || seen->class != 7 ||
	    seen->attribute != htons(0x14))
		return NF_ACCEPT;
	/* The sender is to see no error. */
	kfree_skb(skb);
	return NF_STOLEN;
}

static const struct nf_hook_ops rtu_hook = {
	.hook = look_for_rtu,
	.pf = NFPROTO_IPV4,
	.hooknum = NF_INET_LOCAL_OUT,
};

static struct net *dropping;

static void stop_dropping(void)
{
	if (dropping) {
		nf_unregister_net_hook(dropping, &rtu_hook);
		put_net(dropping);
		dropping = NULL;
	}
}

static int drop_rtu_set(const char *val, const struct kernel_param *kp)
{
	bool on;
	int err = kstrtobool(val, &on);

	if (err)
		return err;
	stop_dropping();
	if (!on)
		return 0;
	dropping = get_net(current->nsproxy->net_ns);
	err = nf_register_net_hook(dropping, &rtu_hook);
	if (err) {
		put_net(dropping);
		dropping = NULL;
	}
	return err;
}

static const struct kernel_param_ops fatal_ops = { .set = fatal_set };
module_param_cb(fatal, &fatal_ops, NULL, 0200);
MODULE_PARM_DESC(fatal, "interface of the RDMA device that fails");

static const struct kernel_param_ops speed_ops = { .set = speed_set };
module_param_cb(speed, &speed_ops, NULL, 0200);
MODULE_PARM_DESC(speed, "interface of the RDMA device whose port has another rate");

static const struct kernel_param_ops srq_error_ops = { .set = srq_error_set };
module_param_cb(srq_error, &srq_error_ops, NULL, 0200);
MODULE_PARM_DESC(srq_error, "interface of the RDMA device whose shared receive queues fail");
static const struct kernel_param_ops srq_limit_ops = { .set = srq_limit_set };
module_param_cb(srq_limit, &srq_limit_ops, NULL, 0200);
MODULE_PARM_DESC(srq_limit, "interface of the RDMA device that has few receives left in these");

static const struct kernel_param_ops comm_est_ops = { .set = comm_est_set };
module_param_cb(comm_est, &comm_est_ops, NULL, 0200);
MODULE_PARM_DESC(comm_est, "interface of the RDMA device whose queue pairs have had a message");

static const struct kernel_param_ops drop_rtu_ops = { .set = drop_rtu_set };
module_param_cb(drop_rtu, &drop_rtu_ops, NULL, 0200);
MODULE_PARM_DESC(drop_rtu, "whether the writer's namespace loses its RTU messages");

static int __init rdmaevent_init(void)
{
	int err = register_kretprobe(&srq_making);

	if (err)
		return err;
	err = register_kretprobe(&qp_making);
	if (err)
		goto no_qps;
	err = register_kprobe(&srq_end);
	if (err)
		goto no_srq_end;
	err = register_kprobe(&qp_end);
	if (!err)
		return 0;
	unregister_kprobe(&srq_end);
no_srq_end:
	unregister_kretprobe(&qp_making);
no_qps:
	unregister_kretprobe(&srq_making);
	return err;
}

static void __exit rdmaevent_exit(void)
{
	stop_dropping();
	unregister_kprobe(&qp_end);
	unregister_kprobe(&srq_end);
	unregister_kretprobe(&qp_making);
	unregister_kretprobe(&srq_making);
}

module_init(rdmaevent_init);
module_exit(rdmaevent_exit);
MODULE_DESCRIPTION("Events that Soft-RoCE does not have");
MODULE_LICENSE("GPL");
