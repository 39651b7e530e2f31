// SPDX-License-Identifier: GPL-2.0
/*
 * Resolves an address by librdmacm, and prints how many milliseconds it took:
 * resolve ADDRESS TIMEOUT-MS
 */
#include <arpa/inet.h>
#include <rdma/rdma_cma.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

int main(int argc, char **argv)
{
	struct sockaddr_in to = { .sin_family = AF_INET, .sin_port = htons(7) };
	struct rdma_event_channel *channel;
	struct rdma_cm_event *event;
	struct timespec from, until;
	struct rdma_cm_id *id;

	if (argc != 3 || !inet_aton(argv[1], &to.sin_addr))
		return 2;
	channel = rdma_create_event_channel();
	if (!channel || rdma_create_id(channel, &id, NULL, RDMA_PS_TCP)) {
		perror("rdma_create_id");
		return 1;
	}
	clock_gettime(CLOCK_MONOTONIC, &from);
	if (rdma_resolve_addr(id, NULL, (struct sockaddr *)&to, atoi(argv[2])) ||
	    rdma_get_cm_event(channel, &event)) {
		perror("rdma_resolve_addr");
		return 1;
	}
	clock_gettime(CLOCK_MONOTONIC, &until);
	if (event->event != RDMA_CM_EVENT_ADDR_RESOLVED) {
		printf("%s\n", rdma_event_str(event->event));
		return 1;
	}
	printf("%ld\n", (until.tv_sec - from.tv_sec) * 1000 +
	       (until.tv_nsec - from.tv_nsec) / 1000000);
	return 0;
}
