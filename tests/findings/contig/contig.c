// SPDX-License-Identifier: GPL-2.0
/*
 * Threads that search for contiguous memory at once, without ZRS: see
 * "Findings in the kernel" in Documentation/testing.rst. Loading it does all;
 * it never stays loaded.
 *
 * With the parameter mended it stands in for the mend, which is in the
 * kernel's image: where start_isolate_page_range() has failed in one of its
 * threads, the thread's next call of undo_isolate_page_range() is left out.
 */
#include <linux/atomic.h>
#include <linux/completion.h>
#include <linux/err.h>
#include <linux/gfp.h>
#include <linux/kprobes.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/module.h>

#define THREADS 4
#define ROUNDS 2000
#define PAGES 130

static bool mended;
module_param(mended, bool, 0);

/* Once by each thread, which then is out of this module's text. */
static DECLARE_COMPLETION(done);

/* The threads, and whether the last isolation of each has failed and is not undone yet. */
static struct searcher {
	struct task_struct *task;
	bool failed;
} searchers[THREADS];

static atomic_t left_out;

static struct searcher *current_searcher(void)
{
	int i;

	for (i = 0; i < THREADS; i++) {
		if (READ_ONCE(searchers[i].task) == current)
			return &searchers[i];
	}
	return NULL;
}
NOKPROBE_SYMBOL(current_searcher);

static int isolated(struct kretprobe_instance *instance, struct pt_regs *regs)
{
	struct searcher *searcher = current_searcher();

	if (searcher)
		searcher->failed = regs_return_value(regs) != 0;
	return 0;
}
NOKPROBE_SYMBOL(isolated);

/* Runs in place of undo_isolate_page_range(). */
static noinline void undo_nothing(unsigned long start, unsigned long end)
{
	atomic_inc(&left_out);
}
NOKPROBE_SYMBOL(undo_nothing);

static int undoes(struct kprobe *probe, struct pt_regs *regs)
{
	struct searcher *searcher = current_searcher();

	if (!searcher || !searcher->failed)
		return 0;
	searcher->failed = false;
	instruction_pointer_set(regs, (unsigned long)undo_nothing);
	return 1;
}
NOKPROBE_SYMBOL(undoes);

/*
 * A probe with a post handler is not optimized to a jump: an optimized probe
 * ignores a changed instruction pointer.
 */
static void undone(struct kprobe *probe, struct pt_regs *regs, unsigned long flags)
{
}
NOKPROBE_SYMBOL(undone);

static struct kretprobe isolation = {
	.kp.symbol_name = "start_isolate_page_range",
	.handler = isolated,
	.maxactive = THREADS,
};

static struct kprobe undoing = {
	.symbol_name = "undo_isolate_page_range",
	.pre_handler = undoes,
	.post_handler = undone,
};

static int search(void *searcher)
{
	struct page *page;
	int i;

	WRITE_ONCE(((struct searcher *)searcher)->task, current);
	for (i = 0; i < ROUNDS; i++) {
		page = alloc_contig_pages(PAGES, GFP_KERNEL | __GFP_NOWARN,
					  numa_mem_id(), NULL);
		if (page)
			free_contig_range(page_to_pfn(page), PAGES);
		cond_resched();
	}
	kthread_complete_and_exit(&done, 0);
}

static int __init contig_init(void)
{
	struct task_struct *task;
	int i, err;

	if (mended) {
		err = register_kretprobe(&isolation);
		if (err)
			return err;
		err = register_kprobe(&undoing);
		if (err) {
			unregister_kretprobe(&isolation);
			return err;
		}
	}
	for (i = 0; i < THREADS; i++) {
		task = kthread_run(search, &searchers[i], "contig/%d", i);
		if (IS_ERR(task))
			complete(&done);
	}
	for (i = 0; i < THREADS; i++)
		wait_for_completion(&done);
	if (mended) {
		unregister_kprobe(&undoing);
		unregister_kretprobe(&isolation);
	}
	pr_info("contig: %d searches in %d threads\n", ROUNDS, THREADS);
	pr_info("contig: %d left out\n", atomic_read(&left_out));
	return -ECANCELED;
}
module_init(contig_init);

MODULE_DESCRIPTION("Concurrent alloc_contig_pages()");
MODULE_LICENSE("GPL");
