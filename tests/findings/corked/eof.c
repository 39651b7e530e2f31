// SPDX-License-Identifier: GPL-2.0
/*
 * Gives each IPv6 UDP socket, when it is connected, a copy of inet6_dgram_ops
 * with a splice_eof: see "Findings in the kernel" in
 * Documentation/testing.rst. The parameter splice_eof is the address of
 * inet_splice_eof(), which modules cannot name. The module has to stay until
 * these sockets are closed.
 */
#include <linux/kprobes.h>
#include <linux/module.h>
#include <linux/net.h>

static unsigned long splice_eof;
module_param(splice_eof, ulong, 0);

static __typeof_unqual__(const struct proto_ops)
	dgram_ops;

static int connects(struct kprobe *probe, struct pt_regs *regs)
{
	struct socket *sock = (void *)regs_get_kernel_argument(regs, 0);
	const struct proto_ops *ops = READ_ONCE(sock->ops);

	if (ops->family != PF_INET6 || sock->type != SOCK_DGRAM || ops->splice_eof)
		return 0;
	dgram_ops = *ops;
	dgram_ops.splice_eof = (void *)splice_eof;
	WRITE_ONCE(sock->ops, &dgram_ops);
	return 0;
}

static struct kprobe probe = {
	.symbol_name = "inet_dgram_connect",
	.pre_handler = connects,
};

static int __init eof_init(void)
{
	return splice_eof ? register_kprobe(&probe) : -EINVAL;
}
module_init(eof_init);

static void __exit eof_exit(void)
{
	unregister_kprobe(&probe);
}
module_exit(eof_exit);

MODULE_DESCRIPTION("inet6_dgram_ops with a splice_eof");
MODULE_LICENSE("GPL");
