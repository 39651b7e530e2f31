/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The tracepoints of the module, group "zrs". Documentation/observability.rst
 * describes them; rust/kern/trace.rs is what calls them.
 *
 * A channel is named by its number and generation, as in "zrs ss"; addresses
 * are struct sockaddr_in or sockaddr_in6. Nothing here is a kernel address.
 */
#undef TRACE_SYSTEM
#define TRACE_SYSTEM zrs

#if !defined(_ZRS_TRACE_H) || defined(TRACE_HEADER_MULTI_READ)
#define _ZRS_TRACE_H

#include <linux/tracepoint.h>
#include <linux/types.h>

#include "../../uapi/linux/zrs.h"

#ifndef _ZRS_TRACE_ENDS
#define _ZRS_TRACE_ENDS

/* The size of struct sockaddr_in6, as a number, so that the format file shows it. */
#define ZRS_TRACE_ADDR	28

/* The connection that an event is about. */
struct zrs_trace_ends {
	u32 chan;
	u32 gen;
	u16 lport;
	u16 rport;
	u8 local[ZRS_TRACE_ADDR];
	u8 remote[ZRS_TRACE_ADDR];
};

/* The cause of a stall; how data leaves or reaches a program; the memory that is emptied. */
#define ZRS_STALL_CHANNEL	0
#define ZRS_STALL_LINK		1
#define ZRS_STALL_BUFFER	2
#define ZRS_BY_COPY		0
#define ZRS_BY_PINNING		1
#define ZRS_BY_MAPPING		2
#define ZRS_BY_SPLICE		3
#define ZRS_BY_RING		4
#define ZRS_MOVED_WINDOW	0
#define ZRS_MOVED_RING		1
#define ZRS_MOVED_BLOCK		2

#endif /* _ZRS_TRACE_ENDS */

#define zrs_ends_fields						\
	__field(u32, chan)					\
	__field(u32, gen)					\
	__field(u16, lport)					\
	__field(u16, rport)					\
	__array(u8, local, ZRS_TRACE_ADDR)			\
	__array(u8, remote, ZRS_TRACE_ADDR)

#define zrs_ends_assign						\
	do {							\
		__entry->chan = ends->chan;			\
		__entry->gen = ends->gen;			\
		__entry->lport = ends->lport;			\
		__entry->rport = ends->rport;			\
		memcpy(__entry->local, ends->local, ZRS_TRACE_ADDR);	\
		memcpy(__entry->remote, ends->remote, ZRS_TRACE_ADDR);	\
	} while (0)

#define zrs_ends_format	"chan=%u:%u local=%pISpc remote=%pISpc"
#define zrs_ends_args						\
	__entry->chan, __entry->gen, __entry->local, __entry->remote

#define zrs_show_why(why)					\
	__print_symbolic(why,					\
		{ ZRS_WHY_ASKED,		"asked" },	\
		{ ZRS_WHY_LOCAL,		"local" },	\
		{ ZRS_WHY_DRAIN,		"drain" },	\
		{ ZRS_WHY_KNOWN,		"known" },	\
		{ ZRS_WHY_NO_ZRS,		"no-zrs" },	\
		{ ZRS_WHY_SLOW,			"slow" },	\
		{ ZRS_WHY_NO_LISTENER,		"no-listener" },	\
		{ ZRS_WHY_NO_RESOURCES,		"no-resources" },	\
		{ ZRS_WHY_RULE,			"rule" },	\
		{ ZRS_WHY_ASKING,		"asking" },	\
		{ ZRS_WHY_PEER,			"peer" },	\
		{ ZRS_WHY_OFF,			"off" },	\
		{ ZRS_WHY_KEY,			"key" },	\
		{ ZRS_WHY_NO_NEW_PRIVS,		"no-new-privs" })

#define zrs_show_state(state)					\
	__print_symbolic(state,					\
		{ ZRS_STATE_CLOSED,		"CLOSED" },	\
		{ ZRS_STATE_BOUND,		"BOUND" },	\
		{ ZRS_STATE_LISTEN,		"LISTEN" },	\
		{ ZRS_STATE_CONNECTING,		"CONNECTING" },	\
		{ ZRS_STATE_ESTABLISHED,	"ESTAB" },	\
		{ ZRS_STATE_CLOSING,		"CLOSING" })

#define zrs_show_way(way)					\
	__print_symbolic(way,					\
		{ ZRS_BY_COPY,			"copy" },	\
		{ ZRS_BY_PINNING,		"pin" },	\
		{ ZRS_BY_MAPPING,		"map" },	\
		{ ZRS_BY_SPLICE,		"splice" },	\
		{ ZRS_BY_RING,			"ring" })

/* An attempt to connect has ended: 0, or an errno. */
TRACE_EVENT(zrs_connect,
	TP_PROTO(const struct zrs_trace_ends *ends, int err),
	TP_ARGS(ends, err),
	TP_STRUCT__entry(
		zrs_ends_fields
		__field(int, err)
	),
	TP_fast_assign(
		zrs_ends_assign;
		__entry->err = err;
	),
	TP_printk(zrs_ends_format " err=%d", zrs_ends_args, __entry->err)
);

/* TCP carries the socket from now on: ZRS_WHY_*. */
TRACE_EVENT(zrs_fallback,
	TP_PROTO(const struct zrs_trace_ends *ends, u32 why),
	TP_ARGS(ends, why),
	TP_STRUCT__entry(
		zrs_ends_fields
		__field(u32, why)
	),
	TP_fast_assign(
		zrs_ends_assign;
		__entry->why = why;
	),
	TP_printk(zrs_ends_format " why=%s", zrs_ends_args, zrs_show_why(__entry->why))
);

/* accept() has taken a connection; backlog: connections that still wait. */
TRACE_EVENT(zrs_accept,
	TP_PROTO(const struct zrs_trace_ends *ends, u32 backlog),
	TP_ARGS(ends, backlog),
	TP_STRUCT__entry(
		zrs_ends_fields
		__field(u32, backlog)
	),
	TP_fast_assign(
		zrs_ends_assign;
		__entry->backlog = backlog;
	),
	TP_printk(zrs_ends_format " backlog=%u", zrs_ends_args,
		  __entry->backlog)
);

/* The last descriptor is closed; unread: bytes that were never read. */
TRACE_EVENT(zrs_close,
	TP_PROTO(const struct zrs_trace_ends *ends, u64 tx_bytes, u64 rx_bytes,
		 u64 unread),
	TP_ARGS(ends, tx_bytes, rx_bytes, unread),
	TP_STRUCT__entry(
		zrs_ends_fields
		__field(u64, tx_bytes)
		__field(u64, rx_bytes)
		__field(u64, unread)
	),
	TP_fast_assign(
		zrs_ends_assign;
		__entry->tx_bytes = tx_bytes;
		__entry->rx_bytes = rx_bytes;
		__entry->unread = unread;
	),
	TP_printk(zrs_ends_format " tx_bytes=%llu rx_bytes=%llu unread=%llu",
		  zrs_ends_args, __entry->tx_bytes, __entry->rx_bytes,
		  __entry->unread)
);

/* ZRS_STATE_* has changed. */
TRACE_EVENT(zrs_state,
	TP_PROTO(const struct zrs_trace_ends *ends, u32 old, u32 new),
	TP_ARGS(ends, old, new),
	TP_STRUCT__entry(
		zrs_ends_fields
		__field(u32, old)
		__field(u32, new)
	),
	TP_fast_assign(
		zrs_ends_assign;
		__entry->old = old;
		__entry->new = new;
	),
	TP_printk(zrs_ends_format " old=%s new=%s", zrs_ends_args,
		  zrs_show_state(__entry->old), zrs_show_state(__entry->new))
);

/* A call is over: bytes wanted, and bytes moved or an errno. */
DECLARE_EVENT_CLASS(zrs_call,
	TP_PROTO(const struct zrs_trace_ends *ends, u64 want, s64 ret, u32 way),
	TP_ARGS(ends, want, ret, way),
	TP_STRUCT__entry(
		zrs_ends_fields
		__field(u64, want)
		__field(s64, ret)
		__field(u32, way)
	),
	TP_fast_assign(
		zrs_ends_assign;
		__entry->want = want;
		__entry->ret = ret;
		__entry->way = way;
	),
	TP_printk(zrs_ends_format " want=%llu ret=%lld way=%s", zrs_ends_args,
		  __entry->want, __entry->ret, zrs_show_way(__entry->way))
);

DEFINE_EVENT(zrs_call, zrs_send,
	TP_PROTO(const struct zrs_trace_ends *ends, u64 want, s64 ret, u32 way),
	TP_ARGS(ends, want, ret, way)
);

DEFINE_EVENT(zrs_call, zrs_recv,
	TP_PROTO(const struct zrs_trace_ends *ends, u64 want, s64 ret, u32 way),
	TP_ARGS(ends, want, ret, way)
);

/* A sender finds no room for a chunk: the peer has given none, or the link. */
TRACE_EVENT(zrs_stall,
	TP_PROTO(const struct zrs_trace_ends *ends, u32 want, u32 what),
	TP_ARGS(ends, want, what),
	TP_STRUCT__entry(
		zrs_ends_fields
		__field(u32, want)
		__field(u32, what)
	),
	TP_fast_assign(
		zrs_ends_assign;
		__entry->want = want;
		__entry->what = what;
	),
	TP_printk(zrs_ends_format " want=%u for=%s", zrs_ends_args,
		  __entry->want,
		  __print_symbolic(__entry->what,
				   { ZRS_STALL_CHANNEL, "channel" },
				   { ZRS_STALL_LINK, "link" },
				   { ZRS_STALL_BUFFER, "buffer" }))
);

/* An unread message was moved out of the pool. */
TRACE_EVENT(zrs_escape,
	TP_PROTO(const struct zrs_trace_ends *ends, u32 len, u32 of,
		 u64 age_us),
	TP_ARGS(ends, len, of, age_us),
	TP_STRUCT__entry(
		zrs_ends_fields
		__field(u32, len)
		__field(u32, of)
		__field(u64, age_us)
	),
	TP_fast_assign(
		zrs_ends_assign;
		__entry->len = len;
		__entry->of = of;
		__entry->age_us = age_us;
	),
	TP_printk(zrs_ends_format " len=%u of=%s age_us=%llu", zrs_ends_args,
		  __entry->len,
		  __print_symbolic(__entry->of,
				   { ZRS_MOVED_WINDOW, "window" },
				   { ZRS_MOVED_RING, "ring" },
				   { ZRS_MOVED_BLOCK, "block" }),
		  __entry->age_us)
);

#define zrs_link_fields						\
	__field(u32, link)					\
	__field(u32, accepted)					\
	__array(u8, local, ZRS_TRACE_ADDR)			\
	__array(u8, remote, ZRS_TRACE_ADDR)

#define zrs_link_assign						\
	do {							\
		__entry->link = link;				\
		__entry->accepted = accepted;			\
		memcpy(__entry->local, ends->local, ZRS_TRACE_ADDR);	\
		memcpy(__entry->remote, ends->remote, ZRS_TRACE_ADDR);	\
	} while (0)

#define zrs_link_format	"link=%u local=%pISc remote=%pISc made_by=%s"
#define zrs_link_args						\
	__entry->link, __entry->local, __entry->remote,		\
	__entry->accepted ? "peer" : "us"

/* A link can carry connections. */
TRACE_EVENT(zrs_link_up,
	TP_PROTO(u32 link, const struct zrs_trace_ends *ends, u32 accepted),
	TP_ARGS(link, ends, accepted),
	TP_STRUCT__entry(zrs_link_fields),
	TP_fast_assign(zrs_link_assign;),
	TP_printk(zrs_link_format, zrs_link_args)
);

/* A link has ended, or was never up; why, and how many it carried. */
TRACE_EVENT(zrs_link_down,
	TP_PROTO(u32 link, const struct zrs_trace_ends *ends, u32 accepted,
		 u32 was_up, u32 channels, int err),
	TP_ARGS(link, ends, accepted, was_up, channels, err),
	TP_STRUCT__entry(
		zrs_link_fields
		__field(u32, was_up)
		__field(u32, channels)
		__field(int, err)
	),
	TP_fast_assign(
		zrs_link_assign;
		__entry->was_up = was_up;
		__entry->channels = channels;
		__entry->err = err;
	),
	TP_printk(zrs_link_format " was_up=%u channels=%u err=%d",
		  zrs_link_args, __entry->was_up, __entry->channels,
		  __entry->err)
);

/* Asks of memory nodes, by their numbers in rust/proto/mem/wire.rs. */
#define zrs_show_mem_op(op)					\
	__print_symbolic(op,					\
		{ 1,	"alloc" },				\
		{ 2,	"free" },				\
		{ 3,	"info" },				\
		{ 4,	"key" },				\
		{ 5,	"unkey" },				\
		{ 6,	"seal" },				\
		{ 7,	"open" },				\
		{ 8,	"close" },				\
		{ 9,	"put" },				\
		{ 10,	"get" },				\
		{ 11,	"wrote" },				\
		{ 12,	"copy" },				\
		{ 13,	"cancel" })

/* A memory node's host gets a request; remote is 0.0.0.0 for one of its own. */
TRACE_EVENT(zrs_mem_ask,
	TP_PROTO(const struct zrs_trace_ends *ends, u32 domain, u32 node,
		 u32 op, u64 bytes),
	TP_ARGS(ends, domain, node, op, bytes),
	TP_STRUCT__entry(
		__array(u8, remote, ZRS_TRACE_ADDR)
		__field(u32, domain)
		__field(u32, node)
		__field(u32, op)
		__field(u64, bytes)
	),
	TP_fast_assign(
		memcpy(__entry->remote, ends->remote, ZRS_TRACE_ADDR);
		__entry->domain = domain;
		__entry->node = node;
		__entry->op = op;
		__entry->bytes = bytes;
	),
	TP_printk("remote=%pISc node=%u:%u op=%s bytes=%llu", __entry->remote,
		  __entry->domain, __entry->node, zrs_show_mem_op(__entry->op),
		  __entry->bytes)
);

/* It answers: 0, or an errno. */
TRACE_EVENT(zrs_mem_answer,
	TP_PROTO(const struct zrs_trace_ends *ends, u32 op, int err),
	TP_ARGS(ends, op, err),
	TP_STRUCT__entry(
		__array(u8, remote, ZRS_TRACE_ADDR)
		__field(u32, op)
		__field(int, err)
	),
	TP_fast_assign(
		memcpy(__entry->remote, ends->remote, ZRS_TRACE_ADDR);
		__entry->op = op;
		__entry->err = err;
	),
	TP_printk("remote=%pISc op=%s err=%d", __entry->remote,
		  zrs_show_mem_op(__entry->op), __entry->err)
);

#endif /* _ZRS_TRACE_H */

/* Outside of the protection: it reads this file again. */
#undef TRACE_INCLUDE_PATH
#define TRACE_INCLUDE_PATH .
#undef TRACE_INCLUDE_FILE
#define TRACE_INCLUDE_FILE zrs_trace
#include <trace/define_trace.h>
