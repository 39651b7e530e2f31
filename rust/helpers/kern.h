/* SPDX-License-Identifier: GPL-2.0 */
/*
 * More of helpers.h, for rust/kern: prototypes for kern.c and the bindgen pass.
 */
#ifndef ZRS_HELPERS_KERN_H
#define ZRS_HELPERS_KERN_H

#include "helpers.h"

#include <linux/anon_inodes.h>
#include <linux/fault-inject.h>
#include <linux/fs_context.h>
#include <linux/memfd.h>
#include <linux/pipe_fs_i.h>
#include <linux/pseudo_fs.h>
#include <linux/splice.h>

/* files */
void zrs_helper_poll_wait(struct file *file, wait_queue_head_t *head,
			  struct poll_table_struct *p);

/* percpu.c */
#define ZRS_HELPER_COUNTERS 16
s64 __percpu *zrs_helper_counters(void);
s64 __percpu *zrs_helper_alloc_counters(size_t n);
void zrs_helper_this_cpu_add(s64 __percpu *counter, s64 n);
s64 zrs_helper_this_cpu_add_return(s64 __percpu *counter, s64 n);
s64 zrs_helper_percpu_sum(s64 __percpu *counter);

/* memory */
void *zrs_helper_charge_locked(unsigned long pages);
void zrs_helper_uncharge_locked(void *charged, unsigned long pages);
bool zrs_helper_pages_dirty(struct page **pages, unsigned long n);
int zrs_helper_numa_mem_id(void);
bool zrs_helper_node_online(int nid);
unsigned long zrs_helper_totalram_pages(void);
void *zrs_helper_vmalloc_account(unsigned long bytes);

struct mem_cgroup *zrs_helper_sk_memcg_get(const struct sock *sk);
void zrs_helper_mem_cgroup_get(struct mem_cgroup *memcg);
void zrs_helper_mem_cgroup_put(struct mem_cgroup *memcg);
struct mem_cgroup *zrs_helper_set_active_memcg(struct mem_cgroup *memcg);

void zrs_helper_smp_mb(void);

void zrs_helper_pagefault_disable(void);
void zrs_helper_pagefault_enable(void);

size_t zrs_helper_folio_nr_pages(const struct folio *folio);
struct page *zrs_helper_folio_page(struct folio *folio, size_t n);
bool zrs_helper_is_page_hwpoison(const struct page *page);

/* timers */
enum hrtimer_restart zrs_helper_HRTIMER_NORESTART(void);

/* socks */
void zrs_helper_sock_reclassify(struct sock *sk);
bool zrs_helper_inet_port_requires_bind_service(struct net *net,
						unsigned short port);
bool zrs_helper_inet_is_local_reserved_port(const struct net *net,
					    unsigned short port);
u64 zrs_helper_net_cookie(const struct net *net);
int zrs_helper_route_ifindex(struct net *net, __be32 remote, __be32 local);
int zrs_helper_route6_ifindex(struct net *net, const struct in6_addr *remote,
			      const struct in6_addr *local, int scope);
bool zrs_helper_route_source(struct net *net, __be32 remote, int oif,
			     __be32 *source);
bool zrs_helper_route6_source(struct net *net, const struct in6_addr *remote,
			      int oif, struct in6_addr *source);
u8 zrs_helper_default_ttl(const struct sock *sk);
int zrs_helper_default_hop_limit(const struct sock *sk);
void zrs_helper_sock_valbool_flag(struct sock *sk, enum sock_flags flag,
				  int value);
bool zrs_helper_skb_queue_empty_lockless(const struct sk_buff_head *list);
void zrs_helper_sock_lend_queue(struct sock *sk, struct socket *to,
				struct file *file);
int zrs_helper_sock_queue_error(struct sock *sk,
				const struct sockaddr_in6 *remote,
				int errno, bool so_error);
void zrs_helper_sock_move_error(struct sock *from, struct sock *to);
int zrs_helper_sock_set_number(struct socket *sock, int level, int name,
			       int value);
int zrs_helper_tcp_autobind(struct sock *sk, unsigned short port);

/* programs of a sock's cgroups: in cgroup.c */
bool zrs_helper_cgroup_filters_packets(void);
int zrs_helper_cgroup_bind(struct sock *sk, void *addr, bool *low_ports);
int zrs_helper_cgroup_post_bind(struct sock *sk);
int zrs_helper_cgroup_connect(struct sock *sk, void *addr);
int zrs_helper_cgroup_sendmsg(struct sock *sk, void *addr, void *source);
int zrs_helper_cgroup_recvmsg(struct sock *sk, void *addr);
int zrs_helper_cgroup_name(struct sock *sk, void *addr, bool peer);
void zrs_helper_cgroup_release(struct sock *sk);
int zrs_helper_cgroup_packets(struct sock *sk, const struct sockaddr_in6 *own,
			      const struct sockaddr_in6 *remote, bool outgoing);
bool zrs_helper_cgroup_filters_datagrams(struct sock *sk, bool outgoing);
int zrs_helper_cgroup_datagram(struct sock *sk, const struct sockaddr_in6 *own,
			       const struct sockaddr_in6 *remote, u16 len, bool outgoing);

/* a sock's own filter: in cgroup.c */
struct sk_buff *zrs_helper_filter_packet(struct sock *sk, const struct sockaddr_in6 *own,
					 const struct sockaddr_in6 *from, u16 len);
u32 zrs_helper_filter_run(struct sock *sk, struct sk_buff *skb);
void zrs_helper_filter_share(struct sock *from, struct sock *to);

/* keys, of the type "logon": in keys.c */
void *zrs_helper_request_logon_key(const char *description);
void zrs_helper_key_put(void *key);
int zrs_helper_key_validate(void *key);
unsigned int zrs_helper_key_bytes(void *key);
int zrs_helper_key_hmac_sha256(void *key, const u8 *data, size_t len, u8 *out);

/* sends that tell when they are done with their pages */
void zrs_helper_net_zcopy_get(struct ubuf_info *uarg);
void zrs_helper_net_zcopy_complete(struct ubuf_info *uarg, bool success);
void zrs_helper_net_zcopy_put_abort(struct ubuf_info *uarg);

/* the C compiler's view, checked before the first sock is made */
size_t zrs_helper_sizeof_sock(void);
size_t zrs_helper_sizeof_inet_sock(void);
size_t zrs_helper_sizeof_proto(void);
size_t zrs_helper_sizeof_proto_ops(void);

/* processors */
#ifdef CONFIG_X86
void zrs_helper_cpuid_count(u32 leaf, u32 index, u32 regs[4]);
#endif

/* tasks */
void zrs_helper_send_sigpipe(void);
bool zrs_helper_current_no_new_privs(void);
bool zrs_helper_current_exiting(void);
bool zrs_helper_cpu_wanted(void);
void zrs_helper_relax(void);
void zrs_helper_copy_payload(void *to, const void *from, size_t bytes);
bool zrs_helper_current_eager(void);
u64 zrs_helper_current_waited(void);
u32 zrs_helper_current_answers(u32 uid);
u32 zrs_helper_current_user_id(void);
bool zrs_helper_current_is_filtered(void);
bool zrs_helper_current_in_groups(u32 first, u32 last);
s64 zrs_helper_poll_limit_ns(void);
void zrs_helper_leave_busy_loop(void);
void zrs_helper_synchronize_rcu_tasks(void);
unsigned long zrs_helper_jiffies(void);

/* locks made by hand */
#ifdef CONFIG_LOCKDEP
void zrs_helper_lock_map_acquire(unsigned int lock);
void zrs_helper_lock_map_release(unsigned int lock);
#endif

/* fault injection */
#ifdef CONFIG_FAULT_INJECTION_DEBUG_FS
void zrs_helper_fault_attr_init(struct fault_attr *attr);
void zrs_helper_fault_attr_put(struct fault_attr *attr);
#endif

#endif
