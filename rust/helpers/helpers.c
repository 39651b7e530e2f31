// SPDX-License-Identifier: GPL-2.0
/*
 * The kernel's static inlines and macros as functions, see helpers.h. No logic
 * lives here: each function is the one inline that it is named after.
 */

#include "helpers.h"

/* RDMA verbs */

int zrs_helper_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			    const struct ib_send_wr **bad)
{
	return ib_post_send(qp, wr, bad);
}

int zrs_helper_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			    const struct ib_recv_wr **bad)
{
	return ib_post_recv(qp, wr, bad);
}

int zrs_helper_ib_post_srq_recv(struct ib_srq *srq, const struct ib_recv_wr *wr,
				const struct ib_recv_wr **bad)
{
	return ib_post_srq_recv(srq, wr, bad);
}

int zrs_helper_ib_poll_cq(struct ib_cq *cq, int entries, struct ib_wc *wc)
{
	return ib_poll_cq(cq, entries, wc);
}

int zrs_helper_ib_req_notify_cq(struct ib_cq *cq, unsigned int flags)
{
	return ib_req_notify_cq(cq, flags);
}

u64
zrs_helper_ib_dma_map_page(struct ib_device *dev, struct page *page,
			   unsigned long offset, size_t size, int dir)
{
	return ib_dma_map_page(dev, page, offset, size, dir);
}

void zrs_helper_ib_dma_unmap_page(struct ib_device *dev, u64 addr, size_t size,
				  int dir)
{
	ib_dma_unmap_page(dev, addr, size, dir);
}

/* Not for a device with virtual DMA. A bounce page is not copied back. */
void zrs_helper_ib_dma_unmap_unsynced(struct ib_device *dev, u64 addr,
				      size_t size, int dir)
{
	dma_unmap_page_attrs(dev->dma_device, addr, size, dir,
			     DMA_ATTR_SKIP_CPU_SYNC);
}

int zrs_helper_ib_dma_mapping_error(struct ib_device *dev, u64 addr)
{
	return ib_dma_mapping_error(dev, addr);
}

void
zrs_helper_ib_dma_sync_single_for_cpu(struct ib_device *dev, u64 addr,
				      size_t size, int dir)
{
	ib_dma_sync_single_for_cpu(dev, addr, size, dir);
}

void
zrs_helper_ib_dma_sync_single_for_device(struct ib_device *dev, u64 addr,
					 size_t size, int dir)
{
	ib_dma_sync_single_for_device(dev, addr, size, dir);
}

bool zrs_helper_ib_dma_need_sync(struct ib_device *dev, u64 addr)
{
	return !ib_uses_virt_dma(dev) && dma_need_sync(dev->dma_device, addr);
}

bool zrs_helper_ib_uses_virt_dma(struct ib_device *dev)
{
	return ib_uses_virt_dma(dev);
}

bool zrs_helper_rdma_protocol_iwarp(const struct ib_device *dev, u32 port)
{
	return rdma_protocol_iwarp(dev, port);
}

void zrs_helper_ib_update_fast_reg_key(struct ib_mr *mr, u8 key)
{
	ib_update_fast_reg_key(mr, key);
}

bool zrs_helper_ib_device_try_get(struct ib_device *dev)
{
	return ib_device_try_get(dev);
}

int zrs_helper_ibdev_to_node(struct ib_device *dev)
{
	return ibdev_to_node(dev);
}

/* scatterlists: enough for segments that are already mapped */

void zrs_helper_sg_one_mapped(struct scatterlist *sg, u64 addr,
			      unsigned int len)
{
	sg_init_table(sg, 1);
	sg->length = len;
	sg_dma_address(sg) = addr;
	sg_dma_len(sg) = len;
}

/* The elements of a list are set in their order. */
void zrs_helper_sg_set_mapped(struct scatterlist *list, unsigned int count,
			      unsigned int index, u64 addr, unsigned int len)
{
	if (!index)
		sg_init_table(list, count);
	list[index].length = len;
	sg_dma_address(&list[index]) = addr;
	sg_dma_len(&list[index]) = len;
}

/* network namespaces */

struct net *zrs_helper_get_net(struct net *net)
{
	return get_net(net);
}

void zrs_helper_put_net(struct net *net)
{
	put_net(net);
}

struct net *zrs_helper_current_net(void)
{
	return current->nsproxy->net_ns;
}

struct net *zrs_helper_init_net(void)
{
	return &init_net;
}

struct net *zrs_helper_dev_net(const struct net_device *dev)
{
	return dev_net(dev);
}

void zrs_helper_dev_put(struct net_device *dev)
{
	dev_put(dev);
}

unsigned int zrs_helper_net_inum(const struct net *net)
{
	return net->ns.inum;
}

struct user_namespace *zrs_helper_net_user_ns(const struct net *net)
{
	return net->user_ns;
}

/* socks */

void zrs_helper_sock_hold(struct sock *sk)
{
	sock_hold(sk);
}

void zrs_helper_sock_put(struct sock *sk)
{
	sock_put(sk);
}

void *zrs_helper_net_generic(const struct net *net, unsigned int id)
{
	return net_generic(net, id);
}

struct net *zrs_helper_sock_net(const struct sock *sk)
{
	return sock_net(sk);
}

void zrs_helper_sock_orphan(struct sock *sk)
{
	sock_orphan(sk);
}

void zrs_helper_sock_poll_wait(struct file *file, struct socket *sock,
			       poll_table *p)
{
	sock_poll_wait(file, sock, p);
}

long zrs_helper_sock_rcvtimeo(const struct sock *sk, bool noblock)
{
	return sock_rcvtimeo(sk, noblock);
}

long zrs_helper_sock_sndtimeo(const struct sock *sk, bool noblock)
{
	return sock_sndtimeo(sk, noblock);
}

int zrs_helper_sock_rcvlowat(const struct sock *sk, int waitall, int len)
{
	return sock_rcvlowat(sk, waitall, len);
}

void zrs_helper_sock_set_flag(struct sock *sk, enum sock_flags flag)
{
	sock_set_flag(sk, flag);
}

bool zrs_helper_sock_flag(const struct sock *sk, enum sock_flags flag)
{
	return sock_flag(sk, flag);
}

void zrs_helper_lock_sock(struct sock *sk)
{
	lock_sock(sk);
}

void zrs_helper_sk_state_change(struct sock *sk)
{
	sk->sk_state_change(sk);
}

void zrs_helper_sk_data_ready(struct sock *sk)
{
	sk->sk_data_ready(sk);
}

void zrs_helper_sk_wake_async(const struct sock *sk, int how, int band)
{
	sk_wake_async(sk, how, band);
}

void zrs_helper_sk_state_store(struct sock *sk, int state)
{
	/* inet_sk_state_store is not exported. */
	smp_store_release(&sk->sk_state, state);
}

/* messages and iterators */

size_t zrs_helper_iov_iter_count(const struct iov_iter *i)
{
	return iov_iter_count(i);
}

bool zrs_helper_iov_iter_extract_will_pin(const struct iov_iter *i)
{
	return iov_iter_extract_will_pin(i);
}

size_t zrs_helper_copy_to_iter(const void *addr, size_t bytes,
			       struct iov_iter *i)
{
	return copy_to_iter(addr, bytes, i);
}

bool zrs_helper_sendpage_ok(struct page *page)
{
	return sendpage_ok(page);
}

/* pages */

void *zrs_helper_page_address(const struct page *page)
{
	return page_address(page);
}

unsigned long zrs_helper_page_to_pfn(const struct page *page)
{
	return page_to_pfn(page);
}

struct page *zrs_helper_pfn_to_page(unsigned long pfn)
{
	return pfn_to_page(pfn);
}

void zrs_helper_get_page(struct page *page)
{
	get_page(page);
}

void zrs_helper_put_page(struct page *page)
{
	put_page(page);
}

int zrs_helper_page_ref_count(const struct page *page)
{
	return page_ref_count(page);
}

struct page *zrs_helper_alloc_contig_pages(unsigned long nr, gfp_t gfp, int nid,
					   nodemask_t *mask)
{
	return alloc_contig_pages(nr, gfp, nid, mask);
}

struct page *zrs_helper_alloc_pages_node(int nid, gfp_t gfp, unsigned int order)
{
	return alloc_pages_node(nid, gfp, order);
}

/* memory areas */

/* waiting, work, time */

bool zrs_helper_wq_has_sleeper(struct wait_queue_head *wq)
{
	return wq_has_sleeper(wq);
}

bool zrs_helper_waitqueue_active(struct wait_queue_head *wq)
{
	/* The caller has the barrier. */
	return waitqueue_active(wq);
}

struct workqueue_struct *
zrs_helper_alloc_workqueue(const char *name, unsigned int flags, int max_active)
{
	return alloc_workqueue("%s", flags, max_active, name);
}

bool zrs_helper_fatal_signal_pending(void)
{
	return fatal_signal_pending(current);
}

void zrs_helper_cond_resched(void)
{
	cond_resched();
}

unsigned long zrs_helper_msecs_to_jiffies(unsigned int ms)
{
	return msecs_to_jiffies(ms);
}

/* rights, files, modules, copies */

bool zrs_helper_ns_capable(struct user_namespace *ns, int cap)
{
	return ns_capable(ns, cap);
}

void zrs_helper_fd_install(unsigned int fd, struct file *file)
{
	fd_install(fd, file);
}

int zrs_helper_copy_from_sockptr(void *to, sockptr_t from, size_t n)
{
	return copy_from_sockptr(to, from, n);
}

