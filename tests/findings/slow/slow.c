// SPDX-License-Identifier: GPL-2.0
/*
 * Delays a kernel function at its entry, or behind it, which widens a race
 * window without a change of the code: see "Findings in the kernel" in
 * Documentation/testing.rst. A call is delayed if its caller's name begins
 * with from, and does not begin with not_from. The parameter begun counts the
 * delays that have begun.
 */
#include <linux/delay.h>
#include <linux/kallsyms.h>
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/string.h>

static char *function, *from = "", *not_from;
module_param(function, charp, 0);
module_param(from, charp, 0);
module_param(not_from, charp, 0);
static unsigned int ms, begun;
module_param(ms, uint, 0);
module_param(begun, uint, 0444);
static bool behind;
module_param(behind, bool, 0);

static int delay(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	WRITE_ONCE(begun, begun + 1);
	mdelay(ms);
	pr_info("slow: %s: %u ms\n", function, ms);
	return 0;
}
NOKPROBE_SYMBOL(delay);

/* 0: delay() is called behind the function, too. */
static int entry(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	char caller[KSYM_SYMBOL_LEN];

	sprint_symbol_no_offset(caller, regs_get_kernel_stack_nth(regs, 0));
	if (!strstarts(caller, from) || (not_from && strstarts(caller, not_from)))
		return 1;
	if (behind)
		return 0;
	delay(instance, regs);
	return 1;
}
NOKPROBE_SYMBOL(entry);

static struct kretprobe probe = { .entry_handler = entry, .handler = delay };

static int __init slow_init(void)
{
	probe.kp.symbol_name = function;
	return register_kretprobe(&probe);
}
module_init(slow_init);

static void __exit slow_exit(void)
{
	unregister_kretprobe(&probe);
}
module_exit(slow_exit);

MODULE_DESCRIPTION("Delay of a kernel function");
MODULE_LICENSE("GPL");
