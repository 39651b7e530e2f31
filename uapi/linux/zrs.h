/* SPDX-License-Identifier: GPL-2.0 WITH Linux-syscall-note */
/*
 * ZRS, Zero-copy RDMA Sockets: the interface between the module and programs.
 *
 * A program gets a ZRS socket by socket(AF_INET, SOCK_STREAM, IPPROTO_ZRS), the same with AF_INET6,
 * or ZRS_IOC_SOCKET on /dev/zrs; from then on it is an ordinary socket. This file describes the
 * extensions of the socket calls: the receive ring, information and counters.
 *
 * All structures have a fixed size and explicit padding. Fields named
 * "reserved" must be zero on the way in (else EINVAL) and are zero on the way
 * out. All quantities are bytes unless a comment says otherwise. Numbers are
 * in host byte order, addresses and ports as struct sockaddr_in has them.
 */
#ifndef _UAPI_LINUX_ZRS_H
#define _UAPI_LINUX_ZRS_H

#include <linux/ioctl.h>
#include <linux/types.h>

/* The protocol of ZRS sockets: the first number set aside for experiments. */
#define IPPROTO_ZRS		253
/*
 * The same with ZRS_TCP_AUTO, independently of the default of the namespace, for programs that were
 * written for TCP. SO_PROTOCOL is IPPROTO_ZRS. Not registered while the parameter "drain" is 1.
 */
#define IPPROTO_ZRS_AUTO	254

/* The level of ZRS options for setsockopt() and getsockopt(). */
#define SOL_ZRS			0x5a52

/*
 * The version of this interface, which only grows: numbers, structures and
 * their meaning never change. An addition has a feature bit, and does not
 * raise the version.
 */
#define ZRS_UAPI_VERSION	2

/* Feature bits in struct zrs_ioc_version. */
#define ZRS_FEATURE_STREAM	(1ULL << 0)	/* SOCK_STREAM over IPv4 */
#define ZRS_FEATURE_RX_RING	(1ULL << 1)	/* ZRS_RX_RING and mmap() */
#define ZRS_FEATURE_RING_WAIT	(1ULL << 2)	/* ZRS_IOC_RING_WAIT */
#define ZRS_FEATURE_RECV_MAP	(1ULL << 3)	/* ZRS_IOC_RECV_MAP */
#define ZRS_FEATURE_ESCAPE	(1ULL << 4)	/* ZRS_RX_RING_ESCAPE, ZRS_IOC_CACHE */
#define ZRS_FEATURE_IPV6	(1ULL << 5)	/* AF_INET6; local_addr6 and so on */
#define ZRS_FEATURE_TCP		(1ULL << 6)	/* ZRS_TCP, tcp and carriers */
#define ZRS_FEATURE_DGRAM	(1ULL << 7)	/* SOCK_DGRAM */
#define ZRS_FEATURE_MEM		(1ULL << 8)	/* ZRS_IOC_MEM_*, ZRS_REGION_* */
#define ZRS_FEATURE_FALLBACK	(1ULL << 9)	/* connect() by TCP; ZRS_TCP_ONLY, why */
#define ZRS_FEATURE_RULES	(1ULL << 10)	/* ZRS_IOC_RULES, ZRS_IOC_FALLBACK */
#define ZRS_FEATURE_MEM_QUEUE	(1ULL << 11)	/* ZRS_IOC_MEM_QUEUE, ZRS_QUEUE_SUBMIT */
#define ZRS_FEATURE_MEM_BROKER	(1ULL << 12)	/* ZRS_IOC_MEM_BROKER, ZRS_MEM_VIA */
#define ZRS_FEATURE_MEM_NODES	(1ULL << 13)	/* 16 nodes of a host, ZRS_IOC_MEM_DRAIN */
#define ZRS_FEATURE_PEERS	(1ULL << 14)	/* ZRS_IOC_PEERS */
#define ZRS_FEATURE_KEYS	(1ULL << 15)	/* ZRS_IOC_KEYS */
#define ZRS_FEATURE_DGRAM_MAP	(1ULL << 16)	/* ZRS_IOC_RECV_MAP of datagrams */
#define ZRS_FEATURE_MEM_ADMIN	(1ULL << 17)	/* ZRS_IOC_MEM_FREE, ZRS_MEM_NODE_* */
#define ZRS_FEATURE_MEM_STATS	(1ULL << 18)	/* ZRS_IOC_MEM_STATS */
#define ZRS_FEATURE_RING_SMALL	(1ULL << 19)	/* ZRS_RX_RING_SMALL */

/* ---- /dev/zrs ---------------------------------------------------------- */

#define ZRS_IOC_MAGIC		0xe7

/* Version and features. Needs no privilege. */
struct zrs_ioc_version {
	__u32 version;		/* out: ZRS_UAPI_VERSION of the module */
	__u32 reserved;
	__u64 features;		/* out: ZRS_FEATURE_* */
};

#define ZRS_IOC_VERSION		_IOWR(ZRS_IOC_MAGIC, 0x00, struct zrs_ioc_version)

/*
 * Make a ZRS socket; the call returns its file descriptor. The same as
 * socket(family, type | flags, IPPROTO_ZRS), and fails as that does; EPERM for
 * a task under a seccomp filter, which judges socket() itself.
 */
struct zrs_ioc_socket {
	__u32 family;		/* in: AF_INET, AF_INET6 */
	__u32 type;		/* in: SOCK_STREAM, SOCK_DGRAM */
	__u32 flags;		/* in: SOCK_NONBLOCK, SOCK_CLOEXEC */
	__u32 reserved;
};

#define ZRS_IOC_SOCKET		_IOW(ZRS_IOC_MAGIC, 0x01, struct zrs_ioc_socket)

/*
 * Counters of the whole module since it was loaded: for callers with
 * CAP_NET_ADMIN in the first user namespace. Others get those marked with "n" of
 * their network namespace, and 0 in all other fields. tx_bytes and rx_bytes are
 * payload on its links then, and pool_used is in windows of its sockets.
 */
struct zrs_ioc_stats {
	__u64 tx_bytes;		/* n: payload accepted from programs */
	__u64 rx_bytes;		/* n: payload delivered to programs */
	__u64 tx_copied;	/* of tx_bytes: copied by the CPU */
	__u64 rx_copied;	/* copied to programs by the CPU, MSG_PEEK too */
	__u64 rx_spilled;	/* copied out of shared blocks before the copy to the program */
	__u64 work_requests;	/* work requests posted, receives apart */
	__u64 recv_requests;	/* receive work requests posted */
	__u64 completions;	/* completions taken */
	__u64 empty_events;	/* completion events that found nothing */
	__u64 resources_made;	/* PDs, CQs, SRQs, QPs, MRs and ids ever made */
	__u64 pages_pinned;	/* program pages pinned now */
	__u64 sockets;		/* n: sockets open now */
	__u64 channels;		/* n: channels alive now, orphans included */
	__u64 links;		/* n: links alive now */
	__u64 pool_bytes;	/* n: receive pools, all devices */
	__u64 pool_used;	/* n: of pool_bytes: leased, or blocks not yet read */
	__u64 protocol_errors;	/* links closed because of what a peer sent */
	__u64 signaled;		/* of work_requests: with a completion */
	__u64 windows_revoked;	/* windows asked back for another channel */
	/* Connects with ZRS_TCP_AUTO that became TCP, by the reason: */
	__u64 tcp_known;	/* n: ZRS_WHY_KNOWN */
	__u64 tcp_no_zrs;	/* n: ZRS_WHY_NO_ZRS */
	__u64 tcp_slow;		/* n: ZRS_WHY_SLOW */
	__u64 tcp_no_listener;	/* n: ZRS_WHY_NO_LISTENER */
	__u64 tcp_no_resources;	/* n: ZRS_WHY_NO_RESOURCES */
};

#define ZRS_IOC_STATS		_IOWR(ZRS_IOC_MAGIC, 0x02, struct zrs_ioc_stats)

/*
 * Lists: set cursor to 0, call until ENOENT. Each call fills the first entry
 * at or after cursor and sets cursor to where the next call goes on. Links and
 * sockets of the caller's network namespace only. All pools and caches are shown
 * to callers with CAP_NET_ADMIN in the first user namespace; others see the
 * pools of devices that their network namespace can use, and no caches.
 */
#define ZRS_NAME_LEN		64

/*
 * A receive pool; one per RDMA device. With ZRS_POOL_ALL, devices that ZRS
 * cannot use as well, once it was tried: lack is not 0, and there is no pool.
 * For a caller that does not see all pools, windows are those of its network
 * namespace, blocks and blocks_* are 0, and bytes is the pool's first size.
 */
struct zrs_ioc_pool {
	__u64 cursor;		/* in, out */
	char device[ZRS_NAME_LEN];
	__u64 bytes;		/* size of the pool */
	__u64 block_bytes;	/* of it: blocks of the shared receive queue */
	__u64 window_bytes;	/* of it: leased to channels as windows now */
	__u64 windows;		/* leases now */
	__u64 blocks_held;	/* shared blocks with data nobody has read */
	__u32 cache;		/* cursor of its cache in ZRS_IOC_CACHE */
	__u32 blocks;		/* blocks of the shared receive queue now */
	__u32 blocks_low;	/* fewest of them that were free since loading */
	__u32 lack;		/* in: 0, ZRS_POOL_ALL; out: 0, ZRS_LACK_* */
	__u32 lack_has;		/* the limit of the device that is too low, */
	__u32 lack_needs;	/* and what is needed */
	__u32 blocks_lent;	/* of blocks: kept for datagrams, or mapped */
	__u32 reserved;
};

#define ZRS_POOL_ALL		1

#define ZRS_LACK_OTHER		1	/* the log has the error */
#define ZRS_LACK_REG		2	/* IB_DEVICE_MEM_MGT_EXTENSIONS */
#define ZRS_LACK_SEND_SGE	3	/* max_send_sge */
#define ZRS_LACK_RECV_SGE	4	/* max_recv_sge */
#define ZRS_LACK_QP_WR		5	/* max_qp_wr */
#define ZRS_LACK_CQE		6	/* max_cqe */

#define ZRS_IOC_POOL		_IOWR(ZRS_IOC_MAGIC, 0x03, struct zrs_ioc_pool)

/* A link: one queue pair between two hosts. */
struct zrs_ioc_link {
	__u64 cursor;		/* in, out */
	char device[ZRS_NAME_LEN];
	__be32 local_addr;	/* 0: not IPv4 */
	__be32 remote_addr;
	__u32 state;		/* ZRS_LINK_* */
	__u32 channels;		/* channels on it now */
	__u64 tx_bytes;		/* payload */
	__u64 rx_bytes;
	__u32 flags;		/* ZRS_LINK_F_* */
	__u32 waiting;		/* channels that wait for their turn to send */
	__u32 bulk;		/* data on its way into the peer's windows */
	__u32 bulk_max;		/* as much may be; 0: not known yet */
	__u64 waits;		/* how often a sender found the link without room */
	__u32 id;		/* its number since the module was loaded */
	__u32 dgram_drops;	/* datagrams dropped for want of room on it */
	__u8 local_addr6[16];	/* an IPv4 address is v4-mapped */
	__u8 remote_addr6[16];
	__u32 scope_id;		/* interface of link-local addresses, else 0 */
	__u32 reserved1;
};

#define ZRS_LINK_CONNECTING	1
#define ZRS_LINK_UP		2
#define ZRS_LINK_DOWN		3

#define ZRS_LINK_F_ACCEPTED	1	/* the peer made it: its connects are on it */
#define ZRS_LINK_F_PROVED	2	/* the hosts have proved that they share a key */

#define ZRS_IOC_LINK		_IOWR(ZRS_IOC_MAGIC, 0x04, struct zrs_ioc_link)

/* State and counters of a socket; also the value of the option ZRS_INFO. */
struct zrs_info {
	__u32 state;		/* ZRS_STATE_* */
	__u32 channel;		/* host-wide number Q, 0: none */
	__be32 local_addr;	/* 0: not IPv4 */
	__be32 remote_addr;
	__be16 local_port;
	__be16 remote_port;
	__u32 uid;		/* of the socket's owner */
	__u64 inode;
	__u64 tx_bytes;		/* payload accepted from the program */
	__u64 rx_bytes;		/* payload delivered to the program */
	__u64 tx_copied;	/* of tx_bytes: copied by the CPU */
	__u64 rx_copied;	/* of rx_bytes: copied by the CPU */
	__u64 tx_queued;	/* sent and not acknowledged by the device */
	__u64 rx_queued;	/* arrived and not yet taken by the program */
	__u64 window;		/* our window that the peer writes into, 0: none */
	__u64 peer_window;	/* the peer's window that we write into, 0: none */
	__u32 backlog;		/* listening: connections waiting for accept() */
	__u32 error;		/* pending error, as SO_ERROR would give it */
	__u32 link;		/* id of its link in ZRS_IOC_LINK, 0: none */
	__u32 backlog_max;	/* listening: as many may wait */
	__u32 carriers;		/* ZRS_CARRIER_* of its connections */
	__u32 why;		/* ZRS_WHY_*: why TCP carries it */
	__u64 reserved[2];
	__u8 local_addr6[16];	/* an IPv4 address is v4-mapped */
	__u8 remote_addr6[16];
	__u32 family;		/* AF_INET, AF_INET6: the socket's */
	__u32 local_scope_id;	/* interface of a link-local address, else 0 */
	__u32 remote_scope_id;
	__u32 tcp;		/* ZRS_TCP_* */
};

#define ZRS_CARRIER_ZRS		1
#define ZRS_CARRIER_TCP		2

#define ZRS_WHY_NONE		0	/* it does not */
#define ZRS_WHY_ASKED		1	/* ZRS_TCP_ONLY; an option or a device that only TCP has */
#define ZRS_WHY_LOCAL		2	/* an address of this host */
#define ZRS_WHY_DRAIN		3	/* the module parameter "drain" */
#define ZRS_WHY_KNOWN		4	/* found to have no ZRS lately */
#define ZRS_WHY_NO_ZRS		5	/* no RDMA device on the way, or no ZRS there */
#define ZRS_WHY_SLOW		6	/* no link within the time of "fallback_ms" */
#define ZRS_WHY_NO_LISTENER	7	/* no program listens there with ZRS */
#define ZRS_WHY_NO_RESOURCES	8	/* no memory or room, or the link was lost */
#define ZRS_WHY_RULE		9	/* a rule of ZRS_IOC_RULES */
#define ZRS_WHY_ASKING		10	/* the user's connects ask asking_per_user hosts already */
#define ZRS_WHY_PEER		11	/* a list of peers, here or there */
#define ZRS_WHY_OFF		12	/* off in the network namespace, or for the groups */
#define ZRS_WHY_KEY		13	/* no proof by a key, that is demanded here or there */
#define ZRS_WHY_NO_NEW_PRIVS	14	/* the task may not have both */

#define ZRS_STATE_CLOSED	0
#define ZRS_STATE_BOUND		1
#define ZRS_STATE_LISTEN	2
#define ZRS_STATE_CONNECTING	3
#define ZRS_STATE_ESTABLISHED	4
#define ZRS_STATE_CLOSING	5	/* one direction or both are shut down */

struct zrs_ioc_sock {
	__u64 cursor;		/* in, out */
	struct zrs_info info;
};

#define ZRS_IOC_SOCK		_IOWR(ZRS_IOC_MAGIC, 0x05, struct zrs_ioc_sock)

/*
 * State and counters of a datagram socket; also the value of the option
 * ZRS_DGRAM_INFO. ZRS_IOC_DGRAM lists the sockets that have a port.
 */
struct zrs_dgram_info {
	__u32 family;		/* AF_INET, AF_INET6 */
	__u32 uid;		/* of the socket's owner */
	__u64 inode;
	__u64 tx_bytes;		/* payload accepted from the program */
	__u64 rx_bytes;		/* payload delivered to the program */
	__u64 tx_datagrams;	/* the same in datagrams */
	__u64 rx_datagrams;
	__u64 tx_queued;	/* counted against SO_SNDBUF */
	__u64 rx_queued;	/* counted against SO_RCVBUF */
	__u32 rx_waiting;	/* datagrams not yet taken by the program */
	__u32 rx_drops;		/* dropped: SO_RCVBUF used up, EFAULT of recv() */
	__u32 tx_drops;		/* dropped: a link had no room, or was not made */
	__u32 error;		/* pending error, as SO_ERROR would give it */
	__u32 sndbuf;		/* as SO_SNDBUF gives it */
	__u32 rcvbuf;
	__u8 local_addr6[16];	/* an IPv4 address is v4-mapped */
	__u8 remote_addr6[16];	/* of connect() */
	__be16 local_port;
	__be16 remote_port;
	__u32 local_scope_id;	/* interface of a link-local address, else 0 */
	__u32 remote_scope_id;
	__u32 reserved0;
	__u64 reserved[4];
};

struct zrs_ioc_dgram {
	__u64 cursor;		/* in, out */
	struct zrs_dgram_info info;
};

#define ZRS_IOC_DGRAM		_IOWR(ZRS_IOC_MAGIC, 0x20, struct zrs_ioc_dgram)

/*
 * The link table: the state of each channel, in one of three tiers. One table
 * for the machine: the numbers are those of all network namespaces, for callers
 * with CAP_NET_ADMIN in the first user namespace. Others get the sizes, and in
 * entries the channels on links of their network namespace; the rest is 0. All is
 * counted in channels, and in requests for one, from loading on.
 */
struct zrs_ioc_table {
	__u32 hot_slots;	/* places in the first tier */
	__u32 near_places;	/* places in the second tier */
	__u32 ways;		/* of these, in each set */
	__u32 most;		/* channels that there may be: places in the third */
	__u32 entries;		/* channels now */
	__u32 hot;		/* of them: in the first tier */
	__u32 near;		/* of them: in the second */
	__u32 reserved0;
	__u64 hits;		/* requests that found the channel in the first tier */
	__u64 near_hits;	/* that brought it back from the second */
	__u64 faults;		/* that brought it back from the third */
	__u64 parked;		/* moved out of the first: nothing happened to them */
	__u64 evicted;		/* moved out of it: others needed the place */
	__u64 contended;	/* requests that had to be made again */
	__u64 reserved[6];
};

#define ZRS_IOC_TABLE		_IOWR(ZRS_IOC_MAGIC, 0x06, struct zrs_ioc_table)

/*
 * A cache, and the receive pools of the devices that write into it: together
 * they use no more of it than "bytes". Counters are since loading. A list, as
 * those above. Without CAP_NET_ADMIN in the first user namespace it is empty.
 */
#define ZRS_RESIDENCY_BUCKETS	24

struct zrs_ioc_cache {
	__u64 cursor;		/* in, out */
	__s32 node;		/* NUMA node, -1: the machine has no nodes */
	__u32 policy;		/* ZRS_ESCAPE_* */
	__u32 devices;		/* devices whose pools share it */
	__u32 residency_us;	/* data older than this may escape */
	__u64 cache_bytes;	/* the last-level cache's size, 0: not known */
	__u64 rate;		/* of these devices together, bytes a microsecond */
	__u64 bytes;		/* the pools' size now */
	__u64 small_bytes;	/* in use: blocks of the shared receive queues */
	__u64 large_bytes;	/* in use: windows */
	__u64 small_high;	/* the most that was in use of each */
	__u64 large_high;
	__u64 small_share;	/* what of the size is the small class's own */
	__u64 unread;		/* data in the pools that nobody has read */
	__u64 unread_high;
	__u64 escapes;		/* messages that were moved to main memory */
	__u64 escaped_bytes;
	__u64 escaped;		/* data in main memory now */
	__u64 escape_failures;	/* messages that were to be moved, without memory */
	__u64 escape_reserved;	/* main memory promised to connections; all caches */
	__u64 escape_max;	/* as much may be */
	__u64 waits;		/* wishes for a window that had to wait */
	__u64 denied;		/* wishes that were not fulfilled */
	__u64 refused;		/* connects refused for want of escape memory */
	__u64 dry;		/* how often a shared receive queue was empty */
	/*
	 * How long data stayed, messages: [0] less than a microsecond, [n]
	 * less than 2^n, the last one all that stayed longer.
	 */
	__u64 residency[ZRS_RESIDENCY_BUCKETS];
	__u64 reserved[8];
};

#define ZRS_ESCAPE_NEVER	0
#define ZRS_ESCAPE_PRESSURE	1	/* where others want the room */
#define ZRS_ESCAPE_ALWAYS	2

#define ZRS_IOC_CACHE		_IOWR(ZRS_IOC_MAGIC, 0x07, struct zrs_ioc_cache)

/*
 * The rules of the caller's network namespace: which sockets with ZRS_TCP_AUTO
 * stay with TCP. They are in order, the first that matches a call's address
 * decides. connect() looks for the peer's address, bind() for the own one, and
 * so does listen() without bind().
 */
struct zrs_rule {
	__u32 action;		/* ZRS_RULE_TCP, ZRS_RULE_ZRS */
	__u32 calls;		/* ZRS_RULE_CONNECT, ZRS_RULE_BIND, or both */
	__u32 family;		/* AF_INET, AF_INET6; 0: every address matches */
	__u32 prefix_len;	/* bits of the address that have to match */
	__u8 addr[16];		/* an IPv4 address is v4-mapped; family 0: 0 */
	__u16 first_port;	/* in host byte order; 0: every port matches */
	__u16 last_port;
	__u32 reserved;
};

#define ZRS_RULE_TCP		1	/* TCP carries the socket */
#define ZRS_RULE_ZRS		2	/* as without rules; for an own address, too */
#define ZRS_RULE_CONNECT	1
#define ZRS_RULE_BIND		2

/*
 * LIST is a list by cursor, as those above, for everybody. The others need
 * CAP_NET_ADMIN in the user namespace that the network namespace belongs to,
 * else EPERM.
 *
 * Errors: EINVAL (unknown, reserved, bits or ports that cannot be), ENOENT (DEL:
 * there is no such rule; LIST: no further one), ENOSPC (more than ZRS_RULES_MAX),
 * ENOMEM, EFAULT.
 */
struct zrs_ioc_rules {
	__u64 cursor;		/* LIST: in, out */
	__u64 rules;		/* SET: address of an array of struct zrs_rule */
	__u32 op;		/* in: ZRS_RULES_* */
	__u32 count;		/* SET: rules in it */
	struct zrs_rule rule;	/* LIST: out; ADD, DEL: in */
	__u32 at;		/* ADD: rules before it; more than there are: the last */
	__u32 reserved0;
	__u64 reserved[2];
};

#define ZRS_RULES_LIST		0
#define ZRS_RULES_SET		1	/* these rules replace all, at once */
#define ZRS_RULES_ADD		2
#define ZRS_RULES_DEL		3	/* the first that equals rule */

#define ZRS_RULES_MAX		1024

#define ZRS_IOC_RULES		_IOWR(ZRS_IOC_MAGIC, 0x08, struct zrs_ioc_rules)

/*
 * How often TCP has come to carry a socket since the module was loaded, by the
 * reason: the number of it is the index. Without CAP_NET_ADMIN in the first user
 * namespace: of the caller's network namespace.
 */
#define ZRS_WHY_MAX		32

struct zrs_ioc_fallback {
	__u64 by_why[ZRS_WHY_MAX];
	__u32 known;		/* hosts and ports remembered to have no ZRS */
	__u32 known_max;	/* as many can be; the least recently used goes */
	__u64 reserved[7];
};

#define ZRS_IOC_FALLBACK	_IOWR(ZRS_IOC_MAGIC, 0x09, struct zrs_ioc_fallback)

/*
 * The list of peers of the caller's network namespace: which hosts may have
 * links with it, in either direction, for streams, datagrams and memory nodes.
 * The entry with the longest network that has the host's address decides; a host
 * that no entry has is allowed. A change ends the links that are not allowed any
 * more.
 *
 * connect() to a host that is not allowed, here or there, is EACCES; with
 * ZRS_TCP_AUTO it is by TCP.
 */
struct zrs_peer {
	__u32 action;		/* ZRS_PEER_ALLOW, ZRS_PEER_DENY */
	__u32 family;		/* AF_INET, AF_INET6 */
	__u32 prefix_len;	/* bits of the address that have to match */
	__u32 reserved;
	__u8 addr[16];		/* an IPv4 address is v4-mapped */
};

#define ZRS_PEER_ALLOW		1
#define ZRS_PEER_DENY		2

/*
 * LIST, a list by cursor as the lists above, needs no privilege. COUNTS needs
 * CAP_NET_ADMIN in the first user namespace, all other operations need it in the
 * user namespace that the network namespace belongs to; else EPERM.
 *
 * Errors: EINVAL (unknown, reserved, bits that cannot be), ENOENT (DEL: there is
 * no such network; LIST: no further entry), ENOSPC (more than ZRS_PEERS_MAX),
 * ENOMEM, EFAULT.
 */
struct zrs_ioc_peers {
	__u64 cursor;		/* LIST: in, out */
	__u64 peers;		/* SET: address of an array of struct zrs_peer */
	__u32 op;		/* in: ZRS_PEERS_* */
	__u32 count;		/* SET: entries in it */
	struct zrs_peer peer;	/* LIST: out; PUT, DEL: in */
	/* COUNTS: links since the module was loaded, of all network namespaces */
	__u64 refused;		/* asked for by hosts that are not allowed */
	__u64 unasked;		/* not asked for: the host is not allowed */
	__u64 refused_there;	/* refused by the other host's list */
	__u64 reserved[2];
};

#define ZRS_PEERS_LIST		0
#define ZRS_PEERS_SET		1	/* these entries replace all, at once */
#define ZRS_PEERS_PUT		2	/* instead of that of the same network */
#define ZRS_PEERS_DEL		3	/* the entry of this network; action is 0 */
#define ZRS_PEERS_COUNTS	4

#define ZRS_PEERS_MAX		1024

#define ZRS_IOC_PEERS		_IOWR(ZRS_IOC_MAGIC, 0x0a, struct zrs_ioc_peers)

/*
 * The keys of the caller's network namespace: the hosts of a network that has
 * keys have no link with the namespace, in either direction, before both sides
 * have proved that they have one of them. The longest network that has the host's
 * address decides. It has two keys at most, so that one can follow the other: the
 * hosts need one in common. Links of memory nodes prove it as those of streams do.
 *
 * A key is a kernel key of the type "logon" and the description "zrs:NAME", of 16
 * bytes or more. PUT looks it up in the keyrings of the caller; it is used as long
 * as it is in the list, whether in keyrings or not, unless it is revoked or has
 * expired. Then, and with another key, the hosts have no link.
 *
 * connect() to a host without a proof is EACCES; with ZRS_TCP_AUTO it is by TCP.
 * A change ends the links that have no proof and need one now, and no others.
 */
#define ZRS_KEY_NAME_LEN	64

struct zrs_key {
	__u32 family;		/* AF_INET, AF_INET6 */
	__u32 prefix_len;	/* bits of the address that have to match */
	__u8 addr[16];		/* an IPv4 address is v4-mapped */
	__u8 name[ZRS_KEY_NAME_LEN];	/* letters, digits, ".", "_", "-"; NULs follow */
};

/*
 * LIST, a list by cursor as the lists above, needs no privilege. COUNTS needs
 * CAP_NET_ADMIN in the first user namespace, all other operations need it in the
 * user namespace that the network namespace belongs to; else EPERM.
 *
 * Errors: EINVAL (unknown, reserved, bits or a name that cannot be), ENOENT (DEL:
 * there is no such key; LIST: no further entry), EMLINK (the network has two keys
 * of other names), ENOSPC (more than ZRS_KEYS_MAX), ENOKEY (PUT: not in the
 * keyrings), EKEYREVOKED, EKEYEXPIRED, ERANGE (PUT: a key that is too short),
 * EOPNOTSUPP (PUT: a kernel without keyrings), ENOMEM, EFAULT.
 */
struct zrs_ioc_keys {
	__u64 cursor;		/* LIST: in, out */
	__u32 op;		/* in: ZRS_KEYS_* */
	__u32 error;		/* LIST: out: 0, or why the key cannot be used, an errno */
	struct zrs_key key;	/* LIST: out; PUT, DEL: in */
	/* COUNTS: links since the module was loaded, of all network namespaces */
	__u64 proved;		/* that came up with a proof */
	/* that did not come up, because */
	__u64 unoffered;	/* the other host has no key for this one */
	__u64 keyless;		/* the other host has a key, and this one has none */
	__u64 wrong;		/* the other host's key is another one */
	__u64 unusable;		/* the key here was revoked or has expired */
	__u64 silent;		/* the other host did not send its proof */
	__u64 refused_there;	/* the other host has ended the proof */
	__u64 reserved[4];
};

#define ZRS_KEYS_LIST		0
#define ZRS_KEYS_PUT		1	/* instead of that of the same network and name */
#define ZRS_KEYS_DEL		2	/* the key of this network and name; no name: all */
#define ZRS_KEYS_COUNTS		3

#define ZRS_KEYS_MAX		1024

#define ZRS_IOC_KEYS		_IOWR(ZRS_IOC_MAGIC, 0x0b, struct zrs_ioc_keys)

/* 0x10 to 0x1f: memory nodes. 0x20 to 0x2f: datagram sockets. */

/* ---- the socket -------------------------------------------------------- */

/* Options at level SOL_ZRS. */
#define ZRS_RX_RING		1	/* struct zrs_rx_ring; set once, get */
#define ZRS_INFO		2	/* struct zrs_info; get */
#define ZRS_TCP			3	/* __u32, ZRS_TCP_*; set before bind(), get */
/* 16 to 31: datagrams. */
#define ZRS_DGRAM_UDP		16	/* __u32, 0 or 1; set before bind(), get */
#define ZRS_DGRAM_INFO		17	/* struct zrs_dgram_info; get */

/*
 * TCP beside ZRS: whether bind() and listen() take the port from TCP as well,
 * and connect() may use TCP. The module parameter "tcp" says which it is for a
 * new socket.
 *
 * NEVER: no. ZRS's ports and TCP's are two spaces.
 * AUTO: yes, and listen() listens with both: accept() returns connections of
 *	ZRS clients and of TCP clients, these as plain TCP sockets (SO_PROTOCOL
 *	says which). bind() fails as that of a TCP socket would. connect() uses
 *	ZRS if it can, else TCP, and then TCP carries the socket: all calls have
 *	its answers. ZRS_INFO tells the carrier, and why it is that.
 * REQUIRED: yes, and TCP clients are refused. connect() uses ZRS alone.
 * ONLY: TCP carries the socket from now on.
 *
 * With NEVER, connect() uses ZRS alone.
 *
 * Errors: EINVAL (unknown, or the socket has a port, is connected or had an
 * option set that made its TCP socket), EACCES (the task has no_new_privs, see
 * the parameter tcp_no_new_privs; bind() and listen() check it again).
 */
#define ZRS_TCP_NEVER		0
#define ZRS_TCP_AUTO		1
#define ZRS_TCP_REQUIRED	2
#define ZRS_TCP_ONLY		3

/*
 * ZRS_DGRAM_UDP: a UDP socket inside a datagram socket, with its port and its
 * options, so that hosts without ZRS are reached, multicast, and all that UDP
 * alone can. Datagrams go by RDMA to destinations that get many of them and
 * whose host says that a socket of ZRS has the port; all others by UDP.
 * bind() takes the port from both, or fails. Options that are set before this
 * one may be unknown to UDP.
 *
 * Errors: EINVAL (not 0 or 1, or the socket has a port), EACCES (the task has
 * no_new_privs, see the parameter tcp_no_new_privs; bind() checks it again),
 * EOPNOTSUPP (a socket of the kernel), those of socket().
 */

/*
 * The receive ring: the program maps the window that the peer's RDMA WRITEs land in, and a ring of
 * descriptors that shows the segments that have landed.
 *
 * setsockopt(ZRS_RX_RING) on a connected socket leases the window if the
 * socket has none yet and makes the ring; getsockopt() gives the same values
 * again. Then
 *	mmap(NULL, ring_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, ring_offset)
 *	mmap(NULL, window_bytes, PROT_READ, MAP_SHARED, fd, window_offset)
 * A private or writable mapping of the window is EINVAL or EACCES. The address
 * is the kernel's choice; MAP_FIXED is honoured as for any file.
 *
 * Errors: ENOTCONN, EBUSY (another thread's recv() is at work, or data in a
 * window that has gone back to the pool is unread), ENOMEM, EINTR, ENOBUFS (the
 * pool has no window to lease, or rings have their part of them).
 *
 * The mappings keep the socket alive: the program shuts the socket down before
 * it closes it, else the peer learns of the end only after munmap().
 */
struct zrs_rx_ring {
	__u32 flags;		/* in: ZRS_RX_RING_*; out: those that hold */
	__u32 entries;		/* out: descriptors, a power of two */
	__u64 ring_offset;	/* out: offset for mmap() */
	__u64 ring_bytes;	/* out: length for mmap() */
	__u64 window_offset;	/* out: offset for mmap() */
	__u64 window_bytes;	/* out: length for mmap() */
	__u64 escape_offset;	/* out: offset for mmap(); with either flag */
	__u64 escape_bytes;	/* out: length for mmap(), 0 without */
};

/*
 * The program maps the escape area as well (PROT_READ, MAP_SHARED), and knows
 * ZRS_DESC_ESCAPED. Without this flag what is in the window stays there.
 */
#define ZRS_RX_RING_ESCAPE	1
/*
 * The same, for small messages (those that do not come in the window): the kernel
 * copies them to the escape area when they arrive, and the program reads them
 * there. Without this flag they are KERNEL, to be fetched by recv().
 */
#define ZRS_RX_RING_SMALL	2

/*
 * A descriptor. The n-th segment of the stream is described by
 * desc[n % entries], n from first (what had arrived and was not yet read when
 * the ring was made) to head - 1. The kernel writes all fields, then the state, then head.
 *
 * FREE -> READY (kernel): len bytes lie in the window at off.
 * FREE -> KERNEL (kernel): the next len bytes of the stream wait in the
 *	kernel: take them by recv(); the kernel then sets DONE itself.
 * FREE -> ESCAPED (kernel, with ZRS_RX_RING_SMALL): len bytes lie in the escape
 *	area at escape_off.
 * READY -> HELD (program, compare-and-swap): the program reads the bytes; the
 *	kernel never moves or reuses what is HELD.
 * READY -> KERNEL (kernel, compare-and-swap): recv() has begun to take it.
 * READY -> ESCAPED (kernel, compare-and-swap): it was not read for long, and
 *	now lies in the escape area at escape_off; what is in the window at off
 *	is not it any more. From ESCAPED it goes on as from READY.
 * HELD -> DONE (program): given back, in any order.
 * DONE -> FREE (kernel): the room is the peer's again, in the stream's order.
 */
#define ZRS_DESC_FREE		0
#define ZRS_DESC_READY		1
#define ZRS_DESC_HELD		2
#define ZRS_DESC_DONE		3
#define ZRS_DESC_KERNEL		4
#define ZRS_DESC_ESCAPED	5

struct zrs_desc {
	__u64 pos;		/* position in the stream of the first byte */
	__u32 off;		/* offset in the window */
	__u32 len;
	__u32 state;		/* ZRS_DESC_*; atomic */
	__u32 escape_off;	/* ESCAPED: offset in the escape area */
	__u64 reserved1;
};

/* The layout of the ring's mapping. A new layout gets a new option. */
#define ZRS_RING_VERSION	2

/*
 * The head of the ring's mapping. The kernel never reads back what it wrote:
 * a program that scribbles here harms only itself.
 *
 * After DONE: a full barrier, then if need_credit is set, clear it and call
 * ZRS_IOC_DOORBELL.
 */
struct zrs_ring {
	__u32 version;		/* ZRS_RING_VERSION */
	__u32 entries;		/* descriptors, a power of two */
	__u32 desc_offset;	/* of desc[0] from the start of the mapping */
	__u32 reserved0;
	__u64 first;		/* number of the first segment in this ring */
	__u64 reserved1[5];
	__u64 head;		/* segments ever published; kernel writes */
	__u64 reserved2[7];
	__u32 need_credit;	/* kernel sets, program clears */
	__u32 reserved3[15];
};

/* ioctl() on the socket: look for DONE descriptors now. No argument. */
#define ZRS_IOC_DOORBELL	_IO(ZRS_IOC_MAGIC, 0x40)

/*
 * ioctl() on a socket with a ring: wait until the ring's head is at least
 * "head", until the stream has ended or failed (then recv() says which), until
 * there is something to take and the peer may soon be out of room, or for
 * timeout_ns, rounded up to the kernel's ticks; 0, and more than 49 days, is for
 * ever, whatever O_NONBLOCK and SO_RCVTIMEO say. As poll(), it looks for DONE
 * descriptors; unlike poll() it takes what the link brings itself, and polls
 * before it sleeps if the socket may (SO_BUSY_POLL).
 *
 * Errors: EINVAL (no ring, reserved), EFAULT, EAGAIN (the time is over), EINTR.
 */
struct zrs_ioc_ring_wait {
	__u64 head;		/* in: segments */
	__u64 timeout_ns;	/* in: nanoseconds */
	__u64 reserved[2];
};

#define ZRS_IOC_RING_WAIT	_IOW(ZRS_IOC_MAGIC, 0x41, struct zrs_ioc_ring_wait)

/*
 * Mapped receives: what arrives is shown to the program at addresses
 * of its choice, by pages of the pool where that saves a copy.
 *
 *	area = mmap(NULL, len, PROT_READ, MAP_SHARED, fd, ZRS_AREA_OFFSET)
 *
 * reserves addresses, on any socket; a socket may have many areas. Then
 * ZRS_IOC_RECV_MAP is a recv() to addr, inside an area: it waits for the first
 * byte, and delivers what has arrived, at most len bytes, which begin at addr.
 * It returns how many, 0 at the end of the stream.
 *
 * Of more than 16 KiB, whole pages are lent if they lie at the same place in their page as in the
 * area; a message of more than 16 KiB begins at the beginning of a page. Bytes on a first or last
 * page that is not full are copied, and so are messages that are smaller, lie elsewhere in their
 * page, or exceed the share of the windows that programs may have. In each case the program finds
 * the bytes at their address. The area can be used like other memory, for O_DIRECT and for sending
 * too, but it cannot be written to.
 *
 * Pages that begin in the addr .. addr + len of a call are given back by it before it waits; bytes
 * before addr in its page stay. Other pages are given back by MADV_DONTNEED or munmap() of a whole
 * area. An access to an address where nothing was received, or whose page was given back, is
 * SIGBUS. A page that was given back while it is being written to a file or sent, or is in a pipe,
 * is reused when that is over.
 *
 * On a datagram socket a call receives one datagram: all of it, or EMSGSIZE if there is no room for
 * it, and it stays. 0 is an empty datagram, or the end after shutdown(). Of more than 16 KiB, the
 * fragments of 4096 bytes are lent, if the datagram begins at a page and arrived when the socket
 * had an area; at most "dgram_lend_percent" of the device's blocks are. The sender's address is
 * that of recvmsg() with MSG_PEEK before.
 *
 * An area keeps the socket alive, as other mappings do; it is not inherited by
 * fork().
 *
 * Errors: EFAULT (addr is not in an area of this socket; the structure cannot
 * be read or written), EINVAL (flags, reserved, len 0; the socket has a ring),
 * ENOMEM, and those of recv().
 */
#define ZRS_AREA_OFFSET		0x200000000ULL

#define ZRS_RECV_MAP_DONTWAIT	1	/* EAGAIN instead of waiting */
/* The first byte may be up to 4095 bytes behind addr: where most can be lent. */
#define ZRS_RECV_MAP_SHIFT	2

struct zrs_ioc_recv_map {
	__u64 addr;		/* in: where to; out: where the first byte is */
	__u64 len;		/* in: at most; out: bytes, as returned */
	__u64 copied;		/* out: of len: copied by the CPU */
	__u32 flags;		/* in: ZRS_RECV_MAP_* */
	__u32 reserved0;
	__u64 reserved[2];
};

#define ZRS_IOC_RECV_MAP	_IOWR(ZRS_IOC_MAGIC, 0x42, struct zrs_ioc_recv_map)

/* ---- memory nodes ------------------------------------------------------ */

/* A memory node. Domain 0 is the host's own. */
struct zrs_mem_node {
	__u32 domain;
	__u32 node;
};

/* A capability: any holder of these 128 bits may use the region, within the key's rights. */
struct zrs_mem_key {
	__u32 region;
	__u32 gen;
	__u64 secret;
};

/* Memory of a node; programs may pass it on in any way. */
struct zrs_mem_storage {
	__u64 va;		/* address of the first byte, as the owner has it */
	__u64 len;
	struct zrs_mem_key key;
};

/* Rights of keys. */
#define ZRS_MEM_READ		1
#define ZRS_MEM_WRITE		2
#define ZRS_MEM_GRANT		4	/* derive and revoke keys, seal */
#define ZRS_MEM_FREE		8

/*
 * Serve memory of a memfd as a node of the caller's network namespace; the call
 * returns a descriptor, and the node ends with it. Needs CAP_NET_ADMIN.
 */
struct zrs_ioc_mem_serve {
	struct zrs_mem_node node;
	__s32 memfd;
	__u32 flags;		/* ZRS_MEM_SERVE_OPEN */
	__u64 offset;		/* of the first byte in the memfd; whole pages */
	__u64 len;		/* whole pages */
	__u8 admission[16];	/* what an allocation must show */
	__u32 host_percent;	/* of len, that one other host may have; 0: 50 */
	__u32 reserved0;
	__u64 reserved[2];
};

#define ZRS_MEM_SERVE_OPEN	1	/* allocations need not show anything */

#define ZRS_IOC_MEM_SERVE	_IOW(ZRS_IOC_MAGIC, 0x10, struct zrs_ioc_mem_serve)

/*
 * The directory of the caller's network namespace: which host serves which node.
 * LIST: a list by cursor, as above, for everybody; the others need CAP_NET_ADMIN.
 */
struct zrs_ioc_mem_nodes {
	__u64 cursor;		/* in, out */
	struct zrs_mem_node node;
	__u8 addr[16];		/* RDMA address of the host; v4-mapped for IPv4 */
	__u32 scope_id;		/* interface of a link-local address */
	__u32 op;		/* in: ZRS_MEM_NODES_* */
	__u32 own_domain;	/* LIST: out */
	/*
	 * LIST: out, with ZRS_FEATURE_MEM_ADMIN: what is known. Of a node that is served here as
	 * it is now; of another one as its host said when the link that is up was made.
	 */
	__u32 state;		/* ZRS_MEM_NODE_* */
	__u64 incarnation;	/* another one each time that the node is served; 0: not known */
	__u64 free;		/* bytes that are in no region */
};

#define ZRS_MEM_NODE_UNKNOWN	0	/* there is no link with its host */
#define ZRS_MEM_NODE_SERVED	1
#define ZRS_MEM_NODE_DRAINING	2	/* it takes no new regions */
#define ZRS_MEM_NODE_ABSENT	3	/* its host does not serve it */

#define ZRS_MEM_NODES_LIST	0
#define ZRS_MEM_NODES_SET	1	/* add a node, or change its address */
#define ZRS_MEM_NODES_DEL	2
#define ZRS_MEM_NODES_CLEAR	3	/* all of them */
#define ZRS_MEM_NODES_SELF	4	/* node.domain is this host's own domain */

#define ZRS_IOC_MEM_NODES	_IOWR(ZRS_IOC_MAGIC, 0x11, struct zrs_ioc_mem_nodes)

/* Allocate a region; the call returns a descriptor of it, as open() does of a file. */
struct zrs_ioc_mem_alloc {
	struct zrs_mem_node node;
	__u64 len;
	__u64 va;		/* chosen by the caller; may be 0 */
	__u32 flags;		/* ZRS_MEM_KEEP, ZRS_MEM_VIA */
	__u32 ttl_ms;		/* the region ends then; 0: it does not */
	__u8 admission[16];	/* of the node, or of the broker */
	struct zrs_mem_storage storage;	/* out */
	struct zrs_mem_node via; /* with ZRS_MEM_VIA */
	__u64 reserved;
};

#define ZRS_MEM_KEEP		1	/* stays when the descriptor is closed */
/*
 * The host of the node "via" allocates the region, as the broker, and owns it.
 * The key reads and writes. ZRS_REGION_FREE, or the close, gives it back.
 */
#define ZRS_MEM_VIA		2

#define ZRS_IOC_MEM_ALLOC	_IOWR(ZRS_IOC_MAGIC, 0x12, struct zrs_ioc_mem_alloc)

/* A descriptor for a storage id. Its rights are checked at the node, now and with each use. */
struct zrs_ioc_mem_open {
	struct zrs_mem_node node;
	struct zrs_mem_storage storage;
	struct zrs_mem_node via; /* with ZRS_MEM_VIA: the broker that has allocated it */
	__u32 flags;		/* ZRS_MEM_VIA */
	__u32 reserved;
};

#define ZRS_IOC_MEM_OPEN	_IOW(ZRS_IOC_MAGIC, 0x13, struct zrs_ioc_mem_open)

/*
 * A queue of operations on regions; the call returns its descriptor, on which
 * ZRS_QUEUE_SUBMIT queues operations and read() gives completions. poll():
 * POLLIN if there is a completion, POLLOUT if there is room for an operation.
 * An operation has its entry until its completion is read. Closing the queue
 * cancels what is under way.
 */
struct zrs_ioc_mem_queue {
	__u32 entries;		/* 1 to ZRS_MEM_QUEUE_MAX */
	__u32 flags;		/* 0 */
	__u64 reserved;
};

#define ZRS_MEM_QUEUE_MAX	4096

#define ZRS_IOC_MEM_QUEUE	_IOW(ZRS_IOC_MAGIC, 0x14, struct zrs_ioc_mem_queue)

/*
 * Allocate regions of a node for other hosts: this host is their broker and
 * owns them. Returns a descriptor, with which the rule ends, and its regions
 * but for those with ZRS_MEM_KEEP. Needs CAP_NET_ADMIN. EEXIST: the node has a
 * rule.
 */
struct zrs_ioc_mem_broker {
	struct zrs_mem_node node;
	__u64 quota;		/* most bytes in such regions */
	__u8 admission[16];	/* what a request must show */
	__u8 node_admission[16]; /* what the node wants to be shown */
	__u32 flags;		/* ZRS_MEM_SERVE_OPEN: requests need not show anything */
	__u32 reserved0;
	__u64 reserved[2];
};

#define ZRS_IOC_MEM_BROKER	_IOW(ZRS_IOC_MAGIC, 0x17, struct zrs_ioc_mem_broker)

/*
 * A node that is served here takes no new regions (ESHUTDOWN), or takes them
 * again. Its descriptor has POLLPRI when it takes none and has none. Needs
 * CAP_NET_ADMIN. ENXIO: it is not served here.
 */
struct zrs_ioc_mem_drain {
	struct zrs_mem_node node;
	__u32 flags;		/* ZRS_MEM_DRAIN_UNDO */
	__u32 reserved0;
	__u64 reserved[2];
};

#define ZRS_MEM_DRAIN_UNDO	1

#define ZRS_IOC_MEM_DRAIN	_IOW(ZRS_IOC_MAGIC, 0x18, struct zrs_ioc_mem_drain)

/* A region of the nodes that are served here: a list by cursor. Needs CAP_NET_ADMIN. */
struct zrs_ioc_mem_region {
	__u64 cursor;		/* in, out */
	struct zrs_mem_node node;
	__u64 len;
	__u32 region;
	__u32 gen;
	__u32 owner;		/* number of the host that has allocated it; 0: this one */
	__u32 state;		/* ZRS_REGION_LIVE and so on */
	__u32 flags;		/* ZRS_MEM_KEEP */
	__u32 holds;		/* operations and grants under way */
	__u64 node_bytes;
	__u64 node_free;	/* bytes that are in no region */
	__u64 reserved[2];
};

#define ZRS_IOC_MEM_REGION	_IOWR(ZRS_IOC_MAGIC, 0x15, struct zrs_ioc_mem_region)

/*
 * Free a region of a node that is served here, without a key of it: region and
 * gen are those of ZRS_IOC_MEM_REGION. As ZRS_REGION_FREE otherwise: when the call
 * has returned, nothing lands in it any more. Needs CAP_NET_ADMIN. ENXIO: the node
 * is not served here. ESTALE: it has no such region. EAGAIN: too many frees wait.
 * EINTR: the task is being killed; the region is freed all the same.
 */
struct zrs_ioc_mem_free {
	struct zrs_mem_node node;
	__u32 region;
	__u32 gen;
	__u64 reserved[2];
};

#define ZRS_IOC_MEM_FREE	_IOW(ZRS_IOC_MAGIC, 0x16, struct zrs_ioc_mem_free)

/*
 * Memory nodes in the caller's network namespace, for everybody: what is there now, and counters
 * since the module was loaded or, if that was later, the namespace was made.
 */
struct zrs_ioc_mem_stats {
	__u64 regions;		/* now: of the nodes that are served here */
	__u64 region_bytes;	/* now: of these nodes, in regions */
	__u64 links;		/* now: memory links that are up, to and from other hosts */
	__u64 grants_given;	/* now: of remote keys, to other hosts */
	__u64 grants_held;	/* now: of remote keys of other hosts' nodes */
	__u64 requests_sent;	/* to other hosts */
	__u64 requests_served;	/* answered: of other hosts and of programs here */
	__u64 requests_refused;	/* of these: with an error, but EAGAIN and cancels */
	__u64 program_write_bytes; /* written to regions by programs here */
	__u64 program_read_bytes; /* read from regions by programs here */
	/* Of the nodes that are served here: */
	__u64 node_write_bytes;	/* written, also by copies of other hosts */
	__u64 node_read_bytes;	/* read, but by a remote key, which this host does not see */
	__u64 copied_out_bytes;	/* copied to nodes of other hosts */
	__u64 copied_within_bytes; /* copied to nodes here; not in node_write_bytes */
	/* Links that ended because the peer's host was late: */
	__u64 late_revokes;	/* with a remote key that it was to give back */
	__u64 silent_links;	/* with another answer */
	__u64 reserved[8];
};

#define ZRS_IOC_MEM_STATS	_IOWR(ZRS_IOC_MAGIC, 0x19, struct zrs_ioc_mem_stats)

#define ZRS_REGION_LIVE		0
#define ZRS_REGION_SEALING	1
#define ZRS_REGION_SEALED	2
#define ZRS_REGION_CLOSING	3

/* ioctl() on a region: what its node says of it. */
struct zrs_region_info {
	struct zrs_mem_node node;
	struct zrs_mem_storage storage;	/* its secret is 0 without ZRS_MEM_GRANT */
	__u32 rights;		/* of the descriptor's key */
	__u32 keys;
	__u32 holds;
	__u32 reserved0;
	__u64 reserved[2];
};

#define ZRS_REGION_INFO		_IOWR(ZRS_IOC_MAGIC, 0x50, struct zrs_region_info)

/* ioctl() on a region: derive a key from the descriptor's, or revoke one. */
struct zrs_region_key {
	__u32 rights;
	__u32 uses;		/* 0: any number */
	__u64 off;
	__u64 len;
	__u32 ttl_ms;		/* 0: for ever */
	__u32 reserved0;
	struct zrs_mem_key key;	/* derive: out; revoke: in, and all else is 0 */
};

#define ZRS_REGION_KEY		_IOWR(ZRS_IOC_MAGIC, 0x51, struct zrs_region_key)
#define ZRS_REGION_UNKEY	_IOWR(ZRS_IOC_MAGIC, 0x52, struct zrs_region_key)

/* ioctl() on a region: nothing writes it any more. Returns when no further byte can land. */
#define ZRS_REGION_SEAL		_IO(ZRS_IOC_MAGIC, 0x53)

/* ioctl() on a region: free it. Returns when no further byte can land. */
#define ZRS_REGION_FREE		_IO(ZRS_IOC_MAGIC, 0x54)

/*
 * An operation of a queue. Operations have no order, but for those with
 * ZRS_MEM_F_DRAIN. At the end of what is read, of the source of a COPY as
 * well, an operation is shortened.
 */
struct zrs_mem_sqe {
	__u8 op;		/* ZRS_MEM_OP_* */
	__u8 flags;		/* ZRS_MEM_F_* */
	__u16 reserved0;
	__s32 fd;		/* a region; 0 for CANCEL */
	__s32 src_fd;		/* COPY: a region; 0 for the others */
	__u32 reserved1;
	__u64 off;		/* in the region fd; 0 for CANCEL */
	__u64 src;		/* see ZRS_MEM_OP_* */
	__u64 len;		/* 1 to ZRS_MEM_OP_LEN_MAX; 0 for CANCEL */
	__u64 user_data;	/* the completion has it */
	__u64 reserved2[2];
};

#define ZRS_MEM_OP_COPY		1	/* from src in the region src_fd */
#define ZRS_MEM_OP_WRITE	2	/* from the memory at the address src */
#define ZRS_MEM_OP_READ		3	/* to the memory at the address src */
#define ZRS_MEM_OP_CANCEL	4	/* the oldest with the user_data src */

/* It begins when all before it are done, and those behind it when it is done. */
#define ZRS_MEM_F_DRAIN		1

#define ZRS_MEM_OP_LEN_MAX	(1ULL << 30)

struct zrs_mem_cqe {
	__u64 user_data;
	__s64 res;		/* bytes, or a negative errno */
	__u64 done;		/* bytes from the first on that have landed for sure */
	__u32 flags;		/* 0 */
	__u32 reserved;
};

/*
 * ioctl() on a queue: queue operations. Returns how many were taken, at least 1:
 * the first one that is refused ends the call, and if it is the first of all,
 * the call has its error. Memory of WRITE and READ stays pinned until the
 * operation is done; it counts against RLIMIT_MEMLOCK until its completion is
 * read.
 *
 * A CANCEL completes when the operation is done: after its completion no
 * further byte of the operation can land, unless that has ECONNRESET.
 *
 * Errors: EAGAIN (no room: read completions first), EINVAL, EBADF (not regions,
 * or not open for this), EXDEV (a region of another network namespace), EFAULT,
 * ENOMEM (or RLIMIT_MEMLOCK).
 */
struct zrs_queue_submit {
	__u64 sqes;		/* address of struct zrs_mem_sqe[count] */
	__u32 count;
	__u32 flags;		/* 0 */
};

#define ZRS_QUEUE_SUBMIT	_IOW(ZRS_IOC_MAGIC, 0x58, struct zrs_queue_submit)

#endif /* _UAPI_LINUX_ZRS_H */
