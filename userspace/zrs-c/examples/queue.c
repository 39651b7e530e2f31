// SPDX-License-Identifier: GPL-2.0
/*
 * Has one memory node write a file's bytes to another one, in blocks, many at a
 * time, by a queue.
 *	queue FROM TO FILE	(nodes as 1:1 and 1:2)
 * The blocks are put to the first node, which writes them to the second one; they
 * are read back from there, and compared.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zrs/zrs.h>

#define ENTRIES	16
#define BLOCK	((size_t)64 << 10)

static void fail(const char *what)
{
	perror(what);
	exit(1);
}

/* The whole of a file; its length in *len. */
static char *contents(const char *path, size_t *len)
{
	struct stat info;
	size_t done = 0;
	ssize_t n;
	char *data;
	int fd = open(path, O_RDONLY);

	if (fd < 0 || fstat(fd, &info) < 0)
		fail(path);
	*len = info.st_size;
	data = malloc(*len + 1);
	if (!data)
		fail("malloc");
	for (; done < *len; done += n) {
		n = read(fd, data + done, *len - done);
		if (n <= 0)
			fail(path);
	}
	close(fd);
	return data;
}

/* A new region at a node. */
static int region(const char *node, size_t len, struct zrs_storage *storage)
{
	struct zrs_mem_request request = { .len = len };
	int fd;

	if (sscanf(node, "%u:%u", &request.domain, &request.node) != 2) {
		fprintf(stderr, "'%s' is no node\n", node);
		exit(1);
	}
	fd = zrs_mem_alloc(&request, storage);
	if (fd < 0)
		fail(node);
	return fd;
}

/* The part of an operation that is block n of len bytes; data is the program's memory, or NULL. */
static struct zrs_mem_op block(struct zrs_mem_op op, size_t n, char *data, size_t len)
{
	op.id = n;
	op.off = n * BLOCK;
	op.len = len - op.off < BLOCK ? len - op.off : BLOCK;
	if (data)
		op.buf = data + op.off;
	else
		op.from_off = op.off;
	return op;
}

/* Does an operation with all blocks. */
static void all_blocks(int queue, struct zrs_mem_op what, char *data, size_t len)
{
	size_t blocks = (len + BLOCK - 1) / BLOCK, begun = 0, ended = 0;
	struct zrs_mem_done done[ENTRIES];
	struct zrs_mem_op ops[ENTRIES];
	unsigned int count;
	int n, i;

	while (ended < blocks) {
		/* As many as the queue has entries for. */
		for (count = 0; begun + count < blocks && begun + count - ended < ENTRIES; count++)
			ops[count] = block(what, begun + count, data, len);
		if (count) {
			n = zrs_mem_submit(queue, ops, count);
			if (n < 0)
				fail("zrs_mem_submit");
			begun += n;
		}
		n = zrs_mem_reap(queue, done, ENTRIES, -1);
		if (n < 0)
			fail("zrs_mem_reap");
		for (i = 0; i < n; i++) {
			if (done[i].result < 0) {
				errno = -done[i].result;
				fail("an operation");
			}
			if ((size_t)done[i].result != block(what, done[i].id, data, len).len) {
				fprintf(stderr, "a block is short\n");
				exit(1);
			}
		}
		ended += n;
	}
}

int main(int argc, char **argv)
{
	struct zrs_mem_op write = { .op = ZRS_OP_WRITE };
	struct zrs_mem_op copy = { .op = ZRS_OP_COPY };
	struct zrs_mem_op read = { .op = ZRS_OP_READ };
	struct zrs_storage source, target;
	int from, to, queue;
	char *data, *back;
	size_t len;

	if (argc != 4) {
		fprintf(stderr, "usage: queue FROM TO FILE\n");
		return 2;
	}
	data = contents(argv[3], &len);
	back = malloc(len + 1);
	if (!back)
		fail("malloc");
	from = region(argv[1], len, &source);
	to = region(argv[2], len, &target);
	queue = zrs_mem_queue(ENTRIES);
	if (queue < 0)
		fail("zrs_mem_queue");
	write.region = from;
	all_blocks(queue, write, data, len);
	copy.from = from;
	copy.region = to;
	all_blocks(queue, copy, NULL, len);
	read.region = to;
	all_blocks(queue, read, back, len);
	if (memcmp(data, back, len)) {
		fprintf(stderr, "the copy differs\n");
		return 1;
	}
	printf("%zu bytes went from node %s to node %s, and are the same\n", len, argv[1], argv[2]);
	if (zrs_mem_free(from) < 0 || zrs_mem_free(to) < 0)
		fail("zrs_mem_free");
	return 0;
}
