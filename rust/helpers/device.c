// SPDX-License-Identifier: GPL-2.0
/* The network namespaces that can use an RDMA device. */

#include "helpers.h"

#include <linux/if_arp.h>
#include <linux/netdevice.h>
#include <rdma/ib_cache.h>

/*
 * Whether a GID of the port belongs to an interface of the namespace: the
 * device's own one, or one on top of it.
 */
static bool has_gid(struct ib_device *dev, u32 port, const struct net *net)
{
	const struct ib_gid_attr *attr;
	struct net_device *ndev;
	bool found = false;
	int i;

	for (i = 0; !found; i++) {
		attr = rdma_get_gid_attr(dev, port, i);
		if (PTR_ERR_OR_ZERO(attr) == -ENODATA)
			continue;
		if (IS_ERR(attr))
			return false;
		rcu_read_lock();
		ndev = rdma_read_gid_attr_ndev_rcu(attr);
		found = !IS_ERR(ndev) && net_eq(dev_net(ndev), net);
		rcu_read_unlock();
		rdma_put_gid_attr(attr);
	}
	return true;
}

/* The same for InfiniBand, whose GIDs do not tell the interface of IPoIB. */
static bool has_ipoib(const struct ib_device *dev, struct net *net)
{
	struct net_device *ndev;
	bool found = false;

	rcu_read_lock();
	for_each_netdev_rcu(net, ndev) {
		found = ndev->type == ARPHRD_INFINIBAND &&
			ndev->dev.parent == dev->dev.parent;
		if (found)
			break;
	}
	rcu_read_unlock();
	return found;
}

/*
 * Whether connections of the namespace can be on the device: the core lets the
 * namespace use it, and an interface of the device is there, as
 * cma_validate_port() has it.
 */
bool zrs_helper_rdma_dev_in_net(struct ib_device *dev, struct net *net)
{
	u32 port;

	if (!rdma_dev_access_netns(dev, net))
		return false;
	rdma_for_each_port(dev, port) {
		if (rdma_protocol_ib(dev, port) ? has_ipoib(dev, net) :
						  has_gid(dev, port, net))
			return true;
	}
	return false;
}
