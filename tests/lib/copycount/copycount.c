// SPDX-License-Identifier: GPL-2.0
/*
 * Counts the bytes that go through the kernel's copy functions and the one of
 * zrs.ko, by kprobes: /sys/module/copycount/parameters/copied, since it was
 * loaded. A module, because the kernel's own tracing leaves out these
 * functions (CONFIG_KPROBE_EVENTS_ON_NOTRACE is not set in Debian's kernel).
 */
#include <linux/atomic.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/moduleparam.h>
#include <linux/ptrace.h>

static atomic64_t copied;

/* The length is the third argument, or the second. */
static int by_third(struct kprobe *p, struct pt_regs *regs)
{
	atomic64_add(regs->dx, &copied);
	return 0;
}

static int by_second(struct kprobe *p, struct pt_regs *regs)
{
	atomic64_add(regs->si, &copied);
	return 0;
}

static struct kprobe probes[] = {
	{ .symbol_name = "_copy_to_user", .pre_handler = by_third },
	{ .symbol_name = "_copy_from_user", .pre_handler = by_third },
	{ .symbol_name = "_copy_to_iter", .pre_handler = by_second },
	{ .symbol_name = "_copy_from_iter", .pre_handler = by_second },
	{ .symbol_name = "zrs_helper_copy_payload", .pre_handler = by_third },
};

static int get_copied(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%lld\n", atomic64_read(&copied));
}

static const struct kernel_param_ops copied_ops = { .get = get_copied };
module_param_cb(copied, &copied_ops, NULL, 0444);
MODULE_PARM_DESC(copied, "bytes");

static int __init copycount_init(void)
{
	int i, err;

	for (i = 0; i < ARRAY_SIZE(probes); i++) {
		err = register_kprobe(&probes[i]);
		if (err) {
			pr_err("copycount: %s: %d\n", probes[i].symbol_name, err);
			while (i--)
				unregister_kprobe(&probes[i]);
			return err;
		}
	}
	return 0;
}

static void __exit copycount_exit(void)
{
	int i;

	for (i = 0; i < ARRAY_SIZE(probes); i++)
		unregister_kprobe(&probes[i]);
}

module_init(copycount_init);
module_exit(copycount_exit);
MODULE_DESCRIPTION("Counts copied bytes for a test of ZRS");
MODULE_LICENSE("GPL");
