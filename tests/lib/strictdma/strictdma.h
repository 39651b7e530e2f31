/* SPDX-License-Identifier: GPL-2.0 */
#ifndef STRICTDMA_H
#define STRICTDMA_H

#include <linux/types.h>

struct device;
struct page;

/* The device that DMA mappings are made for; NULL if there is no memory. */
struct device *strictdma_device(void);

/* The module goes; no RDMA device is left. */
void strictdma_exit(void);

/*
 * The page that the device accesses at the DMA address @addr, for @len bytes,
 * which do not leave the page; @write: it writes. Memory that is not mapped so is
 * reported, and a page that belongs to nobody is accessed instead. @len of 0 finds
 * the page of a mapping without an access.
 */
struct page *strictdma_page(u64 addr, unsigned int len, bool write);

#endif
