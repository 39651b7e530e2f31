// SPDX-License-Identifier: GPL-2.0
/*
 * Moves stdin of one host to stdout of another, without a copy by ZRS on
 * either side:
 *
 *	hostB$ ring recv 10.77.0.2:7000 >copy
 *	hostA$ ring send 10.77.0.2:7000 <file
 */
#define _GNU_SOURCE /* accept4() */
#include <arpa/inet.h>
#include <errno.h>
#include <netinet/in.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/zrs.h>
#include <zrs/zrs.h>

/* Bytes of one buffer, and how many of them the device may have at once. */
#define SIZE	(256 * 1024)
#define TURNS	4

/* A buffer, and how many calls there had been when it was sent. */
struct buffer {
	char *pages;
	uint64_t calls;
};

static int failed(const char *what)
{
	fprintf(stderr, "ring: %s: %s\n", what, strerror(errno));
	return -1;
}

static int help(void)
{
	fprintf(stderr, "usage: ring recv ADDRESS:PORT >FILE\n"
			"       ring send ADDRESS:PORT <FILE\n");
	return 2;
}

/* "10.77.0.2:7000" */
static int parse(const char *text, struct sockaddr_in *addr)
{
	char host[INET_ADDRSTRLEN];
	const char *colon = strrchr(text, ':');
	size_t len = colon ? (size_t)(colon - text) : sizeof(host);
	char *end;
	long port;

	if (len >= sizeof(host))
		return -1;
	memcpy(host, text, len);
	host[len] = '\0';
	port = strtol(colon + 1, &end, 10);
	if (end == colon + 1 || *end || port < 0 || port > 65535)
		return -1;
	memset(addr, 0, sizeof(*addr));
	addr->sin_family = AF_INET;
	addr->sin_port = htons(port);
	return inet_pton(AF_INET, host, &addr->sin_addr) == 1 ? 0 : -1;
}

static int zrs_socket(void)
{
	int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, IPPROTO_ZRS);

	if (fd < 0 && errno == EPROTONOSUPPORT)
		fprintf(stderr, "ring: is the module zrs loaded?\n");
	return fd < 0 ? failed("socket") : fd;
}

static int counters(int fd, struct zrs_info *info)
{
	socklen_t len = sizeof(*info);

	memset(info, 0, sizeof(*info));
	if (getsockopt(fd, SOL_ZRS, ZRS_INFO, info, &len) < 0)
		return failed("ZRS_INFO");
	return 0;
}

static int write_all(const char *bytes, size_t len)
{
	while (len > 0) {
		ssize_t n = write(STDOUT_FILENO, bytes, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return failed("write");
		bytes += n;
		len -= n;
	}
	return 0;
}

/* Writes the segments of the ring to the file, to the end of the stream. */
static int receive(struct zrs_rx *rx, unsigned long long *bytes)
{
	struct zrs_segment segment;
	int got, rc;

	while ((got = zrs_rx_recv(rx, &segment, -1)) > 0) {
		rc = write_all(segment.data, segment.len);
		*bytes += segment.len;
		zrs_segment_release(&segment);
		if (rc < 0)
			return rc;
	}
	return got < 0 ? failed("zrs_rx_recv") : 0;
}

static int receiver(const struct sockaddr_in *addr, const char *name)
{
	int listener, fd, rc = -1;
	unsigned long long bytes = 0;
	struct zrs_info info;
	struct zrs_rx *rx;

	listener = zrs_socket();
	if (listener < 0)
		return -1;
	if (bind(listener, (const struct sockaddr *)addr, sizeof(*addr)) < 0 ||
	    listen(listener, 1) < 0) {
		failed(name);
		goto close_listener;
	}
	fprintf(stderr, "listening on %s\n", name);
	fd = accept4(listener, NULL, NULL, SOCK_CLOEXEC);
	if (fd < 0) {
		failed("accept");
		goto close_listener;
	}
	rx = zrs_rx_open(fd);
	if (!rx) {
		failed("zrs_rx_open");
		goto close_fd;
	}
	rc = receive(rx, &bytes);
	zrs_rx_close(rx);
	if (!rc)
		rc = counters(fd, &info);
	if (!rc)
		fprintf(stderr, "received %llu bytes, copied %llu\n", bytes,
			(unsigned long long)info.rx_copied);
close_fd:
	close(fd);
close_listener:
	close(listener);
	return rc;
}

/* Waits until that number of calls is complete. */
static int complete(int fd, uint64_t calls, uint64_t *completed)
{
	struct zrs_completion done;

	while (*completed < calls) {
		if (zrs_completion_wait(fd, &done, -1) < 0)
			return failed("zrs_completion_wait");
		/*
		 * Their number says it, without looking which they are: calls
		 * complete in order, but for a small one, which is the last.
		 */
		*completed += (uint64_t)(uint32_t)(done.last - done.first) + 1;
	}
	return 0;
}

/* Fills a buffer from stdin; returns less than SIZE at the end. */
static ssize_t fill(char *pages)
{
	size_t len = 0;

	while (len < SIZE) {
		ssize_t n = read(STDIN_FILENO, pages + len, SIZE - len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return failed("read");
		if (n == 0)
			break;
		len += n;
	}
	return len;
}

static int send_all(int fd, const char *bytes, size_t len, uint64_t *calls)
{
	while (len > 0) {
		ssize_t n = zrs_send_zero_copy(fd, bytes, len);

		if (n < 0 && errno == EINTR)
			continue;
		if (n < 0)
			return failed("zrs_send_zero_copy");
		bytes += n;
		len -= n;
		++*calls;
	}
	return 0;
}

/* Sends stdin from the buffers in turn. */
static int transmit(int fd, struct buffer *buffers, unsigned long long *bytes)
{
	uint64_t calls = 0, completed = 0;
	unsigned int turn = 0;
	ssize_t len;

	do {
		struct buffer *buffer = &buffers[turn++ % TURNS];

		/* Pages that the device still reads must not be overwritten. */
		if (complete(fd, buffer->calls, &completed) < 0)
			return -1;
		len = fill(buffer->pages);
		if (len < 0 || send_all(fd, buffer->pages, len, &calls) < 0)
			return -1;
		buffer->calls = calls;
		*bytes += len;
	} while (len == SIZE);
	return complete(fd, calls, &completed);
}

static int sender(const struct sockaddr_in *addr, const char *name)
{
	struct buffer buffers[TURNS] = { 0 };
	unsigned long long bytes = 0;
	struct zrs_info info;
	int fd, i, one = 1, rc = -1;
	char byte;

	fd = zrs_socket();
	if (fd < 0)
		return -1;
	for (i = 0; i < TURNS; i++) {
		buffers[i].pages = zrs_pages_alloc(SIZE);
		if (!buffers[i].pages) {
			failed("zrs_pages_alloc");
			goto free;
		}
	}
	if (connect(fd, (const struct sockaddr *)addr, sizeof(*addr)) < 0) {
		failed(name);
		goto free;
	}
	if (setsockopt(fd, SOL_SOCKET, SO_ZEROCOPY, &one, sizeof(one)) < 0) {
		failed("SO_ZEROCOPY");
		goto free;
	}
	if (transmit(fd, buffers, &bytes) < 0)
		goto free;
	/* The peer's end comes when it has everything. */
	if (shutdown(fd, SHUT_WR) < 0 || recv(fd, &byte, 1, 0) < 0) {
		failed("the peer's end");
		goto free;
	}
	rc = counters(fd, &info);
	if (!rc)
		fprintf(stderr, "sent %llu bytes, copied %llu\n", bytes,
			(unsigned long long)info.tx_copied);
free:
	for (i = 0; i < TURNS; i++)
		zrs_pages_free(buffers[i].pages, SIZE);
	close(fd);
	return rc;
}

int main(int argc, char **argv)
{
	struct sockaddr_in addr;
	int rc;

	if (argc != 3 || parse(argv[2], &addr) < 0)
		return help();
	if (!strcmp(argv[1], "recv"))
		rc = receiver(&addr, argv[2]);
	else if (!strcmp(argv[1], "send"))
		rc = sender(&addr, argv[2]);
	else
		return help();
	return rc < 0 ? EXIT_FAILURE : EXIT_SUCCESS;
}
