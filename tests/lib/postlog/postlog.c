// SPDX-License-Identifier: GPL-2.0
/*
 * Records the work requests that are posted to Soft-RoCE, by a kprobe. Written
 * "1", /proc/zrs_posts forgets all of them and begins; written "0", it stops.
 * Read, it has a line for each work request:
 *
 *   POST OPCODE REMOTE ADDR+LEN,ADDR+LEN,... BYTES
 *
 * Work requests of one ib_post_send() have one POST. REMOTE is the remote address of a WRITE or
 * READ, else 0. ADDR is the address given to the driver: on Soft-RoCE an address of the kernel's
 * direct map. BYTES are the first bytes of a SEND, "-" for other requests. All numbers but POST and
 * OPCODE are hexadecimal. The last line is "lost N": requests that did not fit.
 *
 * A module, because kprobe events cannot follow a chain of requests.
 */
#include <linux/kprobes.h>
#include <linux/minmax.h>
#include <linux/module.h>
#include <linux/proc_fs.h>
#include <linux/ptrace.h>
#include <linux/seq_file.h>
#include <linux/spinlock.h>
#include <linux/string.h>
#include <linux/uaccess.h>
#include <linux/vmalloc.h>
#include <rdma/ib_verbs.h>

#define MOST	4096	/* requests that are recorded */
#define SGES	32	/* as many as Soft-RoCE takes */
#define BYTES	256	/* of a SEND */

struct seen {
	u32 post;
	u32 opcode;
	u64 remote;
	u32 sges;
	u32 bytes;
	struct ib_sge sge[SGES];
	u8 data[BYTES];
};

static struct seen *seen;
static u32 count, posts, lost;
static bool on;
/* Of all of these; interrupts may post as well. */
static DEFINE_RAW_SPINLOCK(lock);

static bool is_send(enum ib_wr_opcode opcode)
{
	return opcode == IB_WR_SEND || opcode == IB_WR_SEND_WITH_IMM ||
	       opcode == IB_WR_SEND_WITH_INV;
}

static void record(const struct ib_send_wr *wr)
{
	struct seen *s = &seen[count];
	int i;

	if (count == MOST || wr->num_sge > SGES) {
		lost++;
		return;
	}
	count++;
	s->post = posts;
	s->opcode = wr->opcode;
	s->remote = 0;
	if (wr->opcode == IB_WR_RDMA_WRITE || wr->opcode == IB_WR_RDMA_WRITE_WITH_IMM ||
	    wr->opcode == IB_WR_RDMA_READ)
		s->remote = rdma_wr(wr)->remote_addr;
	s->sges = wr->num_sge;
	s->bytes = 0;
	for (i = 0; i < wr->num_sge; i++) {
		s->sge[i] = wr->sg_list[i];
		if (is_send(wr->opcode) && !(wr->send_flags & IB_SEND_INLINE)) {
			u32 n = min_t(u32, s->sge[i].length, BYTES - s->bytes);

			memcpy(s->data + s->bytes, ib_virt_dma_to_ptr(s->sge[i].addr), n);
			s->bytes += n;
		}
	}
}

/* rxe_post_send(qp, wr, bad_wr) */
static int post_send(struct kprobe *p, struct pt_regs *regs)
{
	const struct ib_send_wr *wr = (const struct ib_send_wr *)regs->si;
	unsigned long flags;

	raw_spin_lock_irqsave(&lock, flags);
	if (on) {
		for (; wr; wr = wr->next)
			record(wr);
		posts++;
	}
	raw_spin_unlock_irqrestore(&lock, flags);
	return 0;
}

static struct kprobe probe = {
	.symbol_name = "rdma_rxe:rxe_post_send",
	.pre_handler = post_send,
};

/* While recording is off, earlier records stay. */
static int show(struct seq_file *m, void *unused)
{
	u32 i, n;

	for (n = 0; n < count; n++) {
		const struct seen *s = &seen[n];

		seq_printf(m, "%u %u %llx ", s->post, s->opcode, s->remote);
		for (i = 0; i < s->sges; i++)
			seq_printf(m, "%s%llx+%x", i ? "," : "", s->sge[i].addr, s->sge[i].length);
		seq_puts(m, s->sges ? " " : "- ");
		for (i = 0; i < s->bytes; i++)
			seq_printf(m, "%02x", s->data[i]);
		seq_puts(m, s->bytes ? "\n" : "-\n");
	}
	seq_printf(m, "lost %u\n", lost);
	return 0;
}

static int open(struct inode *inode, struct file *file)
{
	return single_open(file, show, NULL);
}

static ssize_t set(struct file *file, const char __user *text, size_t len, loff_t *pos)
{
	unsigned long flags;
	char to;

	if (!len || get_user(to, text))
		return -EFAULT;
	raw_spin_lock_irqsave(&lock, flags);
	on = to == '1';
	if (on) {
		count = 0;
		posts = 0;
		lost = 0;
	}
	raw_spin_unlock_irqrestore(&lock, flags);
	return len;
}

static const struct proc_ops ops = {
	.proc_open = open,
	.proc_read = seq_read,
	.proc_lseek = seq_lseek,
	.proc_release = single_release,
	.proc_write = set,
};

static int __init postlog_init(void)
{
	int err = -ENOMEM;

	seen = vzalloc(array_size(MOST, sizeof(*seen)));
	if (!seen)
		return err;
	if (!proc_create("zrs_posts", 0600, NULL, &ops))
		goto free;
	err = register_kprobe(&probe);
	if (!err)
		return 0;
	pr_err("postlog: %s: %d\n", probe.symbol_name, err);
	remove_proc_entry("zrs_posts", NULL);
free:
	vfree(seen);
	return err;
}

static void __exit postlog_exit(void)
{
	unregister_kprobe(&probe);
	remove_proc_entry("zrs_posts", NULL);
	vfree(seen);
}

module_init(postlog_init);
module_exit(postlog_exit);
MODULE_DESCRIPTION("Records work requests for a test of ZRS");
MODULE_LICENSE("GPL");
