// SPDX-License-Identifier: GPL-2.0
/*
 * Calls every function of the library on descriptors that are no ZRS sockets,
 * and checks its result and errno. Prints the differences.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <netinet/in.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <zrs/zrs.h>

static int wrong;

static void expect(int line, const char *what, long seen, long expected)
{
	if (seen == expected)
		return;
	printf("line %d: %s: saw %ld, expected %ld; errno says %s\n", line, what, seen, expected,
	       strerror(errno));
	wrong = 1;
}

/* The expected value of an expression. */
#define IS(what, value)	expect(__LINE__, #what, (long)(what), value)

/* It must fail with this error. */
#define FAILS(what, error) do {		\
	IS(what, -1);			\
	IS(errno, error);		\
} while (0)

#define NO_RING(fd, error) do {		\
	IS(zrs_rx_open(fd), 0);		\
	IS(errno, error);		\
} while (0)

static void descriptors(void)
{
	struct zrs_completion completion;
	struct iovec iov = { .iov_base = "x", .iov_len = 1 };
	int pipes[2], closed = dup(0);

	if (pipe(pipes) < 0 || closed < 0 || close(closed) < 0) {
		perror("pipe");
		wrong = 1;
		return;
	}
	NO_RING(-1, EBADF);
	NO_RING(closed, EBADF);
	NO_RING(pipes[1], ENOTSOCK);
	FAILS(zrs_send_zero_copy(-1, "x", 1), EBADF);
	FAILS(zrs_send_zero_copy(closed, "x", 1), EBADF);
	FAILS(zrs_send_zero_copy(pipes[1], "x", 1), ENOTSOCK);
	FAILS(zrs_sendv_zero_copy(-1, &iov, 1), EBADF);
	FAILS(zrs_sendv_zero_copy(pipes[1], &iov, 1), ENOTSOCK);
	FAILS(zrs_completion_wait(-1, &completion, 0), EBADF);
	FAILS(zrs_completion_wait(closed, &completion, -1), EBADF);
	FAILS(zrs_completion_wait(pipes[0], &completion, -1), ENOTSOCK);
	close(pipes[0]);
	close(pipes[1]);
}

static void arguments(int fd)
{
	static struct iovec many[1025];
	struct zrs_segment segment = { .data = "x", .len = 1 };

	FAILS(zrs_rx_recv(NULL, &segment, 0), EFAULT);
	IS(segment.len, 0);
	IS(segment.data, 0);
	FAILS(zrs_rx_recv(NULL, NULL, -1), EFAULT);
	zrs_segment_release(&segment);
	zrs_segment_release(NULL);
	IS(zrs_rx_window(NULL), 0);
	zrs_rx_close(NULL);

	FAILS(zrs_send_zero_copy(fd, NULL, 10), EFAULT);
	FAILS(zrs_send_zero_copy(fd, (void *)16, 10), EFAULT);
	FAILS(zrs_sendv_zero_copy(fd, NULL, 1), EFAULT);
	FAILS(zrs_sendv_zero_copy(fd, many, -1), EINVAL);
	FAILS(zrs_sendv_zero_copy(fd, many, 1025), EMSGSIZE);
	FAILS(zrs_completion_wait(fd, NULL, 0), EFAULT);
}

static void unix_sockets(void)
{
	struct iovec iov[2] = {
		{ .iov_base = "two ", .iov_len = 4 },
		{ .iov_base = "parts", .iov_len = 5 },
	};
	char text[16] = "";
	int fds[2];

	if (socketpair(AF_UNIX, SOCK_STREAM, 0, fds) < 0) {
		perror("socketpair");
		wrong = 1;
		return;
	}
	arguments(fds[0]);
	NO_RING(fds[0], EOPNOTSUPP);
	IS(zrs_send_zero_copy(fds[0], "one, ", 5), 5);
	IS(zrs_sendv_zero_copy(fds[0], iov, 2), 9);
	IS(read(fds[1], text, sizeof(text)), 14);
	IS(strcmp(text, "one, two parts"), 0);
	/* The failed calls did not shut the socket down. */
	IS(write(fds[1], "x", 1), 1);
	close(fds[1]);
	/* Without SIGPIPE, which would end us. */
	FAILS(zrs_send_zero_copy(fds[0], "x", 1), EPIPE);
	close(fds[0]);
}

/* The two ends of a connection. */
static int tcp_pair(int fds[2])
{
	struct sockaddr_in addr = {
		.sin_family = AF_INET,
		.sin_addr.s_addr = htonl(INADDR_LOOPBACK),
	};
	socklen_t len = sizeof(addr);
	int rc = -1, listener = socket(AF_INET, SOCK_STREAM, 0);

	fds[0] = socket(AF_INET, SOCK_STREAM, 0);
	fds[1] = -1;
	if (!bind(listener, (struct sockaddr *)&addr, sizeof(addr)) && !listen(listener, 1) &&
	    !getsockname(listener, (struct sockaddr *)&addr, &len) &&
	    !connect(fds[0], (struct sockaddr *)&addr, len)) {
		fds[1] = accept(listener, NULL, NULL);
		rc = fds[1] < 0 ? -1 : 0;
	}
	close(listener);
	return rc;
}

static void tcp_sockets(void)
{
	struct zrs_completion done = { .first = 9, .last = 9, .reserved = 9 };
	const size_t len = 20000;
	int fds[2], one = 1;
	char *pages;

	if (tcp_pair(fds) < 0) {
		perror("TCP");
		wrong = 1;
		return;
	}
	NO_RING(fds[0], ENOPROTOOPT);
	IS(zrs_completion_wait(fds[0], &done, 0), 0);
	IS(zrs_completion_wait(fds[0], &done, 20), 0);
	IS(done.first, 9);

	IS(setsockopt(fds[0], SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)), 0);
	pages = zrs_pages_alloc(len);
	IS(zrs_send_zero_copy(fds[0], pages, len), len);
	/* Read at the other end, and then complete. */
	IS(recv(fds[1], pages, len, MSG_WAITALL), len);
	IS(zrs_completion_wait(fds[0], &done, -1), 1);
	IS(done.first, 0);
	IS(done.last, 0);
	IS(done.reserved, 0);
	IS(zrs_completion_wait(fds[0], &done, 0), 0);
	zrs_pages_free(pages, len);
	close(fds[0]);
	close(fds[1]);
}

static void pages(void)
{
	const size_t len = 3 << 20;
	char *pages = zrs_pages_alloc(len);
	long sum = 0;
	size_t i;

	IS((uintptr_t)pages % 4096, 0);
	for (i = 0; i < len; i++)
		sum += pages[i];
	IS(sum, 0);
	memset(pages, 1, len);
	zrs_pages_free(pages, len);
	zrs_pages_free(zrs_pages_alloc(0), 0);
	zrs_pages_free(NULL, 0);
	IS(zrs_pages_alloc((size_t)LONG_MAX), 0);
	IS(errno, ENOMEM);
}

/* Queues, on a pipe: tests/selftests/memnode/queue has a real one. */
static void queues(const int *pipes)
{
	struct zrs_mem_op op = { .op = ZRS_OP_CANCEL };
	struct zrs_mem_done done[2] = { 0 };

	FAILS(zrs_mem_submit(-1, &op, 1), EBADF);
	FAILS(zrs_mem_submit(pipes[0], &op, 1), ENOTTY);
	FAILS(zrs_mem_reap(-1, done, 2, 0), EBADF);
	if (fcntl(pipes[0], F_SETFL, O_NONBLOCK) < 0) {
		perror("fcntl");
		wrong = 1;
	}
	IS(zrs_mem_reap(pipes[0], done, 2, 0), 0);
	IS(zrs_mem_reap(pipes[0], done, 2, 10), 0);
	IS(write(pipes[1], "wrong", 5), 5);
	FAILS(zrs_mem_reap(pipes[0], done, 2, -1), EINVAL);
	IS(write(pipes[1], done, sizeof(done)), sizeof(done));
	FAILS(zrs_mem_reap(pipes[0], NULL, 2, -1), EFAULT);
	IS(zrs_mem_reap(pipes[0], done, 1, -1), 1);
	IS(zrs_mem_reap(pipes[0], done, 2, -1), 1);
}

/* Regions of memory nodes: all that needs no module. */
static void regions(void)
{
	struct zrs_mem_request request = { .domain = 1, .node = 2, .len = 4096, .flags = 2 };
	struct zrs_mem_scope scope = { .rights = ZRS_RIGHT_READ, .len = 4096 };
	struct zrs_storage storage = {
		.domain = 1, .node = 2, .va = 0x123456789000, .len = 1 << 20,
		.region = 7, .gen = 3, .secret = 0x0123456789abcdef,
	}, parsed;
	char text[ZRS_STORAGE_TEXT] = "", small[10] = "";
	int pipes[2], len;

	len = zrs_storage_format(&storage, text, sizeof(text));
	IS(strlen(text), len);
	IS(strncmp(text, "zrs:1:2/", 8), 0);
	IS(zrs_storage_parse(text, &parsed), 0);
	IS(memcmp(&storage, &parsed, sizeof(storage)), 0);
	FAILS(zrs_storage_format(&storage, small, sizeof(small)), ENOSPC);
	IS(small[0], 0);
	FAILS(zrs_storage_format(NULL, text, sizeof(text)), EFAULT);
	FAILS(zrs_storage_format(&storage, NULL, 0), EFAULT);
	FAILS(zrs_storage_parse("1:2", &parsed), EINVAL);
	FAILS(zrs_storage_parse("zrs:1:2/abc", &parsed), EINVAL);
	FAILS(zrs_storage_parse(NULL, &parsed), EFAULT);
	FAILS(zrs_storage_parse(text, NULL), EFAULT);

	FAILS(zrs_mem_alloc(NULL, &parsed), EFAULT);
	FAILS(zrs_mem_alloc(&request, NULL), EFAULT);
	FAILS(zrs_mem_alloc(&request, &parsed), EINVAL);
	FAILS(zrs_mem_open(NULL), EFAULT);
	if (pipe(pipes) < 0) {
		perror("pipe");
		wrong = 1;
		return;
	}
	FAILS(zrs_mem_key(-1, &storage, &scope, &parsed), EBADF);
	FAILS(zrs_mem_key(pipes[0], &storage, &scope, &parsed), ENOTTY);
	FAILS(zrs_mem_key(pipes[0], &storage, NULL, &parsed), EFAULT);
	FAILS(zrs_mem_key(pipes[0], NULL, &scope, &parsed), EFAULT);
	scope.reserved = 1;
	FAILS(zrs_mem_key(pipes[0], &storage, &scope, &parsed), EINVAL);
	FAILS(zrs_mem_unkey(pipes[0], &storage), ENOTTY);
	FAILS(zrs_mem_unkey(pipes[0], NULL), EFAULT);
	FAILS(zrs_mem_seal(pipes[0]), ENOTTY);
	FAILS(zrs_mem_seal(-1), EBADF);
	FAILS(zrs_mem_free(pipes[0]), ENOTTY);
	FAILS(zrs_mem_copy(pipes[0], 0, pipes[1], 0, 1), EINVAL);
	FAILS(zrs_mem_copy(-1, 0, pipes[1], 0, 1), EBADF);
	queues(pipes);
	close(pipes[0]);
	close(pipes[1]);
}

int main(void)
{
	descriptors();
	unix_sockets();
	tcp_sockets();
	pages();
	regions();
	return wrong;
}
