// SPDX-License-Identifier: GPL-2.0
/*
 * Delays a kernel function at its entry, which widens a race window without a
 * change of the code: see "Findings in the kernel" in
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

static int delay(struct kprobe *probe, struct pt_regs *regs)
{
	char caller[KSYM_SYMBOL_LEN];

	sprint_symbol_no_offset(caller, regs_get_kernel_stack_nth(regs, 0));
	if (!strstarts(caller, from) || (not_from && strstarts(caller, not_from)))
		return 0;
	WRITE_ONCE(begun, begun + 1);
	mdelay(ms);
	pr_info("slow: %s from %s: %u ms\n", function, caller, ms);
	return 0;
}
NOKPROBE_SYMBOL(delay);

static struct kprobe probe = { .pre_handler = delay };

static int __init slow_init(void)
{
	probe.symbol_name = function;
	return register_kprobe(&probe);
}
module_init(slow_init);

static void __exit slow_exit(void)
{
	unregister_kprobe(&probe);
}
module_exit(slow_exit);

MODULE_DESCRIPTION("Delay at the entry of a kernel function");
MODULE_LICENSE("GPL");
