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
 *   blocks=FILE  when FILE.ask exists, a line "ADDRESS COUNT LENGTH CALLED" for
 *                each block of code that has run: where it begins, the
 *                instructions that have been executed in it, how many it has,
 *                and the function that it ends with a call of, or 0. Each
 *                atomic instruction that counts also has a line, with its
 *                address without bit 62. Address 1 stands for all for which there was
 *                no place. Then FILE.ask is removed.
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

/*
 * Blocks of code by the address where they begin, and atomic instructions by theirs, a place each.
 * Place 0 counts the rest.
 */
#define BLOCKS 1048576
#define ATOMIC 0x4000000000000000ull

static uint64_t block_at[BLOCKS], called_by[BLOCKS];
static unsigned int block_length[BLOCKS];
static pthread_mutex_t places_lock = PTHREAD_MUTEX_INITIALIZER;
static struct qemu_plugin_scoreboard *block_counts;
static const char *blocks_file;

/* The place of the block at an address. Under places_lock. */
static size_t block_of(uint64_t at)
{
	size_t i = (at ^ at >> 20) * 0x9e3779b97f4a7c15 >> 44, tries;

	for (tries = 0; tries < 1024; tries++, i = (i + 1) % BLOCKS) {
		if (block_at[i] == at)
			return i;
		if (!block_at[i]) {
			block_at[i] = at;
			return i;
		}
	}
	return 0;
}

/* The function that an instruction calls, if it is a direct call, else 0. */
static uint64_t called(const struct qemu_plugin_insn *insn)
{
	unsigned char code[16];
	int32_t distance;

	if (qemu_plugin_insn_data(insn, code, sizeof(code)) != 5 || code[0] != 0xe8)
		return 0;
	memcpy(&distance, code + 1, sizeof(distance));
	return qemu_plugin_insn_vaddr(insn) + 5 + (int64_t)distance;
}

static struct qemu_plugin_u64 count_in(size_t place)
{
	struct qemu_plugin_u64 count = { block_counts, place * sizeof(uint64_t) };

	return count;
}

/* A block that is translated again with another length has that one from then on. */
static struct qemu_plugin_u64 count_of(uint64_t at, unsigned int length, uint64_t function)
{
	size_t place;

	/* Processors translate at the same time. */
	pthread_mutex_lock(&places_lock);
	place = block_of(at);
	block_length[place] = length;
	called_by[place] = function;
	pthread_mutex_unlock(&places_lock);
	return count_in(place);
}

static void count_block(struct qemu_plugin_tb *tb, size_t n)
{
	uint64_t function = called(qemu_plugin_tb_get_insn(tb, n - 1));
	struct qemu_plugin_u64 count = count_of(qemu_plugin_tb_vaddr(tb), n, function);

	qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(tb, QEMU_PLUGIN_INLINE_ADD_U64, count, n);
}

static void count_atomic(struct qemu_plugin_insn *insn)
{
	uint64_t at = qemu_plugin_insn_vaddr(insn) & ~ATOMIC;
	struct qemu_plugin_u64 count = count_of(at, 1, 0);

	qemu_plugin_register_vcpu_insn_exec_inline_per_vcpu(insn, QEMU_PLUGIN_INLINE_ADD_U64,
							    count, 1);
}

static void write_blocks(void)
{
	char ask[256];
	FILE *file;
	size_t i;

	snprintf(ask, sizeof(ask), "%s.ask", blocks_file ? blocks_file : "");
	if (!blocks_file || access(ask, F_OK))
		return;
	file = fopen(blocks_file, "we");
	if (!file)
		return;
	for (i = 0; i < BLOCKS; i++) {
		uint64_t count = block_at[i] ? qemu_plugin_u64_sum(count_in(i)) : 0;

		if (count)
			fprintf(file, "%016llx %llu %u %llx\n", (unsigned long long)block_at[i],
				(unsigned long long)count, block_length[i],
				(unsigned long long)called_by[i]);
	}
	fclose(file);
	unlink(ask);
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
	if (block_counts)
		count_block(tb, n);
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
		if (block_counts)
			count_atomic(insn);
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
		write_blocks();
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
		else if (!strncmp(argv[i], "blocks=", 7))
			blocks_file = strdup(argv[i] + 7);
	}
	if (out < 0) {
		fprintf(stderr, "insns: give out=FILE, a file that can be written\n");
		return -1;
	}
	score = qemu_plugin_scoreboard_new(sizeof(struct counts));
	instructions = (struct qemu_plugin_u64){ score, offsetof(struct counts, instructions) };
	atomics = (struct qemu_plugin_u64){ score, offsetof(struct counts, atomics) };
	if (blocks_file) {
		block_at[0] = 1;
		block_counts = qemu_plugin_scoreboard_new(BLOCKS * sizeof(uint64_t));
	}
	begin(id);
	return pthread_create(&thread, NULL, report, NULL) ? -1 : 0;
}
