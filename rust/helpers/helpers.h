/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What the kernel has as static inlines and macros, as functions that Rust can
 * call: the prototypes, for helpers.c and for the bindgen pass. Nothing here
 * does more than the inline it is named after.
 */
#ifndef ZRS_HELPERS_H
#define ZRS_HELPERS_H

#include <linux/errqueue.h>
#include <linux/file.h>
#include <linux/gfp.h>
#include <linux/ipv6.h>
#include <linux/miscdevice.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/net.h>
#include <linux/nsproxy.h>
#include <linux/poll.h>
#include <linux/sched/signal.h>
#include <linux/shrinker.h>
#include <linux/skbuff.h>
#include <linux/socket.h>
#include <linux/timer.h>
#include <linux/uio.h>
#include <linux/vmalloc.h>
#include <linux/wait.h>
#include <linux/workqueue.h>
#include <net/inet_common.h>
#include <net/inet_sock.h>
#include <net/ipv6.h>
#include <net/net_namespace.h>
#include <net/netns/generic.h>
#include <net/protocol.h>
#include <net/sock.h>
#include <net/transp_v6.h>
#include <rdma/ib_addr.h>
#include <rdma/ib_cm.h>
#include <rdma/ib_verbs.h>
#include <rdma/rdma_cm.h>

/* RDMA verbs */
int zrs_helper_ib_post_send(struct ib_qp *qp, const struct ib_send_wr *wr,
			    const struct ib_send_wr **bad);
int zrs_helper_ib_post_recv(struct ib_qp *qp, const struct ib_recv_wr *wr,
			    const struct ib_recv_wr **bad);
int zrs_helper_ib_post_srq_recv(struct ib_srq *srq, const struct ib_recv_wr *wr,
				const struct ib_recv_wr **bad);
int zrs_helper_ib_poll_cq(struct ib_cq *cq, int entries, struct ib_wc *wc);
int zrs_helper_ib_req_notify_cq(struct ib_cq *cq, unsigned int flags);
u64
zrs_helper_ib_dma_map_page(struct ib_device *dev, struct page *page,
			   unsigned long offset, size_t size, int dir);
void zrs_helper_ib_dma_unmap_page(struct ib_device *dev, u64 addr, size_t size,
				  int dir);
int zrs_helper_ib_dma_mapping_error(struct ib_device *dev, u64 addr);
unsigned int zrs_helper_ib_dma_max_seg_size(struct ib_device *dev);
void
zrs_helper_ib_dma_sync_single_for_cpu(struct ib_device *dev, u64 addr,
				      size_t size, int dir);
void
zrs_helper_ib_dma_sync_single_for_device(struct ib_device *dev, u64 addr,
					 size_t size, int dir);
bool zrs_helper_ib_uses_virt_dma(struct ib_device *dev);
void zrs_helper_ib_update_fast_reg_key(struct ib_mr *mr, u8 key);
u32 zrs_helper_ib_inc_rkey(u32 rkey);
bool zrs_helper_ib_device_try_get(struct ib_device *dev);
void *zrs_helper_ib_get_client_data(struct ib_device *dev,
				    struct ib_client *client);
bool zrs_helper_rdma_cap_ib_cm(struct ib_device *dev, u32 port);
bool zrs_helper_rdma_cap_iw_cm(struct ib_device *dev, u32 port);
int zrs_helper_ibdev_to_node(struct ib_device *dev);
bool zrs_helper_rdma_protocol_roce(struct ib_device *dev, u32 port);

/* scatterlists: enough for one segment that is already mapped */
void zrs_helper_sg_one_mapped(struct scatterlist *sg, u64 addr,
			      unsigned int len);

/* network namespaces */
struct net *zrs_helper_get_net(struct net *net);
void zrs_helper_put_net(struct net *net);
struct net *zrs_helper_current_net(void);
struct net *zrs_helper_init_net(void);
unsigned int zrs_helper_net_inum(const struct net *net);
struct user_namespace *zrs_helper_net_user_ns(const struct net *net);
bool zrs_helper_check_net(const struct net *net);

/* socks */
void zrs_helper_sock_hold(struct sock *sk);
void zrs_helper_sock_put(struct sock *sk);
struct net *zrs_helper_sock_net(const struct sock *sk);
void zrs_helper_sock_graft(struct sock *sk, struct socket *parent);
void zrs_helper_sock_orphan(struct sock *sk);
void zrs_helper_sock_poll_wait(struct file *file, struct socket *sock,
			       poll_table *p);
long zrs_helper_sock_rcvtimeo(const struct sock *sk, bool noblock);
long zrs_helper_sock_sndtimeo(const struct sock *sk, bool noblock);
int zrs_helper_sock_rcvlowat(const struct sock *sk, int waitall, int len);
int zrs_helper_sock_intr_errno(long timeo);
int zrs_helper_sock_error(struct sock *sk);
void zrs_helper_sock_set_flag(struct sock *sk, enum sock_flags flag);
void zrs_helper_sock_reset_flag(struct sock *sk, enum sock_flags flag);
bool zrs_helper_sock_flag(const struct sock *sk, enum sock_flags flag);
void zrs_helper_lock_sock(struct sock *sk);
bool zrs_helper_sock_owned_by_user(const struct sock *sk);
void zrs_helper_bh_lock_sock(struct sock *sk);
void zrs_helper_bh_unlock_sock(struct sock *sk);
wait_queue_head_t *zrs_helper_sk_sleep(struct sock *sk);
void zrs_helper_sk_acceptq_added(struct sock *sk);
void zrs_helper_sk_acceptq_removed(struct sock *sk);
bool zrs_helper_sk_acceptq_is_full(const struct sock *sk);
void zrs_helper_sk_state_change(struct sock *sk);
void zrs_helper_sk_data_ready(struct sock *sk);
void zrs_helper_sk_write_space(struct sock *sk);
void zrs_helper_sk_mem_charge(struct sock *sk, int size);
void zrs_helper_sk_mem_uncharge(struct sock *sk, int size);
bool zrs_helper_sk_wmem_schedule(struct sock *sk, int size);
void zrs_helper_sk_mem_reclaim(struct sock *sk);
void zrs_helper_sk_wake_async(const struct sock *sk, int how, int band);
struct inet_sock *zrs_helper_inet_sk(struct sock *sk);
int zrs_helper_sk_state_load(const struct sock *sk);
void zrs_helper_sk_state_store(struct sock *sk, int state);
bool zrs_helper_skb_queue_empty(const struct sk_buff_head *list);
void
zrs_helper_sock_init_class(struct sock *sk, const char *slock_name,
			   struct lock_class_key *slock_key, const char *lock_name,
			   struct lock_class_key *lock_key);

/* messages and iterators */
size_t zrs_helper_msg_data_left(struct msghdr *msg);
size_t zrs_helper_iov_iter_count(const struct iov_iter *i);
bool zrs_helper_iov_iter_extract_will_pin(const struct iov_iter *i);
bool zrs_helper_user_backed_iter(const struct iov_iter *i);
size_t zrs_helper_copy_to_iter(const void *addr, size_t bytes,
			       struct iov_iter *i);
size_t zrs_helper_copy_from_iter(void *addr, size_t bytes, struct iov_iter *i);
size_t zrs_helper_copy_page_to_iter(struct page *page, size_t offset,
				    size_t bytes, struct iov_iter *i);
bool zrs_helper_sendpage_ok(struct page *page);

/* pages */
struct page *zrs_helper_virt_to_page(const void *addr);
void *zrs_helper_page_address(const struct page *page);
unsigned long zrs_helper_page_to_pfn(const struct page *page);
struct page *zrs_helper_pfn_to_page(unsigned long pfn);
void zrs_helper_get_page(struct page *page);
void zrs_helper_put_page(struct page *page);
int zrs_helper_page_ref_count(const struct page *page);
void zrs_helper_clear_page(void *page);
int zrs_helper_page_to_nid(const struct page *page);
bool zrs_helper_page_maybe_dma_pinned(struct page *page);
struct page *zrs_helper_alloc_contig_pages(unsigned long nr, gfp_t gfp, int nid,
					   nodemask_t *mask);
struct page *zrs_helper_alloc_pages_node(int nid, gfp_t gfp,
					 unsigned int order);

/* memory areas */
void zrs_helper_vm_flags_set(struct vm_area_struct *vma, vm_flags_t flags);
void zrs_helper_vm_flags_clear(struct vm_area_struct *vma, vm_flags_t flags);
void zrs_helper_vm_flags_mod(struct vm_area_struct *vma, vm_flags_t set,
			     vm_flags_t clear);
struct inode *zrs_helper_file_inode(const struct file *file);

/* waiting, work, time */
void
zrs_helper_init_waitqueue_head(struct wait_queue_head *wq, const char *name,
			       struct lock_class_key *key);
bool zrs_helper_wq_has_sleeper(struct wait_queue_head *wq);
struct workqueue_struct *
zrs_helper_alloc_workqueue(const char *name, unsigned int flags,
			   int max_active);
bool zrs_helper_fatal_signal_pending(void);
bool zrs_helper_signal_pending_current(void);
void zrs_helper_set_current_state(unsigned int state);
void zrs_helper_cond_resched(void);
unsigned long zrs_helper_msecs_to_jiffies(unsigned int ms);
unsigned long zrs_helper_spin_lock_irqsave(spinlock_t *lock);
void zrs_helper_spin_unlock_irqrestore(spinlock_t *lock, unsigned long flags);
void zrs_helper_spin_lock_bh(spinlock_t *lock);
void zrs_helper_spin_unlock_bh(spinlock_t *lock);
void
zrs_helper_timer_setup(struct timer_list *timer,
		       void (*func)(struct timer_list *timer), unsigned int flags);

/* rights, files, modules, copies */
bool zrs_helper_ns_capable(struct user_namespace *ns, int cap);
bool zrs_helper_try_module_get(struct module *module);
void zrs_helper_fd_install(unsigned int fd, struct file *file);
unsigned long zrs_helper_copy_from_user(void *to, const void __user *from,
					unsigned long n);
unsigned long zrs_helper_copy_to_user(void __user *to, const void *from,
				      unsigned long n);
int zrs_helper_copy_from_sockptr(void *to, sockptr_t from, size_t n);
int zrs_helper_copy_to_sockptr(sockptr_t to, const void *from, size_t n);
unsigned long zrs_helper_rlimit(unsigned int limit);

/* Sizes and offsets as the C compiler has them, see layout.c. */
#define ZRS_LAYOUT_LEN 47

extern const unsigned int zrs_layout[ZRS_LAYOUT_LEN];

#endif /* ZRS_HELPERS_H */
