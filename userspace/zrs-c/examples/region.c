// SPDX-License-Identifier: GPL-2.0
/*
 * Has one memory node write a file's bytes to another one.
 *	region FROM TO FILE	(nodes as 1:1 and 1:2)
 * The file is put to the first node, which writes it to the second one; it is
 * read back from there, and compared.
 */
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <zrs/zrs.h>

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

int main(int argc, char **argv)
{
	struct zrs_mem_scope scope = { .rights = ZRS_RIGHT_READ };
	struct zrs_storage source, target, key;
	int from, to, reader;
	size_t len, done;
	char *data, *back;
	ssize_t n;

	if (argc != 4) {
		fprintf(stderr, "usage: region FROM TO FILE\n");
		return 2;
	}
	data = contents(argv[3], &len);
	from = region(argv[1], len, &source);
	for (done = 0; done < len; done += n) {
		n = pwrite(from, data + done, len - done, done);
		if (n <= 0)
			fail("pwrite");
	}
	to = region(argv[2], len, &target);
	if (zrs_mem_copy(from, 0, to, 0, len) != (ssize_t)len)
		fail("the copy is short");

	/* As another program would, with a key that allows no more than this. */
	scope.len = len;
	if (zrs_mem_key(to, &target, &scope, &key) < 0)
		fail("zrs_mem_key");
	reader = zrs_mem_open(&key);
	if (reader < 0)
		fail("zrs_mem_open");
	back = malloc(len + 1);
	if (!back)
		fail("malloc");
	for (done = 0; done < len; done += n) {
		n = pread(reader, back + done, len - done, done);
		if (n <= 0)
			fail("pread");
	}
	if (memcmp(data, back, len)) {
		fprintf(stderr, "the copy differs\n");
		return 1;
	}
	printf("%zu bytes went from node %s to node %s, and are the same\n", len, argv[1], argv[2]);
	if (zrs_mem_free(from) < 0 || zrs_mem_free(to) < 0)
		fail("zrs_mem_free");
	return 0;
}
