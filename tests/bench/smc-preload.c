// SPDX-License-Identifier: GPL-2.0
/*
 * LD_PRELOAD: a program's TCP sockets become SMC sockets, as under smc_run of smc-tools, which
 * Debian does not have. Without SMC at the other end they are TCP's again, by SMC's own fallback.
 */
#define _GNU_SOURCE
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#define SMCPROTO_SMC	0	/* by IPv4 */
#define SMCPROTO_SMC6	1

int socket(int domain, int type, int protocol)
{
	int stream = (type & ~(SOCK_CLOEXEC | SOCK_NONBLOCK)) == SOCK_STREAM;
	int tcp = protocol == 0 || protocol == IPPROTO_TCP;

	if (stream && tcp && (domain == AF_INET || domain == AF_INET6)) {
		protocol = domain == AF_INET6 ? SMCPROTO_SMC6 : SMCPROTO_SMC;
		domain = AF_SMC;
	}
	return syscall(SYS_socket, domain, type, protocol);
}
