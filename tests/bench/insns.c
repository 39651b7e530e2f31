// SPDX-License-Identifier: GPL-2.0
/*
 * A plugin for QEMU's emulator: counts the instructions that the guest has
 * executed, among them the atomic ones in some of its code, and of these those
 * on a cache line that such an instruction of another processor has changed
 * last. Idle processors execute none, and how much of the machine QEMU gets
 * does not matter.
 *
 *   out=FILE     every few milliseconds a line: the three counts and the number
 *                of the line: what happened before a line was read is in the
 *                second one after it
 *   ranges=FILE  lines "BEGIN END", hexadecimal addresses, of the code whose
 *                atomic instructions count. It is read when it comes to be.
 */
#include <fcntl.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "insns.h"

int qemu_plugin_version = 4;

#define RANGES 8
/* LOCK, segments, sizes, REP */
#define PREFIXES "\xf0\x2e\x36\x3e\x26\x64\x65\x66\x67\xf2\xf3"

struct counts {
	uint64_t instructions;
	uint64_t atomics;
};

static struct qemu_plugin_u64 instructions, atomics;
static struct { uint64_t begin, end; } ranges[RANGES];
static unsigned int nranges;
/* Cache lines: the number, and in the low bits the processor that changed it last. */
static atomic_ullong changed[65536];
static atomic_ullong moved;
static int out = -1;
static const char *ranges_file;
/* New ranges have been read: all code has to be translated again. */
static atomic_bool renew;

static bool counts_here(uint64_t at)
{
	unsigned int i;

	for (i = 0; i < nranges; i++)
		if (at >= ranges[i].begin && at < ranges[i].end)
			return true;
	return false;
}

/* With a LOCK prefix, or an XCHG with memory, which needs none. */
static bool is_atomic(const unsigned char *code, size_t len)
{
	size_t i;

	for (i = 0; i < len && code[i] && strchr(PREFIXES, code[i]); i++)
		if (code[i] == 0xf0)
			return true;
	if (i < len && (code[i] & 0xf0) == 0x40)
		i++;
	return i + 1 < len && (code[i] == 0x86 || code[i] == 0x87) && code[i + 1] < 0xc0;
}

static void changes(unsigned int cpu, uint32_t info, uint64_t addr, void *unused)
{
	uint64_t line = addr >> 6;
	uint64_t now = line << 8 | (cpu + 1);
	uint64_t before = atomic_exchange(&changed[(line ^ line >> 16) % 65536], now);

	(void)info;
	(void)unused;
	/* Of two lines with one place here the other one is forgotten. */
	if (before != now && (before ^ now) >> 8 == 0)
		moved++;
}

static void begin(uint64_t id);

static void translated(uint64_t id, struct qemu_plugin_tb *tb)
{
	size_t i, n = qemu_plugin_tb_n_insns(tb);

	/* Only a thread of a processor can: it waits for the others. */
	if (atomic_exchange(&renew, false))
		qemu_plugin_reset(id, begin);
	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_ADD_U64,
							  instructions, n);
	for (i = 0; nranges && i < n; i++) {
		struct qemu_plugin_insn *insn = qemu_plugin_tb_get_insn(tb, i);
		unsigned char code[16];
		size_t len;

		if (!counts_here(qemu_plugin_insn_vaddr(insn)))
			continue;
		len = qemu_plugin_insn_data(insn, code, sizeof(code));
		if (!is_atomic(code, len))
			continue;
		qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn,
								    QEMU_PLUGIN_INLINE_ADD_U64,
								    atomics, 1);
		qemu_plugin_register_vcpu_mem_cb(insn, changes, QEMU_PLUGIN_CB_NO_REGS,
						 QEMU_PLUGIN_MEM_W, NULL);
	}
}

static void begin(uint64_t id)
{
	qemu_plugin_register_vcpu_tb_trans_cb(id, translated);
}

/* Reads the ranges when there are some, or others. */
static void look_for_ranges(void)
{
	static struct timespec seen;
	unsigned long long from, to;
	unsigned int n = 0;
	struct stat st;
	FILE *file;

	if (!ranges_file || stat(ranges_file, &st) || !st.st_size ||
	    !memcmp(&st.st_mtim, &seen, sizeof(seen)))
		return;
	seen = st.st_mtim;
	file = fopen(ranges_file, "re");
	if (!file)
		return;
	nranges = 0;
	while (n < RANGES && fscanf(file, "%llx %llx", &from, &to) == 2) {
		ranges[n].begin = from;
		ranges[n++].end = to;
	}
	nranges = n;
	fclose(file);
	renew = true;
}

static void *report(void *unused)
{
	unsigned int number = 0;
	char line[96];

	(void)unused;
	for (;;) {
		/* Always of one length, so that no reader sees an old rest. */
		int len = snprintf(line, sizeof(line), "%020llu %020llu %020llu %010u\n",
				   (unsigned long long)qemu_plugin_u64_sum(instructions),
				   (unsigned long long)qemu_plugin_u64_sum(atomics),
				   moved, number++);

		if (pwrite(out, line, len, 0) != len)
			return NULL;
		look_for_ranges();
		usleep(5000);
	}
}

int qemu_plugin_install(uint64_t id, const struct qemu_info *info, int argc, char **argv)
{
	struct qemu_plugin_scoreboard *score;
	pthread_t thread;
	int i;

	(void)info;
	for (i = 0; i < argc; i++) {
		if (!strncmp(argv[i], "out=", 4))
			out = open(argv[i] + 4, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
		else if (!strncmp(argv[i], "ranges=", 7))
			ranges_file = strdup(argv[i] + 7);
	}
	if (out < 0) {
		fprintf(stderr, "insns: give out=FILE, a file that can be written\n");
		return -1;
	}
	score = qemu_plugin_scoreboard_new(sizeof(struct counts));
	instructions = (struct qemu_plugin_u64){ score, offsetof(struct counts, instructions) };
	atomics = (struct qemu_plugin_u64){ score, offsetof(struct counts, atomics) };
	begin(id);
	return pthread_create(&thread, NULL, report, NULL) ? -1 : 0;
}
