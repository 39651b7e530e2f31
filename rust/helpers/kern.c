// SPDX-License-Identifier: GPL-2.0
/*
 * More of helpers.c, for rust/kern: static inlines and macros as functions.
 */

#include "kern.h"

#include <linux/compat.h>
#include <linux/dcache.h>
#include <linux/icmp.h>
#include <linux/icmpv6.h>
#include <linux/ip.h>
#include <linux/memcontrol.h>
#include <linux/module.h>
#include <linux/nodemask.h>
#include <linux/poll.h>
#include <linux/sched/mm.h>
#include <linux/sched/signal.h>
#include <linux/sched/stat.h>
#include <linux/sched/user.h>
#include <linux/skbuff.h>
#include <linux/time64.h>
#include <linux/topology.h>
#include <linux/uaccess.h>
#include <asm/syscall.h>
#include <asm/unistd.h>
#include <net/ip6_route.h>

#ifdef CONFIG_X86
#include <asm/cpuid/api.h>
#endif

/* The version of the protocol, proto/wire.rs: for "modinfo -F wire". */
MODULE_INFO(wire, "1");

/* memory */

int zrs_helper_numa_mem_id(void)
{
	return numa_mem_id();
}

bool zrs_helper_node_online(int nid)
{
	return nid >= 0 && nid < MAX_NUMNODES && node_online(nid);
}

unsigned long zrs_helper_totalram_pages(void)
{
	return totalram_pages();
}

/* Zeroed, and the cgroup of the caller pays. */
void *zrs_helper_vmalloc_account(unsigned long bytes)
{
	return __vmalloc(bytes, GFP_KERNEL_ACCOUNT | __GFP_ZERO);
}

/* The sock's memory cgroup, or the root, with a reference. */
struct mem_cgroup *zrs_helper_sk_memcg_get(const struct sock *sk)
{
	struct mem_cgroup *memcg = mem_cgroup_from_sk(sk);

#ifdef CONFIG_MEMCG
	if (!memcg)
		memcg = root_mem_cgroup;
#endif
	zrs_helper_mem_cgroup_get(memcg);
	return memcg;
}

void zrs_helper_mem_cgroup_get(struct mem_cgroup *memcg)
{
#ifdef CONFIG_MEMCG
	if (memcg)
		css_get(&memcg->css);
#endif
}

void zrs_helper_mem_cgroup_put(struct mem_cgroup *memcg)
{
	mem_cgroup_put(memcg);
}

struct mem_cgroup *zrs_helper_set_active_memcg(struct mem_cgroup *memcg)
{
	return set_active_memcg(memcg);
}

void zrs_helper_pagefault_disable(void)
{
	pagefault_disable();
}

void zrs_helper_pagefault_enable(void)
{
	pagefault_enable();
}

size_t zrs_helper_folio_nr_pages(const struct folio *folio)
{
	return folio_nr_pages(folio);
}

struct page *zrs_helper_folio_page(struct folio *folio, size_t n)
{
	return folio_page(folio, n);
}

bool zrs_helper_is_page_hwpoison(const struct page *page)
{
	return is_page_hwpoison(page);
}

/*
 * Counts pages as locked by the caller's user; the user, with a reference, or
 * NULL if that is more than RLIMIT_MEMLOCK.
 */
void *zrs_helper_charge_locked(unsigned long pages)
{
	struct user_struct *user = current_user();
	unsigned long limit = rlimit(RLIMIT_MEMLOCK) >> PAGE_SHIFT;
	unsigned long now = atomic_long_add_return(pages, &user->locked_vm);

	if (now > limit && !capable(CAP_IPC_LOCK)) {
		atomic_long_sub(pages, &user->locked_vm);
		return NULL;
	}
	return get_uid(user);
}

void zrs_helper_uncharge_locked(void *charged, unsigned long pages)
{
	struct user_struct *user = charged;

	atomic_long_sub(pages, &user->locked_vm);
	free_uid(user);
}

/* Whether all of the pages are marked dirty. */
bool zrs_helper_pages_dirty(struct page **pages, unsigned long n)
{
	unsigned long i;

	for (i = 0; i < n; i++)
		if (!folio_test_dirty(page_folio(pages[i])))
			return false;
	return true;
}

/* files */

void zrs_helper_poll_wait(struct file *file, wait_queue_head_t *head,
			  struct poll_table_struct *p)
{
	poll_wait(file, head, p);
}

/* socks */

/*
 * Our own lock class: RDMA drivers take kernel sockets under ours, and these must not look like the
 * same lock.
 */
void zrs_helper_sock_reclassify(struct sock *sk)
{
	static struct lock_class_key keys[2];

	sock_lock_init_class_and_name(sk, "slock-AF_INET-ZRS", &keys[0],
				      "sk_lock-AF_INET-ZRS", &keys[1]);
}

bool zrs_helper_inet_port_requires_bind_service(struct net *net,
						unsigned short port)
{
	return inet_port_requires_bind_service(net, port);
}

bool zrs_helper_inet_is_local_reserved_port(const struct net *net,
					    unsigned short port)
{
	return inet_is_local_reserved_port(net, port);
}

u64 zrs_helper_net_cookie(const struct net *net)
{
	return net->net_cookie;
}

/* The interface of the route, 0 if there is none. */
int zrs_helper_route_ifindex(struct net *net, __be32 remote, __be32 local)
{
	struct rtable *rt = ip_route_output(net, remote, local, 0, 0,
					    RT_SCOPE_UNIVERSE);
	int ifindex;

	if (IS_ERR(rt))
		return 0;
	/* The reference keeps the route, not its device. */
	rcu_read_lock();
	ifindex = READ_ONCE(dst_dev_rcu(&rt->dst)->ifindex);
	rcu_read_unlock();
	ip_rt_put(rt);
	return ifindex;
}

int zrs_helper_route6_ifindex(struct net *net, const struct in6_addr *remote,
			      const struct in6_addr *local, int scope)
{
	struct flowi6 fl6 = {
		.daddr = *remote,
		.saddr = *local,
		.flowi6_oif = scope,
	};
	struct dst_entry *dst = ip6_route_output(net, NULL, &fl6);
	int ifindex = 0;

	rcu_read_lock();
	if (!dst->error)
		ifindex = READ_ONCE(dst_dev_rcu(dst)->ifindex);
	rcu_read_unlock();
	dst_release(dst);
	return ifindex;
}

/* The address that a datagram to @remote leaves from; false: there is no route. */
bool zrs_helper_route_source(struct net *net, __be32 remote, int oif,
			     __be32 *source)
{
	struct flowi4 fl4 = {
		.daddr = remote,
		.flowi4_oif = oif,
	};
	struct rtable *rt = ip_route_output_key(net, &fl4);

	if (IS_ERR(rt))
		return false;
	ip_rt_put(rt);
	*source = fl4.saddr;
	return true;
}

bool zrs_helper_route6_source(struct net *net, const struct in6_addr *remote,
			      int oif, struct in6_addr *source)
{
	struct flowi6 fl6 = {
		.daddr = *remote,
		.flowi6_oif = oif,
	};
	struct dst_entry *dst = ip6_dst_lookup_flow(net, NULL, &fl6, NULL);

	if (IS_ERR(dst))
		return false;
	dst_release(dst);
	*source = fl6.saddr;
	return true;
}

u8 zrs_helper_default_ttl(const struct sock *sk)
{
	return READ_ONCE(sock_net(sk)->ipv4.sysctl_ip_default_ttl);
}

int zrs_helper_default_hop_limit(const struct sock *sk)
{
	return READ_ONCE(sock_net(sk)->ipv6.devconf_all->hop_limit);
}

void zrs_helper_sock_valbool_flag(struct sock *sk, enum sock_flags flag,
				  int value)
{
	sock_valbool_flag(sk, flag, value);
}

bool zrs_helper_skb_queue_empty_lockless(const struct sk_buff_head *list)
{
	return skb_queue_empty_lockless(list);
}

/*
 * The sock's wake-ups go to the queue of "to" from now on, and packet filters that ask for its
 * owner find that of "file".
 */
void zrs_helper_sock_lend_queue(struct sock *sk, struct socket *to,
				struct file *file)
{
	write_lock_bh(&sk->sk_callback_lock);
	rcu_assign_pointer(sk->sk_wq, &to->wq);
	WRITE_ONCE(sk->sk_socket->file, file);
	write_unlock_bh(&sk->sk_callback_lock);
}

/*
 * Puts on the error queue what UDP puts there for a datagram to "remote" that was refused
 * (ECONNREFUSED), but for the bytes of the datagram, or another local error, cf. ip_local_error();
 * with "so_error" it is the socket's error as well, unless there is no memory for the entry.
 */
int zrs_helper_sock_queue_error(struct sock *sk,
				const struct sockaddr_in6 *remote,
				int errno, bool so_error)
{
	struct sk_buff *skb = alloc_skb(sizeof(struct ipv6hdr), GFP_KERNEL);
	struct sock_exterr_skb *serr;
	int err;

	if (!skb)
		return -ENOMEM;
	skb_reset_network_header(skb);
	serr = SKB_EXT_ERR(skb);
	serr->ee.ee_errno = errno;
	serr->port = remote->sin6_port;
	if (ipv6_addr_v4mapped(&remote->sin6_addr)) {
		struct iphdr *ip = skb_put_zero(skb, sizeof(*ip));

		ip->saddr = remote->sin6_addr.s6_addr32[3];
		ip->daddr = ip->saddr;
		skb->protocol = htons(ETH_P_IP);
		serr->ee.ee_origin = SO_EE_ORIGIN_ICMP;
		serr->ee.ee_type = ICMP_DEST_UNREACH;
		serr->ee.ee_code = ICMP_PORT_UNREACH;
		serr->addr_offset = offsetof(struct iphdr, daddr);
	} else {
		struct ipv6hdr *ip = skb_put_zero(skb, sizeof(*ip));

		ip->saddr = remote->sin6_addr;
		ip->daddr = ip->saddr;
		skb->protocol = htons(ETH_P_IPV6);
		IP6CB(skb)->iif = remote->sin6_scope_id;
		serr->ee.ee_origin = SO_EE_ORIGIN_ICMP6;
		serr->ee.ee_type = ICMPV6_DEST_UNREACH;
		serr->ee.ee_code = ICMPV6_PORT_UNREACH;
		serr->addr_offset = offsetof(struct ipv6hdr, daddr);
	}
	if (errno != ECONNREFUSED) {
		serr->ee.ee_origin = SO_EE_ORIGIN_LOCAL;
		serr->ee.ee_type = 0;
		serr->ee.ee_code = 0;
	}
	/* The reader finds the addresses in front of the data. */
	__skb_pull(skb, skb->len);
	skb_reset_transport_header(skb);
	/* At once: whoever is woken by one of them finds the other, too. */
	if (so_error)
		WRITE_ONCE(sk->sk_err, errno);
	err = sock_queue_err_skb(sk, skb);
	if (err)
		kfree_skb(skb);
	return err;
}

/*
 * An error that waits in "from" waits in "to" instead. It is there before it is gone here: a
 * thread that looks at "from" first and then at "to" sees it, however long this takes. The lock,
 * which every sock has, keeps an error from being moved twice.
 */
void zrs_helper_sock_move_error(struct sock *from, struct sock *to)
{
	unsigned long flags;
	int err;

	/* Pairs with the cmpxchg below: without an error here, the other sock has it. */
	if (!smp_load_acquire(&from->sk_err))
		return;
	spin_lock_irqsave(&from->sk_error_queue.lock, flags);
	err = READ_ONCE(from->sk_err);
	if (err) {
		WRITE_ONCE(to->sk_err, err);
		/* Ordered after the store. A newer error stays. */
		cmpxchg(&from->sk_err, err, 0);
	}
	spin_unlock_irqrestore(&from->sk_error_queue.lock, flags);
}

int zrs_helper_sock_set_number(struct socket *sock, int level, int name,
			       int value)
{
	return READ_ONCE(sock->ops)->setsockopt(sock, level, name,
						KERNEL_SOCKPTR(&value),
						sizeof(value));
}

/*
 * Cf. inet_autobind(), which chooses the port, and gives it up when the sock listens no more: ours
 * keeps it.
 */
int zrs_helper_tcp_autobind(struct sock *sk, unsigned short port)
{
	int err = 0;

	lock_sock(sk);
	if (inet_sk(sk)->inet_num) {
		/* It is in the tables of its protocol. */
		err = -EINVAL;
	} else if (sk->sk_prot->get_port(sk, port)) {
		err = -EADDRINUSE;
	} else {
		sk->sk_userlocks |= SOCK_BINDPORT_LOCK;
		inet_sk(sk)->inet_sport = htons(inet_sk(sk)->inet_num);
	}
	release_sock(sk);
	return err;
}

void zrs_helper_net_zcopy_get(struct ubuf_info *uarg)
{
	net_zcopy_get(uarg);
}

/* net_zcopy_put() always says that nothing was copied. */
void zrs_helper_net_zcopy_complete(struct ubuf_info *uarg, bool success)
{
	uarg->ops->complete(NULL, uarg, success);
}

void zrs_helper_net_zcopy_put_abort(struct ubuf_info *uarg)
{
	net_zcopy_put_abort(uarg, true);
}

size_t zrs_helper_sizeof_sock(void)
{
	return sizeof(struct sock);
}

size_t zrs_helper_sizeof_inet_sock(void)
{
	return sizeof(struct inet_sock);
}

size_t zrs_helper_sizeof_proto(void)
{
	return sizeof(struct proto);
}

size_t zrs_helper_sizeof_proto_ops(void)
{
	const struct proto_ops *ops = NULL;

	return sizeof(*ops);
}

/* processors */

#ifdef CONFIG_X86
void zrs_helper_cpuid_count(u32 leaf, u32 index, u32 regs[4])
{
	cpuid_count(leaf, index, &regs[0], &regs[1], &regs[2], &regs[3]);
}
#endif

/* tasks */

bool zrs_helper_current_no_new_privs(void)
{
	return task_no_new_privs(current);
}

void zrs_helper_send_sigpipe(void)
{
	send_sig(SIGPIPE, current, 0);
}

bool zrs_helper_current_exiting(void)
{
	return current->flags & PF_EXITING;
}

/*
 * Every copy of payload by the module except by _copy_{to,from}_iter(): a separate function, so
 * that it can be traced.
 */
void zrs_helper_copy_payload(void *to, const void *from, size_t bytes)
{
	memcpy(to, from, bytes);
}

bool zrs_helper_cpu_wanted(void)
{
	return tif_test_bit(TIF_NEED_RESCHED) || tif_test_bit(TIF_NEED_RESCHED_LAZY) ||
	       !single_task_running();
}

void zrs_helper_relax(void)
{
	cpu_relax();
	cond_resched_tasks_rcu_qs();
}

bool zrs_helper_current_eager(void)
{
	return rt_or_dl_task(current) ||
	       (current->policy == SCHED_NORMAL && task_nice(current) <= 0);
}

u64 zrs_helper_current_waited(void)
{
#ifdef CONFIG_SCHED_INFO
	return current->sched_info.run_delay;
#else
	return 0;
#endif
}

/*
 * The user that answers for a task of user uid (of the first user namespace): the
 * owner of the user namespace that the task is in, of the outermost one if it is
 * in several; but not root, which makes them for others.
 */
u32 zrs_helper_current_answers(u32 uid)
{
	const struct user_namespace *ns = current_user_ns();

	if (ns == &init_user_ns)
		return uid;
	while (ns->parent != &init_user_ns)
		ns = ns->parent;
	return uid_eq(ns->owner, GLOBAL_ROOT_UID) ? uid : from_kuid(&init_user_ns, ns->owner);
}

/* The calling task's effective user, of the first user namespace. */
u32 zrs_helper_current_user_id(void)
{
	return from_kuid(&init_user_ns, current_euid());
}

/* Whether the task is in a group from first to last, cf. ping_init_sock(). */
bool zrs_helper_current_in_groups(u32 first, u32 last)
{
	const struct cred *cred = current_cred();
	const struct group_info *groups = cred->group_info;
	u32 gid = from_kgid(&init_user_ns, cred->egid);
	int i;

	if (gid >= first && gid <= last)
		return true;
	for (i = 0; i < groups->ngroups; i++) {
		gid = from_kgid(&init_user_ns, groups->gid[i]);
		if (gid >= first && gid <= last)
			return true;
	}
	return false;
}

bool zrs_helper_current_is_filtered(void)
{
#ifdef CONFIG_SECCOMP
	return READ_ONCE(current->seccomp.mode) == SECCOMP_MODE_FILTER;
#else
	return false;
#endif
}

/*
 * How long the poll() or select() that the task is in may take, by the call's
 * arguments, in nanoseconds: S64_MAX without a limit; -1 where it is not known
 * (32-bit programs, a call that goes on after a signal).
 */
s64 zrs_helper_poll_limit_ns(void)
{
	struct pt_regs *regs = task_pt_regs(current);
	struct __kernel_old_timeval tv;
	struct timespec64 limit;
	unsigned long args[6];
	void __user *time;

	if (in_compat_syscall())
		return -1;
	syscall_get_arguments(current, regs, args);
	switch (syscall_get_nr(current, regs)) {
#ifdef __NR_poll
	case __NR_poll:
		return (int)args[2] < 0 ? S64_MAX : (s64)(u32)args[2] * NSEC_PER_MSEC;
#endif
#ifdef __NR_select
	case __NR_select:
		time = (void __user *)args[4];
		if (!time)
			return S64_MAX;
		if (copy_from_user(&tv, time, sizeof(tv)))
			return -1;
		limit.tv_sec = tv.tv_sec + tv.tv_usec / USEC_PER_SEC;
		limit.tv_nsec = tv.tv_usec % USEC_PER_SEC * NSEC_PER_USEC;
		break;
#endif
	case __NR_ppoll:
	case __NR_pselect6:
		time = (void __user *)args[syscall_get_nr(current, regs) == __NR_ppoll ? 2 : 4];
		if (!time)
			return S64_MAX;
		if (get_timespec64(&limit, time))
			return -1;
		break;
	default:
		return -1;
	}
	/* Another thread may have changed what the kernel found valid. */
	return max_t(s64, timespec64_to_ns(&limit), 0);
}

/*
 * The busy loop of poll() and select() ends, and the task sleeps: nothing else
 * ends it before net.core.busy_poll is over, since sock_poll() asks for more of it.
 */
void zrs_helper_leave_busy_loop(void)
{
	set_thread_flag(TIF_NEED_RESCHED);
}

/* On some kernels a macro. */
void zrs_helper_synchronize_rcu_tasks(void)
{
	synchronize_rcu_tasks();
}

unsigned long zrs_helper_jiffies(void)
{
	return jiffies;
}

void zrs_helper_smp_mb(void)
{
	/* The caller documents the paired barrier. */
	smp_mb();
}

enum hrtimer_restart zrs_helper_HRTIMER_NORESTART(void)
{
	return HRTIMER_NORESTART;
}

/* locks made by hand */

#ifdef CONFIG_LOCKDEP
static struct lock_class_key hand_made_keys[1];

/* By the number of the lock in rust/kern/lockdep.rs. */
static struct lockdep_map hand_made[] = {
	STATIC_LOCKDEP_MAP_INIT("zrs_sock::turn", &hand_made_keys[0]),
};

void zrs_helper_lock_map_acquire(unsigned int lock)
{
	lock_map_acquire(&hand_made[lock]);
}

void zrs_helper_lock_map_release(unsigned int lock)
{
	lock_map_release(&hand_made[lock]);
}
#endif

/* fault injection */

#ifdef CONFIG_FAULT_INJECTION_DEBUG_FS
void zrs_helper_fault_attr_init(struct fault_attr *attr)
{
	*attr = (struct fault_attr)FAULT_ATTR_INITIALIZER;
}

/*
 * The counterpart of fault_create_debugfs_attr(), which keeps the dentry up to
 * Linux 7.2, and a copy of the name from 7.3 on.
 */
void zrs_helper_fault_attr_put(struct fault_attr *attr)
{
#ifndef FAULT_ATTR_DNAME_LEN
	struct dentry *dname = attr->dname;

	attr->dname = NULL;
	dput(dname);
#endif
}
#endif
