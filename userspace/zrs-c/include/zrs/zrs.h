/* SPDX-License-Identifier: GPL-2.0 */
/*
 * libzrs: the extensions of ZRS sockets beyond the socket calls.
 *
 * A ZRS socket is an ordinary one, made by
 *	socket(AF_INET, SOCK_STREAM, IPPROTO_ZRS)
 * with the number from <linux/zrs.h>, which also has the option ZRS_INFO with the
 * counters of a socket. This file has the operations that take more than one call: receiving
 * without a copy, by a ring, and sending without a copy or a wait, by
 * MSG_ZEROCOPY. Sockets stay the caller's: no function closes one, or shuts it
 * down.
 *
 * Errors are reported as by libc: by -1 or NULL, and errno. In addition to those
 * of each function:
 *	EBADF, ENOTSOCK		not a socket
 *	ENOPROTOOPT, EOPNOTSUPP	a socket of another protocol
 *	EFAULT			a pointer is NULL, or leads nowhere
 *	EPROTO			the module is of another version
 *	EIO			an error without an errno
 * A state that only a bug in the library can cause ends the process by abort().
 *
 * Threads may call all functions at the same time, for the same socket and the
 * same ring; but an object that one of them closes or releases must not be in use
 * by another. Signals do not end waits, except that of a sender for room. No
 * function may be called from a signal handler.
 *
 * A child of fork() has its parent's sockets, but not the mappings of a ring:
 * it must not touch rings and segments, not even to close or release them.
 */
#ifndef _ZRS_ZRS_H
#define _ZRS_ZRS_H

#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>
#include <sys/uio.h>

#ifdef __cplusplus
extern "C" {
#endif

/* ---- receiving by the ring --------------------------------------------- */

/* The receive ring of a socket, and the window that the peer writes into. */
struct zrs_rx;

/*
 * Bytes of the stream, where the device put them if it could. Unless they are
 * a copy, a hostile peer can change them until the segment is released: a
 * program that must not be misled copies them before it checks them.
 */
struct zrs_segment {
	const void *data;
	size_t len;
	struct zrs_held *held;	/* the library's own */
	uint32_t copied;	/* 0: they lie in the window, 1: they are a copy,
				 * as they were small or not read for long
				 */
	uint32_t reserved;
};

/*
 * Makes the ring of a connected socket, and maps it. From then on receive by
 * it; recv() may alternate with zrs_rx_recv(), not run at the same time. A
 * socket has one ring: open it once.
 *
 * ENOTCONN; ENOBUFS: there is no window to lease for a ring; EBUSY: a recv()
 * is at work, or has to read something first: try again; ENOMEM, EMFILE.
 */
struct zrs_rx *zrs_rx_open(int fd);

/*
 * The next segment of the stream. Waits for it for timeout_ms milliseconds, if
 * that is negative for ever, whether the socket is non-blocking or not.
 *
 * Returns 1: there is one, and its room is the peer's no more until
 * zrs_segment_release(). Several may be held, but a program that keeps all of
 * them stops the peer. Returns 0: the end of the stream, now and ever after.
 * Unless it returns 1 it sets *segment to zeroes, which need not be released.
 *
 * With poll() and its like: the socket is readable while this function would not
 * return EAGAIN. Call it with a timeout of 0 until it is EAGAIN.
 *
 * EAGAIN: nothing is there, and timeout_ms is 0; ETIMEDOUT: nothing has come in
 * that time; ECONNRESET and others as recv(), after what had arrived.
 */
int zrs_rx_recv(struct zrs_rx *rx, struct zrs_segment *segment, int timeout_ms);

/*
 * Gives the room of a segment back to the peer, in any order and in any thread,
 * also after zrs_rx_close(). Then *segment is zeroes, and to release it again
 * does nothing; but there must be no second copy of it. NULL does nothing.
 */
void zrs_segment_release(struct zrs_segment *segment);

/* Bytes in the window: the limit of data that the peer has sent and that was not given back. */
size_t zrs_rx_window(const struct zrs_rx *rx);

/*
 * Unmaps the ring. The socket can be used further. Held segments stay valid, and
 * with them the connection stays open beyond close(): shutdown() ends it at
 * once. NULL does nothing.
 */
void zrs_rx_close(struct zrs_rx *rx);

/* ---- sending without a copy -------------------------------------------- */

/* The calls that the device has completed. */
struct zrs_completion {
	uint32_t first;		/* the number of the first one */
	uint32_t last;		/* and of the last one, modulo 2^32 */
	uint32_t copied;	/* 1: something of them was copied */
	uint32_t reserved;
};

/*
 * send() with MSG_ZEROCOPY and MSG_NOSIGNAL, which the program allows first:
 *	int one = 1;
 *	setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one));
 * Sends from the caller's memory and does not wait until the device is done with
 * it. Until then the bytes must stay as they are, else what is written over them
 * may be sent; they may be unmapped, but free() lets others write over them.
 * Without SO_ZEROCOPY it is a plain send().
 *
 * Returns how much was sent. On a blocking socket that is less than asked for
 * only after a signal or a timeout. The calls of a socket that sent something
 * are numbered from 0 on, modulo 2^32.
 *
 * Those of send(): EAGAIN, EINTR, EPIPE, ECONNRESET; ENOBUFS: RLIMIT_MEMLOCK, or
 * too many completions not read.
 */
ssize_t zrs_send_zero_copy(int fd, const void *buf, size_t len);

/*
 * The same of several buffers, which are sent as if they were one: it is one
 * call. EMSGSIZE: count is more than 1024; EINVAL: less than 0.
 */
ssize_t zrs_sendv_zero_copy(int fd, const struct iovec *iov, int count);

/*
 * Waits until the device is done with further calls, for timeout_ms
 * milliseconds, if that is negative for ever; some must be outstanding. If the
 * connection ends they are told of, too.
 *
 * Returns 1: *completion has them; 0: none in that time.
 *
 * With poll(): it says POLLERR while there is one, asked for or not.
 *
 * They come in the order of the calls, except for copied ones (of up to 4 KiB,
 * and memory that cannot be held), which are complete at once. Several that
 * follow each other may be told of together. Each is told once: where several
 * threads send, one of them is to read for all.
 */
int zrs_completion_wait(int fd, struct zrs_completion *completion, int timeout_ms);

/*
 * len bytes in whole pages, zeroed, huge ones if there are any: few, long
 * physical runs, which need few elements in a work request. ENOMEM.
 */
void *zrs_pages_alloc(size_t len);

/*
 * Unmaps them; len is the length they were made with. Data in flight from them
 * is sent all the same. NULL does nothing.
 */
void zrs_pages_free(void *pages, size_t len);

/* ---- memory nodes --------------------------------------------------------- */

/*
 * A region of a memory node is a regular file: pread(), pwrite(), readv(),
 * writev(), io_uring and splice() move its bytes, and copy_file_range() between
 * regions of two nodes has the first node write to the second one, so that no
 * byte passes this host. Here are the calls that files do not have. All regions
 * are descriptors with FD_CLOEXEC, which close() ends.
 *
 * They fail with EBADF, EFAULT, ENOTTY (the descriptor is no region), and:
 *	ENOENT			the module is not loaded
 *	EACCES			the key is wrong, or does not allow this; or the node
 *				wants an admission key
 *	ESTALE			the region was freed, or the key was revoked, has
 *				expired or is used up
 *	ENXIO			the node is not in the directory, or is not served
 *	EHOSTUNREACH, ECONNREFUSED, ECONNRESET
 *				the node's host, as with sockets
 */

/* A storage id, with its node. It is a secret: any holder may do all that its key allows. */
struct zrs_storage {
	uint32_t domain;	/* of the node; 0: the host's own */
	uint32_t node;
	uint64_t va;		/* of the first byte, as the owner has it */
	uint64_t len;
	uint32_t region;	/* the key */
	uint32_t gen;
	uint64_t secret;
};

/* Bytes of the longest text of a storage id, its zero included. */
#define ZRS_STORAGE_TEXT 96

/*
 * The storage id of a text like "zrs:1:2/...", as the command zrs prints it.
 * EINVAL: it is none.
 */
int zrs_storage_parse(const char *text, struct zrs_storage *storage);

/* The text, with a zero behind it. Returns its length. ENOSPC: size is too small. */
int zrs_storage_format(const struct zrs_storage *storage, char *text, size_t size);

/* A request for a region. */
struct zrs_mem_request {
	uint32_t domain;	/* of the node; 0: the host's own */
	uint32_t node;
	uint64_t len;
	uint64_t va;		/* the address of its first byte, for the storage id */
	uint32_t flags;		/* ZRS_REGION_KEEP */
	uint32_t ttl_ms;	/* the region ends then; 0: it does not */
	uint8_t admission[16];	/* the node's admission key; 0: it is open */
};

/* The region stays when its descriptor is closed, until it is freed. */
#define ZRS_REGION_KEEP 1

/*
 * Allocates a region of zeroes. Returns its descriptor, and all rights in *storage.
 *
 * ENOSPC, EDQUOT: no room, or this host has its share of the node's memory;
 * EINVAL: no bytes, or a flag is not known; ESHUTDOWN: the node takes no more.
 */
int zrs_mem_alloc(const struct zrs_mem_request *request, struct zrs_storage *storage);

/* A descriptor of a region, with the rights of the storage id's key. */
int zrs_mem_open(const struct zrs_storage *storage);

/* Rights of a key. */
#define ZRS_RIGHT_READ	1
#define ZRS_RIGHT_WRITE	2
#define ZRS_RIGHT_GRANT	4	/* derive and revoke keys, and seal */
#define ZRS_RIGHT_FREE	8

/* The limits of a derived key. */
struct zrs_mem_scope {
	uint32_t rights;
	uint32_t uses;		/* operations that may begin with it; 0: any number */
	uint64_t off;		/* the part of the region */
	uint64_t len;
	uint32_t ttl_ms;	/* it expires then; 0: it does not */
	uint32_t reserved;	/* 0 */
};

/*
 * Derives a key: *key is the storage id to hand on, of the part alone. storage is the id that the
 * region was allocated or opened with. Needs ZRS_RIGHT_GRANT.
 */
int zrs_mem_key(int region, const struct zrs_storage *storage,
		const struct zrs_mem_scope *scope, struct zrs_storage *key);

/*
 * Revokes the key of a storage id, and the keys that were derived from it. After
 * the call no byte lands any more by an operation that used one of these keys.
 */
int zrs_mem_unkey(int region, const struct zrs_storage *key);

/* Ends all writes to the region, for good: no byte lands after the call. */
int zrs_mem_seal(int region);

/*
 * Frees the region: no byte lands after the call. The caller closes the
 * descriptor.
 */
int zrs_mem_free(int region);

/*
 * copy_file_range() until len bytes are copied, or the source ends. Returns how
 * many have landed for sure; -1 if none has.
 */
ssize_t zrs_mem_copy(int from, off_t from_off, int to, off_t to_off, size_t len);

/* ---- queued operations on regions ------------------------------------------ */

/*
 * An operation of a queue. Operations have no order, but for those with
 * ZRS_OP_DRAIN. At the end of what is read, of the region "from" of a copy as
 * well, an operation is shortened. Set all else to 0.
 */
struct zrs_mem_op {
	uint8_t op;		/* ZRS_OP_* */
	uint8_t flags;		/* ZRS_OP_DRAIN, or 0; CANCEL: 0 */
	uint16_t reserved0;
	int32_t region;		/* COPY, WRITE: is written; READ: is read */
	int32_t from;		/* COPY: is read */
	uint32_t reserved1;
	uint64_t off;		/* the first byte in region */
	union {
		uint64_t from_off;	/* COPY: the first byte in from */
		void *buf;		/* WRITE, READ: the program's memory */
		uint64_t cancel;	/* CANCEL: the id of an operation */
	};
	uint64_t len;		/* bytes, 1 to 2^30; CANCEL: 0 */
	uint64_t id;		/* the completion has it; the program's to choose */
	uint64_t reserved2[2];
};

#define ZRS_OP_COPY	1	/* the node of from writes into region */
#define ZRS_OP_WRITE	2	/* from buf to region */
#define ZRS_OP_READ	3	/* from region to buf */
#define ZRS_OP_CANCEL	4	/* the oldest operation with that id */

/* It begins when all before it are done, and those behind it when it is done. */
#define ZRS_OP_DRAIN	1

/* A completion. */
struct zrs_mem_done {
	uint64_t id;		/* of the operation */
	int64_t result;		/* bytes, or a negative errno */
	uint64_t landed;	/* bytes from the first on that have landed for sure */
	uint32_t flags;		/* 0 */
	uint32_t reserved;
};

/*
 * A queue for up to "entries" operations, 1 to 4096: an operation has its entry
 * from zrs_mem_submit() until its completion is taken. Returns a descriptor with
 * FD_CLOEXEC and O_NONBLOCK. With poll() and its like: POLLIN if there is a
 * completion, POLLOUT if there is room for an operation.
 *
 * close() cancels what is under way and does not wait: a READ may write to its
 * memory after that. A program that goes on using such memory cancels, and takes
 * the completions, before it closes the queue.
 *
 * EINVAL: no entries, or too many; ENOENT: the module is not loaded; EMFILE, ENOMEM.
 */
int zrs_mem_queue(unsigned int entries);

/*
 * Queues operations; they begin at once. Does not wait for them, or for room.
 * Returns how many of the first ones were taken, which are fewer than count if
 * there is no room for the next one or if it is refused: call it again with the
 * rest, and if that one is the first, the call has its error. *ops can be
 * used again after the call; the regions may be closed.
 *
 * The memory of a WRITE must stay as it is until its completion has been taken,
 * else what is written over it may land; that of a READ belongs to the kernel until
 * then. It stays pinned until the operation is done, and counts against
 * RLIMIT_MEMLOCK until the completion is taken.
 *
 * EAGAIN: no room: take completions first; EINVAL: of an operation, or count is
 * more than 4096; EBADF: no region, or not open for this; EXDEV: a region of
 * another network namespace; EFAULT; ENOMEM: or RLIMIT_MEMLOCK; ENOTTY: it is no
 * queue. What a node says against an operation is in its completion.
 */
int zrs_mem_submit(int queue, const struct zrs_mem_op *ops, unsigned int count);

/*
 * Takes completions, up to count of those that are there. If there is none, waits
 * for the first one for timeout_ms milliseconds, if that is negative for ever.
 * Returns how many; 0: there was none in that time. They come in the order in which
 * the operations end.
 *
 * In a completion, result is a negative errno of those above; ERANGE: not all of the bytes
 * are in the region; ECANCELED: it was canceled. That of a CANCEL comes when no further byte of
 * the operation can land, but for ECONNRESET: the link was lost; ENOENT: there was no such
 * operation any more.
 *
 * EINVAL: count is 0, or it is no queue.
 */
int zrs_mem_reap(int queue, struct zrs_mem_done *done, unsigned int count, int timeout_ms);

#ifdef __cplusplus
}
#endif

#endif /* _ZRS_ZRS_H */
