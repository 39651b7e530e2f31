// SPDX-License-Identifier: GPL-2.0
/*
 * netns-exec NAME CMD...: runs CMD in a network namespace, like "ip netns exec",
 * but without mounting a /sys for it. Linked statically: on the debug kernel,
 * loading a program's libraries takes longer than the rest of its start.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

int main(int argc, char **argv)
{
	char path[128];
	int fd;

	if (argc < 3) {
		fprintf(stderr, "usage: netns-exec NAME CMD...\n");
		return 2;
	}
	snprintf(path, sizeof(path), "/run/netns/%s", argv[1]);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0 || setns(fd, CLONE_NEWNET) < 0) {
		fprintf(stderr, "netns-exec: %s: %s\n", path, strerror(errno));
		return 126;
	}
	execvp(argv[2], argv + 2);
	fprintf(stderr, "netns-exec: %s: %s\n", argv[2], strerror(errno));
	return errno == ENOENT ? 127 : 126;
}
