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

int zrs_helper_ib_dma_mapping_error(struct ib_device *dev, u64 addr)
{
	return ib_dma_mapping_error(dev, addr);
}

unsigned int zrs_helper_ib_dma_max_seg_size(struct ib_device *dev)
{
	return ib_dma_max_seg_size(dev);
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

bool zrs_helper_ib_uses_virt_dma(struct ib_device *dev)
{
	return ib_uses_virt_dma(dev);
}

void zrs_helper_ib_update_fast_reg_key(struct ib_mr *mr, u8 key)
{
	ib_update_fast_reg_key(mr, key);
}

u32 zrs_helper_ib_inc_rkey(u32 rkey)
{
	return ib_inc_rkey(rkey);
}

bool zrs_helper_ib_device_try_get(struct ib_device *dev)
{
	return ib_device_try_get(dev);
}

void *zrs_helper_ib_get_client_data(struct ib_device *dev,
				    struct ib_client *client)
{
	return ib_get_client_data(dev, client);
}

bool zrs_helper_rdma_cap_ib_cm(struct ib_device *dev, u32 port)
{
	return rdma_cap_ib_cm(dev, port);
}

bool zrs_helper_rdma_cap_iw_cm(struct ib_device *dev, u32 port)
{
	return rdma_cap_iw_cm(dev, port);
}

int zrs_helper_ibdev_to_node(struct ib_device *dev)
{
	return ibdev_to_node(dev);
}

bool zrs_helper_rdma_protocol_roce(struct ib_device *dev, u32 port)
{
	return rdma_protocol_roce(dev, port);
}

/* scatterlists: enough for one segment that is already mapped */

void zrs_helper_sg_one_mapped(struct scatterlist *sg, u64 addr,
			      unsigned int len)
{
	sg_init_table(sg, 1);
	sg->length = len;
	sg_dma_address(sg) = addr;
	sg_dma_len(sg) = len;
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

unsigned int zrs_helper_net_inum(const struct net *net)
{
	return net->ns.inum;
}

struct user_namespace *zrs_helper_net_user_ns(const struct net *net)
{
	return net->user_ns;
}

bool zrs_helper_check_net(const struct net *net)
{
	return check_net(net);
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

struct net *zrs_helper_sock_net(const struct sock *sk)
{
	return sock_net(sk);
}

void zrs_helper_sock_graft(struct sock *sk, struct socket *parent)
{
	sock_graft(sk, parent);
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

int zrs_helper_sock_intr_errno(long timeo)
{
	return sock_intr_errno(timeo);
}

int zrs_helper_sock_error(struct sock *sk)
{
	return sock_error(sk);
}

void zrs_helper_sock_set_flag(struct sock *sk, enum sock_flags flag)
{
	sock_set_flag(sk, flag);
}

void zrs_helper_sock_reset_flag(struct sock *sk, enum sock_flags flag)
{
	sock_reset_flag(sk, flag);
}

bool zrs_helper_sock_flag(const struct sock *sk, enum sock_flags flag)
{
	return sock_flag(sk, flag);
}

void zrs_helper_lock_sock(struct sock *sk)
{
	lock_sock(sk);
}

bool zrs_helper_sock_owned_by_user(const struct sock *sk)
{
	return sock_owned_by_user(sk);
}

void zrs_helper_bh_lock_sock(struct sock *sk)
{
	bh_lock_sock(sk);
}

void zrs_helper_bh_unlock_sock(struct sock *sk)
{
	bh_unlock_sock(sk);
}

wait_queue_head_t *zrs_helper_sk_sleep(struct sock *sk)
{
	return sk_sleep(sk);
}

void zrs_helper_sk_acceptq_added(struct sock *sk)
{
	sk_acceptq_added(sk);
}

void zrs_helper_sk_acceptq_removed(struct sock *sk)
{
	sk_acceptq_removed(sk);
}

bool zrs_helper_sk_acceptq_is_full(const struct sock *sk)
{
	return sk_acceptq_is_full(sk);
}

void zrs_helper_sk_state_change(struct sock *sk)
{
	sk->sk_state_change(sk);
}

void zrs_helper_sk_data_ready(struct sock *sk)
{
	sk->sk_data_ready(sk);
}

void zrs_helper_sk_write_space(struct sock *sk)
{
	sk->sk_write_space(sk);
}

void zrs_helper_sk_mem_charge(struct sock *sk, int size)
{
	sk_mem_charge(sk, size);
}

void zrs_helper_sk_mem_uncharge(struct sock *sk, int size)
{
	sk_mem_uncharge(sk, size);
}

bool zrs_helper_sk_wmem_schedule(struct sock *sk, int size)
{
	return sk_wmem_schedule(sk, size);
}

void zrs_helper_sk_mem_reclaim(struct sock *sk)
{
	sk_mem_reclaim(sk);
}

void zrs_helper_sk_wake_async(const struct sock *sk, int how, int band)
{
	sk_wake_async(sk, how, band);
}

struct inet_sock *zrs_helper_inet_sk(struct sock *sk)
{
	return inet_sk(sk);
}

int zrs_helper_sk_state_load(const struct sock *sk)
{
	return inet_sk_state_load(sk);
}

void zrs_helper_sk_state_store(struct sock *sk, int state)
{
	/* inet_sk_state_store is not exported. */
	smp_store_release(&sk->sk_state, state);
}

bool zrs_helper_skb_queue_empty(const struct sk_buff_head *list)
{
	return skb_queue_empty_lockless(list);
}

void
zrs_helper_sock_init_class(struct sock *sk, const char *slock_name,
			   struct lock_class_key *slock_key, const char *lock_name,
			   struct lock_class_key *lock_key)
{
	sock_lock_init_class_and_name(sk, slock_name, slock_key, lock_name, lock_key);
}

/* messages and iterators */

size_t zrs_helper_msg_data_left(struct msghdr *msg)
{
	return msg_data_left(msg);
}

size_t zrs_helper_iov_iter_count(const struct iov_iter *i)
{
	return iov_iter_count(i);
}

bool zrs_helper_iov_iter_extract_will_pin(const struct iov_iter *i)
{
	return iov_iter_extract_will_pin(i);
}

bool zrs_helper_user_backed_iter(const struct iov_iter *i)
{
	return user_backed_iter(i);
}

size_t zrs_helper_copy_to_iter(const void *addr, size_t bytes,
			       struct iov_iter *i)
{
	return copy_to_iter(addr, bytes, i);
}

size_t zrs_helper_copy_from_iter(void *addr, size_t bytes, struct iov_iter *i)
{
	return copy_from_iter(addr, bytes, i);
}

size_t zrs_helper_copy_page_to_iter(struct page *page, size_t offset,
				    size_t bytes, struct iov_iter *i)
{
	return copy_page_to_iter(page, offset, bytes, i);
}

bool zrs_helper_sendpage_ok(struct page *page)
{
	return sendpage_ok(page);
}

/* pages */

struct page *zrs_helper_virt_to_page(const void *addr)
{
	return virt_to_page(addr);
}

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

void zrs_helper_clear_page(void *page)
{
	clear_page(page);
}

int zrs_helper_page_to_nid(const struct page *page)
{
	return page_to_nid(page);
}

bool zrs_helper_page_maybe_dma_pinned(struct page *page)
{
	return folio_maybe_dma_pinned(page_folio(page));
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

void zrs_helper_vm_flags_set(struct vm_area_struct *vma, vm_flags_t flags)
{
	vm_flags_set(vma, flags);
}

void zrs_helper_vm_flags_clear(struct vm_area_struct *vma, vm_flags_t flags)
{
	vm_flags_clear(vma, flags);
}

void zrs_helper_vm_flags_mod(struct vm_area_struct *vma, vm_flags_t set,
			     vm_flags_t clear)
{
	vm_flags_mod(vma, set, clear);
}

struct inode *zrs_helper_file_inode(const struct file *file)
{
	return file_inode(file);
}

/* waiting, work, time */

void
zrs_helper_init_waitqueue_head(struct wait_queue_head *wq, const char *name,
			       struct lock_class_key *key)
{
	__init_waitqueue_head(wq, name, key);
}

bool zrs_helper_wq_has_sleeper(struct wait_queue_head *wq)
{
	return wq_has_sleeper(wq);
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

bool zrs_helper_signal_pending_current(void)
{
	return signal_pending(current);
}

void zrs_helper_set_current_state(unsigned int state)
{
	set_current_state(state);
}

void zrs_helper_cond_resched(void)
{
	cond_resched();
}

unsigned long zrs_helper_msecs_to_jiffies(unsigned int ms)
{
	return msecs_to_jiffies(ms);
}

unsigned long zrs_helper_spin_lock_irqsave(spinlock_t *lock)
{
	unsigned long flags;

	spin_lock_irqsave(lock, flags);
	return flags;
}

void zrs_helper_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags)
{
	spin_unlock_irqrestore(lock, flags);
}

void zrs_helper_spin_lock_bh(spinlock_t *lock)
{
	spin_lock_bh(lock);
}

void zrs_helper_spin_unlock_bh(spinlock_t *lock)
{
	spin_unlock_bh(lock);
}

void
zrs_helper_timer_setup(struct timer_list *timer,
		       void (*func)(struct timer_list *timer), unsigned int flags)
{
	timer_setup(timer, func, flags);
}

/* rights, files, modules, copies */

bool zrs_helper_ns_capable(struct user_namespace *ns, int cap)
{
	return ns_capable(ns, cap);
}

bool zrs_helper_try_module_get(struct module *module)
{
	return try_module_get(module);
}

void zrs_helper_fd_install(unsigned int fd, struct file *file)
{
	fd_install(fd, file);
}

unsigned long zrs_helper_copy_from_user(void *to, const void __user *from,
					unsigned long n)
{
	return copy_from_user(to, from, n);
}

unsigned long zrs_helper_copy_to_user(void __user *to, const void *from,
				      unsigned long n)
{
	return copy_to_user(to, from, n);
}

int zrs_helper_copy_from_sockptr(void *to, sockptr_t from, size_t n)
{
	return copy_from_sockptr(to, from, n);
}

int zrs_helper_copy_to_sockptr(sockptr_t to, const void *from, size_t n)
{
	return copy_to_sockptr(to, from, n);
}

unsigned long zrs_helper_rlimit(unsigned int limit)
{
	return rlimit(limit);
}
