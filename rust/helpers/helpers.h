/* SPDX-License-Identifier: GPL-2.0 */
/*
 * Static inlines and macros of the kernel as functions that Rust can call: the prototypes, for
 * helpers.c and for the bindgen pass. Each function does no more than the inline it is named after.
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
void zrs_helper_ib_dma_unmap_unsynced(struct ib_device *dev, u64 addr,
				      size_t size, int dir);
int zrs_helper_ib_dma_mapping_error(struct ib_device *dev, u64 addr);
void
zrs_helper_ib_dma_sync_single_for_cpu(struct ib_device *dev, u64 addr,
				      size_t size, int dir);
void
zrs_helper_ib_dma_sync_single_for_device(struct ib_device *dev, u64 addr,
					 size_t size, int dir);
bool zrs_helper_ib_dma_need_sync(struct ib_device *dev, u64 addr);
bool zrs_helper_ib_uses_virt_dma(struct ib_device *dev);
bool zrs_helper_rdma_protocol_iwarp(const struct ib_device *dev, u32 port);
void zrs_helper_ib_update_fast_reg_key(struct ib_mr *mr, u8 key);
bool zrs_helper_ib_device_try_get(struct ib_device *dev);
int zrs_helper_ibdev_to_node(struct ib_device *dev);
/* in device.c */
bool zrs_helper_rdma_dev_in_net(struct ib_device *dev, struct net *net);

/* scatterlists: enough for segments that are already mapped */
void zrs_helper_sg_one_mapped(struct scatterlist *sg, u64 addr,
			      unsigned int len);
void zrs_helper_sg_set_mapped(struct scatterlist *list, unsigned int count,
			      unsigned int index, u64 addr, unsigned int len);

/* network namespaces */
struct net *zrs_helper_get_net(struct net *net);
void zrs_helper_put_net(struct net *net);
struct net *zrs_helper_current_net(void);
struct net *zrs_helper_init_net(void);
struct net *zrs_helper_dev_net(const struct net_device *dev);
void zrs_helper_dev_put(struct net_device *dev);
unsigned int zrs_helper_net_inum(const struct net *net);
struct user_namespace *zrs_helper_net_user_ns(const struct net *net);

/* socks */
void zrs_helper_sock_hold(struct sock *sk);
void zrs_helper_sock_put(struct sock *sk);
struct net *zrs_helper_sock_net(const struct sock *sk);
void *zrs_helper_net_generic(const struct net *net, unsigned int id);
void zrs_helper_sock_orphan(struct sock *sk);
void zrs_helper_sock_poll_wait(struct file *file, struct socket *sock,
			       poll_table *p);
long zrs_helper_sock_rcvtimeo(const struct sock *sk, bool noblock);
long zrs_helper_sock_sndtimeo(const struct sock *sk, bool noblock);
int zrs_helper_sock_rcvlowat(const struct sock *sk, int waitall, int len);
void zrs_helper_sock_set_flag(struct sock *sk, enum sock_flags flag);
bool zrs_helper_sock_flag(const struct sock *sk, enum sock_flags flag);
void zrs_helper_lock_sock(struct sock *sk);
void zrs_helper_sk_state_change(struct sock *sk);
void zrs_helper_sk_data_ready(struct sock *sk);
void zrs_helper_sk_wake_async(const struct sock *sk, int how, int band);
void zrs_helper_sk_state_store(struct sock *sk, int state);

/* messages and iterators */
size_t zrs_helper_iov_iter_count(const struct iov_iter *i);
bool zrs_helper_iov_iter_extract_will_pin(const struct iov_iter *i);
size_t zrs_helper_copy_to_iter(const void *addr, size_t bytes,
			       struct iov_iter *i);
bool zrs_helper_sendpage_ok(struct page *page);

/* pages */
void *zrs_helper_page_address(const struct page *page);
unsigned long zrs_helper_page_to_pfn(const struct page *page);
struct page *zrs_helper_pfn_to_page(unsigned long pfn);
void zrs_helper_get_page(struct page *page);
void zrs_helper_put_page(struct page *page);
int zrs_helper_page_ref_count(const struct page *page);
struct page *zrs_helper_alloc_contig_pages(unsigned long nr, gfp_t gfp, int nid,
					   nodemask_t *mask);
struct page *zrs_helper_alloc_pages_node(int nid, gfp_t gfp,
					 unsigned int order);

/* memory areas */

/* waiting, work, time */
bool zrs_helper_wq_has_sleeper(struct wait_queue_head *wq);
bool zrs_helper_waitqueue_active(struct wait_queue_head *wq);
struct workqueue_struct *
zrs_helper_alloc_workqueue(const char *name, unsigned int flags,
			   int max_active);
bool zrs_helper_fatal_signal_pending(void);
void zrs_helper_cond_resched(void);
unsigned long zrs_helper_msecs_to_jiffies(unsigned int ms);

/* rights, files, modules, copies */
bool zrs_helper_ns_capable(struct user_namespace *ns, int cap);
void zrs_helper_fd_install(unsigned int fd, struct file *file);
int zrs_helper_copy_from_sockptr(void *to, sockptr_t from, size_t n);

/* Sizes and offsets as the C compiler has them, see layout.c. */
#define ZRS_LAYOUT_LEN 47

extern const unsigned int zrs_layout[ZRS_LAYOUT_LEN];

#endif /* ZRS_HELPERS_H */
