/* SPDX-License-Identifier: GPL-2.0 */
/*
 * What insns.c uses of QEMU's interface for plugins, version 4 (QEMU 9.2 and
 * later): Debian has no package with qemu-plugin.h.
 */
#ifndef ZRS_BENCH_INSNS_H
#define ZRS_BENCH_INSNS_H

#include <stddef.h>

struct qemu_info;
struct qemu_plugin_tb;
struct qemu_plugin_scoreboard;

struct qemu_plugin_u64 {
	struct qemu_plugin_scoreboard *score;
	size_t offset;
};

enum qemu_plugin_op {
	QEMU_PLUGIN_INLINE_ADD_U64,
};

struct qemu_plugin_scoreboard *qemu_plugin_scoreboard_new(size_t size);
unsigned long long qemu_plugin_u64_sum(struct qemu_plugin_u64 entry);
size_t qemu_plugin_tb_n_insns(const struct qemu_plugin_tb *tb);
void qemu_plugin_register_vcpu_tb_exec_inline_per_vcpu(struct qemu_plugin_tb *tb,
						       enum qemu_plugin_op op,
						       struct qemu_plugin_u64 entry,
						       unsigned long long number);
void qemu_plugin_register_vcpu_tb_trans_cb(unsigned long long id,
					   void (*cb)(unsigned long long id,
						      struct qemu_plugin_tb *tb));

extern int qemu_plugin_version;
int qemu_plugin_install(unsigned long long id, const struct qemu_info *info,
			int argc, char **argv);

#endif
