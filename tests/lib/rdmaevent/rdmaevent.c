// SPDX-License-Identifier: GPL-2.0
/*
 * A device's failure: the name of a network interface in the writer's network
 * namespace, written to the parameter "fatal", makes the RDMA core tell
 * everybody that the interface's RDMA device has failed.
 */
#include <linux/module.h>
#include <linux/netdevice.h>
#include <linux/nsproxy.h>
#include <linux/sched.h>
#include <rdma/ib_verbs.h>

static int fatal_set(const char *name, const struct kernel_param *kp)
{
	char text[IFNAMSIZ];
	struct net_device *netdev;
	struct ib_event event = { .event = IB_EVENT_DEVICE_FATAL };

	if (strscpy(text, name) < 0)
		return -EINVAL;
	netdev = dev_get_by_name(current->nsproxy->net_ns, strim(text));
	if (!netdev)
		return -ENODEV;
	event.device = ib_device_get_by_netdev(netdev, RDMA_DRIVER_UNKNOWN);
	dev_put(netdev);
	if (!event.device)
		return -ENODEV;
	event.element.port_num = 1;
	/* The core delivers it in a work item, which the device's end waits for. */
	ib_dispatch_event(&event);
	ib_device_put(event.device);
	return 0;
}

static const struct kernel_param_ops fatal_ops = { .set = fatal_set };
module_param_cb(fatal, &fatal_ops, NULL, 0200);
MODULE_PARM_DESC(fatal, "interface of the RDMA device that fails");

MODULE_DESCRIPTION("Failures of RDMA devices");
MODULE_LICENSE("GPL");
