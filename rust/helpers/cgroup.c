// SPDX-License-Identifier: GPL-2.0
/*
 * More of helpers.c, for rust/kern/sock/cgroup_bpf.rs: the programs of a sock's cgroups, run where
 * TCP runs them. Without CONFIG_CGROUP_BPF there are none. And for rust/kern/sock/filter.rs: a
 * sock's own filter.
 */

#include "kern.h"

#include <linux/bpf-cgroup.h>
#include <linux/filter.h>
#include <linux/ip.h>
#include <linux/tcp.h>
#include <linux/udp.h>
#include <net/ip.h>
#include <net/ip6_route.h>
#include <net/route.h>
#include <net/tcp.h>

static int name_len(const struct sock *sk)
{
	return sk->sk_family == AF_INET6 ? sizeof(struct sockaddr_in6) :
					   sizeof(struct sockaddr_in);
}

/* Whether one of them is attached anywhere. */
bool zrs_helper_cgroup_filters_packets(void)
{
	return cgroup_bpf_enabled(CGROUP_INET_INGRESS) ||
	       cgroup_bpf_enabled(CGROUP_INET_EGRESS);
}

/* Cf. inet_bind_sk(). "low_ports": a low port needs no capability. */
int zrs_helper_cgroup_bind(struct sock *sk, void *addr, bool *low_ports)
{
	int __maybe_unused len = name_len(sk);
	u32 flags = 0;
	int err;

	if (sk->sk_family == AF_INET6)
		err = BPF_CGROUP_RUN_PROG_INET_BIND_LOCK(sk, addr, &len,
							 CGROUP_INET6_BIND, &flags);
	else
		err = BPF_CGROUP_RUN_PROG_INET_BIND_LOCK(sk, addr, &len,
							 CGROUP_INET4_BIND, &flags);
	*low_ports = flags & BIND_NO_CAP_NET_BIND_SERVICE;
	return err;
}

/* Cf. __inet_bind(). */
int zrs_helper_cgroup_post_bind(struct sock *sk)
{
	int err;

	lock_sock(sk);
	if (sk->sk_family == AF_INET6)
		err = BPF_CGROUP_RUN_PROG_INET6_POST_BIND(sk);
	else
		err = BPF_CGROUP_RUN_PROG_INET4_POST_BIND(sk);
	release_sock(sk);
	return err;
}

/* Cf. tcp_v4_pre_connect(). */
int zrs_helper_cgroup_connect(struct sock *sk, void *addr)
{
	int __maybe_unused len = name_len(sk);

	if (sk->sk_family == AF_INET6)
		return BPF_CGROUP_RUN_PROG_INET6_CONNECT_LOCK(sk, addr, &len);
	return BPF_CGROUP_RUN_PROG_INET4_CONNECT_LOCK(sk, addr, &len);
}

/* Cf. udp_sendmsg(), udpv6_sendmsg(): "source" is an address of the same family. */
int zrs_helper_cgroup_sendmsg(struct sock *sk, void *addr, void *source)
{
	const struct sockaddr *name = addr;
	int __maybe_unused len;

	if (name->sa_family == AF_INET6) {
		len = sizeof(struct sockaddr_in6);
		return BPF_CGROUP_RUN_PROG_UDP6_SENDMSG_LOCK(sk, addr, &len, source);
	}
	len = sizeof(struct sockaddr_in);
	return BPF_CGROUP_RUN_PROG_UDP4_SENDMSG_LOCK(sk, addr, &len, source);
}

/* Cf. udp_recvmsg(), udpv6_recvmsg(). */
int zrs_helper_cgroup_recvmsg(struct sock *sk, void *addr)
{
	int __maybe_unused len = name_len(sk);

	if (sk->sk_family == AF_INET6)
		return BPF_CGROUP_RUN_PROG_UDP6_RECVMSG_LOCK(sk, addr, &len);
	return BPF_CGROUP_RUN_PROG_UDP4_RECVMSG_LOCK(sk, addr, &len);
}

/* Cf. inet_getname(). */
int zrs_helper_cgroup_name(struct sock *sk, void *addr, bool peer)
{
	int __maybe_unused len = name_len(sk);

	if (sk->sk_family == AF_INET6 && peer)
		return BPF_CGROUP_RUN_SA_PROG_LOCK(sk, addr, &len,
						   CGROUP_INET6_GETPEERNAME, NULL);
	if (sk->sk_family == AF_INET6)
		return BPF_CGROUP_RUN_SA_PROG_LOCK(sk, addr, &len,
						   CGROUP_INET6_GETSOCKNAME, NULL);
	if (peer)
		return BPF_CGROUP_RUN_SA_PROG_LOCK(sk, addr, &len,
						   CGROUP_INET4_GETPEERNAME, NULL);
	return BPF_CGROUP_RUN_SA_PROG_LOCK(sk, addr, &len,
					   CGROUP_INET4_GETSOCKNAME, NULL);
}

/* Cf. inet_release(). */
void zrs_helper_cgroup_release(struct sock *sk)
{
	if (!sk->sk_kern_sock)
		(void)BPF_CGROUP_RUN_PROG_INET_SOCK_RELEASE(sk);
}

/* The route of a packet to "remote", and the address that it comes from if "local" has none. */
static struct dst_entry *route_of(struct sock *sk, struct sockaddr_in6 *local,
				  const struct sockaddr_in6 *remote, u8 proto)
{
	struct net *net = sock_net(sk);
	int bound = READ_ONCE(sk->sk_bound_dev_if);
	struct flowi4 fl4 = {
		.daddr = remote->sin6_addr.s6_addr32[3],
		.saddr = local->sin6_addr.s6_addr32[3],
		.flowi4_oif = bound,
		.flowi4_proto = proto,
	};
	struct flowi6 fl6 = {
		.daddr = remote->sin6_addr,
		.saddr = local->sin6_addr,
		.flowi6_oif = remote->sin6_scope_id ?: bound,
		.flowi6_proto = proto,
	};
	struct dst_entry *dst;
	struct rtable *rt;

	if (ipv6_addr_v4mapped(&remote->sin6_addr)) {
		rt = ip_route_output_key(net, &fl4);
		if (IS_ERR(rt))
			return ERR_CAST(rt);
		ipv6_addr_set_v4mapped(fl4.saddr, &local->sin6_addr);
		return &rt->dst;
	}
	dst = ip6_dst_lookup_flow(net, sk, &fl6, NULL);
	if (!IS_ERR(dst))
		local->sin6_addr = fl6.saddr;
	return dst;
}

/*
 * The header of IP in front of "len" bytes, with room for a header of "proto" behind it, and pages
 * for "paged" bytes behind that.
 */
static struct sk_buff *make_packet(const struct sockaddr_in6 *from, const struct sockaddr_in6 *to,
				   u8 proto, u16 len, u32 paged)
{
	size_t headers = MAX_HEADER + sizeof(struct ipv6hdr) + sizeof(struct tcphdr);
	/* The payload is charged to the cgroup that the caller has set. */
	gfp_t gfp = paged ? GFP_KERNEL_ACCOUNT | __GFP_NORETRY | __GFP_NOWARN : GFP_KERNEL;
	struct sk_buff *skb;
	int err;

	skb = alloc_skb_with_frags(headers, paged, PAGE_ALLOC_COSTLY_ORDER, &err, gfp);
	if (!skb)
		return NULL;
	skb_reserve(skb, MAX_HEADER);
	skb_reset_network_header(skb);
	if (ipv6_addr_v4mapped(&to->sin6_addr)) {
		struct iphdr *ip = skb_put_zero(skb, sizeof(*ip));

		skb->protocol = htons(ETH_P_IP);
		ip->version = 4;
		ip->ihl = sizeof(*ip) / 4;
		ip->tot_len = htons(min_t(u32, sizeof(*ip) + len, U16_MAX));
		ip->ttl = IPDEFTTL;
		ip->protocol = proto;
		ip->saddr = from->sin6_addr.s6_addr32[3];
		ip->daddr = to->sin6_addr.s6_addr32[3];
		ip_send_check(ip);
	} else {
		struct ipv6hdr *ip = skb_put_zero(skb, sizeof(*ip));

		skb->protocol = htons(ETH_P_IPV6);
		ip->version = 6;
		ip->payload_len = htons(len);
		ip->nexthdr = proto;
		ip->hop_limit = IPDEFTTL;
		ip->saddr = from->sin6_addr;
		ip->daddr = to->sin6_addr;
	}
	skb_set_transport_header(skb, skb->len);
	return skb;
}

/* The header that a packet of TCP has which opens a connection or, "reply", answers one. */
static struct sk_buff *make_syn(const struct sockaddr_in6 *from, const struct sockaddr_in6 *to,
				bool reply)
{
	struct sk_buff *skb = make_packet(from, to, IPPROTO_TCP, sizeof(struct tcphdr), 0);
	struct tcphdr *th;

	if (!skb)
		return NULL;
	th = skb_put_zero(skb, sizeof(*th));
	th->source = from->sin6_port;
	th->dest = to->sin6_port;
	th->doff = sizeof(*th) / 4;
	th->syn = 1;
	th->ack = reply;
	return skb;
}

/* Whether the programs let the packet pass. */
static int run_egress(struct sock *sk, struct sk_buff *skb)
{
	int err;

	skb->sk = sk;
	err = BPF_CGROUP_RUN_PROG_INET_EGRESS(sk, skb);
	skb->sk = NULL;
	/* A program may let a packet pass and say that the way is congested. */
	return err && err != NET_XMIT_CN ? -EPERM : 0;
}

/*
 * Whether the programs that look at packets let a connection of the sock begin, which it asks for
 * ("outgoing") or is asked for: each sees the header that a packet of TCP would have.
 */
int zrs_helper_cgroup_packets(struct sock *sk, const struct sockaddr_in6 *own,
			      const struct sockaddr_in6 *remote, bool outgoing)
{
	struct sockaddr_in6 local = *own;
	struct dst_entry *dst = route_of(sk, &local, remote, IPPROTO_TCP);
	struct sk_buff *out, *in;
	int err = -ENOMEM;

	if (IS_ERR(dst))
		return PTR_ERR(dst);
	out = make_syn(&local, remote, !outgoing);
	in = make_syn(remote, &local, outgoing);
	if (out && in) {
		rcu_read_lock();
		local_bh_disable();
		out->dev = dst_dev_rcu(dst);
		in->dev = out->dev;
		in->skb_iif = in->dev->ifindex;
		err = run_egress(sk, out);
		if (!err && BPF_CGROUP_RUN_PROG_INET_INGRESS(sk, in))
			err = -EPERM;
		local_bh_enable();
		rcu_read_unlock();
	}
	kfree_skb(in);
	kfree_skb(out);
	dst_release(dst);
	return err;
}

/* Whether the sock's cgroup has programs that look at packets which it sends or receives. */
bool zrs_helper_cgroup_filters_datagrams(struct sock *sk, bool outgoing)
{
#ifdef CONFIG_CGROUP_BPF
	if (outgoing)
		return cgroup_bpf_enabled(CGROUP_INET_EGRESS) &&
		       cgroup_bpf_sock_enabled(sk, CGROUP_INET_EGRESS);
	return cgroup_bpf_enabled(CGROUP_INET_INGRESS) &&
	       cgroup_bpf_sock_enabled(sk, CGROUP_INET_INGRESS);
#else
	return false;
#endif
}

/* The headers of IP and UDP that a datagram of "len" bytes would have, and "paged" in pages. */
static struct sk_buff *make_datagram(const struct sockaddr_in6 *from, const struct sockaddr_in6 *to,
				     u16 len, u32 paged)
{
	u16 with_header = min_t(u32, len + sizeof(struct udphdr), U16_MAX);
	struct sk_buff *skb = make_packet(from, to, IPPROTO_UDP, with_header, paged);
	struct udphdr *uh;

	if (!skb)
		return NULL;
	uh = skb_put_zero(skb, sizeof(*uh));
	uh->source = from->sin6_port;
	uh->dest = to->sin6_port;
	uh->len = htons(with_header);
	return skb;
}

/*
 * Whether the cgroup's programs let a datagram of "len" bytes pass: they see the headers of IP and
 * UDP that it would have, without its bytes.
 */
int zrs_helper_cgroup_datagram(struct sock *sk, const struct sockaddr_in6 *own,
			       const struct sockaddr_in6 *remote, u16 len, bool outgoing)
{
	struct sockaddr_in6 local = *own;
	const struct sockaddr_in6 *from = outgoing ? &local : remote;
	const struct sockaddr_in6 *to = outgoing ? remote : &local;
	struct dst_entry *dst = route_of(sk, &local, remote, IPPROTO_UDP);
	struct sk_buff *skb;
	int err;

	if (IS_ERR(dst))
		return PTR_ERR(dst);
	skb = make_datagram(from, to, len, 0);
	if (!skb) {
		dst_release(dst);
		return -ENOMEM;
	}
	rcu_read_lock();
	local_bh_disable();
	skb->dev = dst_dev_rcu(dst);
	if (outgoing) {
		err = run_egress(sk, skb);
	} else {
		skb->skb_iif = skb->dev->ifindex;
		err = BPF_CGROUP_RUN_PROG_INET_INGRESS(sk, skb) ? -EPERM : 0;
	}
	local_bh_enable();
	rcu_read_unlock();
	kfree_skb(skb);
	dst_release(dst);
	return err;
}

/*
 * A datagram of "len" bytes for the sock's filter: the headers of IP and UDP that it would have,
 * and pages for its bytes. The data begins at the header of UDP.
 */
struct sk_buff *zrs_helper_filter_packet(struct sock *sk, const struct sockaddr_in6 *own,
					 const struct sockaddr_in6 *from, u16 len)
{
	struct sockaddr_in6 to = *own;
	struct sk_buff *skb = make_datagram(from, &to, len, len);
	struct dst_entry *dst;

	if (!skb)
		return ERR_PTR(-ENOMEM);
	/* Without a way back, it has no device. */
	dst = route_of(sk, &to, from, IPPROTO_UDP);
	if (!IS_ERR(dst))
		skb_dst_set(skb, dst);
	skb->ip_summed = CHECKSUM_UNNECESSARY;
	skb->data_len = len;
	skb->len += len;
	__skb_pull(skb, skb_transport_offset(skb));
	return skb;
}

/* Runs the sock's filter, cf. sk_filter_trim_cap(): how many bytes of the packet it keeps, or 0. */
u32 zrs_helper_filter_run(struct sock *sk, struct sk_buff *skb)
{
	u32 keep = skb->len;
	struct sk_filter *filter;

	rcu_read_lock();
	filter = rcu_dereference(sk->sk_filter);
	if (filter) {
		if (skb_dst(skb)) {
			skb->dev = dst_dev_rcu(skb_dst(skb));
			skb->skb_iif = skb->dev->ifindex;
		}
		skb->sk = sk;
		keep = bpf_prog_run_save_cb(filter->prog, skb);
		skb->sk = NULL;
		skb->dev = NULL;
	}
	rcu_read_unlock();
	return keep;
}

/* "to", which no other code has yet, gets the filter of "from", cf. sk_clone(). */
void zrs_helper_filter_share(struct sock *from, struct sock *to)
{
	struct sk_filter *filter;

	lock_sock(from);
	filter = rcu_dereference_protected(from->sk_filter, lockdep_sock_is_held(from));
	if (filter) {
		/* The one of "from" is kept by its lock. */
		refcount_inc(&filter->refcnt);
		atomic_add(bpf_prog_size(filter->prog->len), &to->sk_omem_alloc);
		rcu_assign_pointer(to->sk_filter, filter);
	}
	sock_valbool_flag(to, SOCK_FILTER_LOCKED, sock_flag(from, SOCK_FILTER_LOCKED));
	release_sock(from);
}
