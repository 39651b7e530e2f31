// SPDX-License-Identifier: GPL-2.0
/*
 * Threads that search for contiguous memory at once, without ZRS: see
 * "Findings in the kernel" in Documentation/testing.rst. Loading it does all;
 * it never stays loaded.
 */
#include <linux/completion.h>
#include <linux/err.h>
#include <linux/gfp.h>
#include <linux/kthread.h>
#include <linux/mm.h>
#include <linux/module.h>

#define THREADS 4
#define ROUNDS 2000
#define PAGES 130

/* Once by each thread, which then is out of this module's text. */
static DECLARE_COMPLETION(done);

static int search(void *unused)
{
	struct page *page;
	int i;

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
	int i;

	for (i = 0; i < THREADS; i++) {
		task = kthread_run(search, NULL, "contig/%d", i);
		if (IS_ERR(task))
			complete(&done);
	}
	for (i = 0; i < THREADS; i++)
		wait_for_completion(&done);
	pr_info("contig: %d searches in %d threads\n", ROUNDS, THREADS);
	return -ECANCELED;
}
module_init(contig_init);

MODULE_DESCRIPTION("Concurrent alloc_contig_pages()");
MODULE_LICENSE("GPL");
