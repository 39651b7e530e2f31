// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin for QEMU's emulator: counts the instructions that the guest has
 * executed and writes their number into the file that "out=" names, every few
 * milliseconds. Idle processors execute none, and how much of the machine
 * QEMU gets does not matter.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "insns.h"

int qemu_plugin_version = 4;

static struct qemu_plugin_u64 count;
static int out = -1;

static void translated(unsigned long long id, struct qemu_plugin_tb *tb)
{
	(void)id;
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_ADD_U64,
							  count, qemu_plugin_tb_n_insns(tb));
}

static void *report(void *unused)
{
	char line[32];

	(void)unused;
	for (;;) {
		/* Always of one length, so that no reader sees an old rest. */
		int len = snprintf(line, sizeof(line), "%020llu\n",
				   qemu_plugin_u64_sum(count));

		if (pwrite(out, line, len, 0) != len)
			return NULL;
		usleep(5000);
	}
}

int qemu_plugin_install(unsigned long long id, const struct qemu_info *info, int argc, char **argv)
{
	pthread_t thread;

	(void)info;
	if (argc != 1 || strncmp(argv[0], "out=", 4) != 0) {
		fprintf(stderr, "insns: give out=FILE\n");
		return -1;
	}
	out = open(argv[0] + 4, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
	if (out < 0) {
		perror("insns: cannot write the file");
		return -1;
	}
	count.score = qemu_plugin_scoreboard_new(sizeof(unsigned long long));
	count.offset = 0;
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
	return pthread_create(&thread, NULL, report, NULL) ? -1 : 0;
}
