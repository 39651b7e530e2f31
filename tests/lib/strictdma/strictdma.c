// SPDX-License-Identifier: GPL-2.0
/*
 * DMA as on a device that forgives nothing, for Soft-RoCE (tests/vm/build-device
 * strict): a DMA address is a number that says nothing of the memory, each
 * mapping has its length and direction, and the device accesses bounce pages.
 * The CPU's data gets there when a mapping is made, or synchronized for the
 * device; the device's data gets back when it is undone, or synchronized for
 * the CPU. What breaks the rules of Documentation/core-api/dma-api.rst is a
 * warning in the kernel's log. With the parameter "coherent" the device accesses
 * the memory itself.
 *
 * Mappings by scatterlist are those of user space's memory regions, whose pages
 * Soft-RoCE takes from the scatterlist: they get addresses, and no bounce pages.
 */
#include <linux/dma-map-ops.h>
#include <linux/dma-mapping.h>
#include <linux/err.h>
#include <linux/io.h>
#include <linux/mm.h>
#include <linux/module.h>
#include <linux/mutex.h>
#include <linux/rbtree.h>
#include <linux/scatterlist.h>
#include <linux/slab.h>
#include <linux/spinlock.h>

#include "strictdma.h"

/* The first address; no memory of the machine is there. */
#define FIRST 0x5a5a00000000ULL
/* Warnings before the rest is only counted. */
#define WARNINGS 20

/*
 * A mapping, of the pages that hold its bytes. The page behind them is not given
 * away: an access beyond its end finds nothing.
 */
struct mapping {
	struct rb_node node;
	u64 addr;
	size_t size;
	enum dma_data_direction dir;
	/* NULL: by scatterlist. */
	struct page **pages;
	void *memory;
};

static DEFINE_SPINLOCK(lock);
static struct rb_root mappings = RB_ROOT;
static u64 next_addr = FIRST;
static struct page *nobodys;
static DEFINE_MUTEX(making);
static struct device *device;
static struct device_dma_parameters parms;

static atomic_t mistakes = ATOMIC_INIT(0);

static int mistakes_get(char *buffer, const struct kernel_param *kp)
{
	return sysfs_emit(buffer, "%d\n", atomic_read(&mistakes));
}

static const struct kernel_param_ops mistakes_ops = { .get = mistakes_get };
module_param_cb(mistakes, &mistakes_ops, NULL, 0444);
MODULE_PARM_DESC(mistakes, "breaches of the rules of DMA so far");

static int mapped_now;
module_param(mapped_now, int, 0444);
MODULE_PARM_DESC(mapped_now, "mappings with bounce pages now");

static bool coherent;
module_param(coherent, bool, 0444);
MODULE_PARM_DESC(coherent, "no bounce pages, nothing to synchronize");

#define mistake(fmt, ...)                                            \
	do {                                                         \
		if (atomic_inc_return(&mistakes) <= WARNINGS)        \
			WARN(1, "strictdma: " fmt, ##__VA_ARGS__); \
	} while (0)

static bool reads(enum dma_data_direction dir)
{
	return dir == DMA_TO_DEVICE || dir == DMA_BIDIRECTIONAL;
}

static bool writes(enum dma_data_direction dir)
{
	return dir == DMA_FROM_DEVICE || dir == DMA_BIDIRECTIONAL;
}

static u64 first_page(const struct mapping *m)
{
	return m->addr & PAGE_MASK;
}

static unsigned int pages_of(const struct mapping *m)
{
	return PFN_UP(offset_in_page(m->addr) + m->size);
}

/* The mapping one of whose pages has @addr; under the lock. */
static struct mapping *find(u64 addr)
{
	struct rb_node *node = mappings.rb_node;

	while (node) {
		struct mapping *m = rb_entry(node, struct mapping, node);

		if (addr < first_page(m))
			node = node->rb_left;
		else if (addr >= first_page(m) + ((u64)pages_of(m) << PAGE_SHIFT))
			node = node->rb_right;
		else
			return m;
	}
	return NULL;
}

/* Gives @m its address, whose offset in a page is @offset. */
static void insert(struct mapping *m, unsigned int offset)
{
	struct rb_node **link, *parent = NULL;
	unsigned long flags;

	spin_lock_irqsave(&lock, flags);
	m->addr = next_addr + offset;
	next_addr += (u64)(pages_of(m) + 1) << PAGE_SHIFT;
	link = &mappings.rb_node;
	while (*link) {
		parent = *link;
		link = m->addr < rb_entry(parent, struct mapping, node)->addr ?
			       &parent->rb_left :
			       &parent->rb_right;
	}
	rb_link_node(&m->node, parent, link);
	rb_insert_color(&m->node, &mappings);
	mapped_now += !!m->pages;
	spin_unlock_irqrestore(&lock, flags);
}

/* Copies @size bytes at @addr of the mapping between memory and bounce pages. */
static void copy(const struct mapping *m, u64 addr, size_t size, bool to_device)
{
	size_t at = addr - first_page(m);
	void *memory = m->memory + (addr - m->addr);

	while (size && !coherent) {
		unsigned int offset = offset_in_page(at);
		size_t n = min_t(size_t, size, PAGE_SIZE - offset);
		void *bounce = page_address(m->pages[at >> PAGE_SHIFT]) + offset;

		if (to_device)
			memcpy(bounce, memory, n);
		else
			memcpy(memory, bounce, n);
		at += n;
		memory += n;
		size -= n;
	}
}

static void free_mapping(struct mapping *m)
{
	unsigned int i;

	for (i = 0; m->pages && !coherent && i < pages_of(m); i++)
		if (m->pages[i])
			__free_page(m->pages[i]);
	kfree(m->pages);
	kfree(m);
}

static dma_addr_t map_phys(struct device *dev, phys_addr_t phys, size_t size,
			   enum dma_data_direction dir, unsigned long attrs)
{
	/* Callers may be in any context. */
	const gfp_t gfp = GFP_ATOMIC | __GFP_NOWARN;
	struct mapping *m;
	unsigned int i;

	if (!size || dir == DMA_NONE) {
		mistake("%zu bytes are mapped, direction %d\n", size, dir);
		return DMA_MAPPING_ERROR;
	}
	m = kzalloc(sizeof(*m), gfp);
	if (!m)
		return DMA_MAPPING_ERROR;
	m->addr = offset_in_page(phys);
	m->size = size;
	m->dir = dir;
	m->memory = phys_to_virt(phys);
	m->pages = kcalloc(pages_of(m), sizeof(*m->pages), gfp);
	if (!m->pages)
		goto failed;
	for (i = 0; i < pages_of(m); i++) {
		if (coherent) {
			m->pages[i] = pfn_to_page(PHYS_PFN(phys) + i);
			continue;
		}
		m->pages[i] = alloc_page(gfp);
		if (!m->pages[i])
			goto failed;
		/* What the device reads of neither mapping nor sync. */
		memset(page_address(m->pages[i]), 0xa5, PAGE_SIZE);
	}
	/* In all directions: what the device does not write stays as it was. */
	if (!(attrs & DMA_ATTR_SKIP_CPU_SYNC))
		copy(m, m->addr, size, true);
	insert(m, offset_in_page(phys));
	return m->addr;
failed:
	free_mapping(m);
	return DMA_MAPPING_ERROR;
}

static void unmap_phys(struct device *dev, dma_addr_t addr, size_t size,
		       enum dma_data_direction dir, unsigned long attrs)
{
	struct mapping *m;
	unsigned long flags;
	bool right;

	spin_lock_irqsave(&lock, flags);
	m = find(addr);
	right = m && m->addr == addr && m->size == size && m->dir == dir;
	if (right) {
		rb_erase(&m->node, &mappings);
		mapped_now -= !!m->pages;
	}
	spin_unlock_irqrestore(&lock, flags);
	if (!right) {
		mistake("%zu bytes at %pad, direction %d, are unmapped, which were not mapped so\n",
			size, &addr, dir);
		return;
	}
	if (m->pages && writes(dir) && !(attrs & DMA_ATTR_SKIP_CPU_SYNC))
		copy(m, addr, size, false);
	free_mapping(m);
}

static void sync(dma_addr_t addr, size_t size, enum dma_data_direction dir,
		 bool to_device)
{
	struct mapping *m;
	unsigned long flags;
	bool right;

	spin_lock_irqsave(&lock, flags);
	m = find(addr);
	right = m && m->dir == dir && addr >= m->addr &&
		addr + size <= m->addr + m->size;
	if (right && m->pages && (to_device ? reads(dir) : writes(dir)))
		copy(m, addr, size, to_device);
	spin_unlock_irqrestore(&lock, flags);
	if (!right)
		mistake("%zu bytes at %pad, direction %d, are synchronized, not mapped so\n",
			size, &addr, dir);
}

static void sync_for_cpu(struct device *dev, dma_addr_t addr, size_t size,
			 enum dma_data_direction dir)
{
	sync(addr, size, dir, false);
}

static void sync_for_device(struct device *dev, dma_addr_t addr, size_t size,
			    enum dma_data_direction dir)
{
	sync(addr, size, dir, true);
}

static void unmap_sg(struct device *dev, struct scatterlist *list, int count,
		     enum dma_data_direction dir, unsigned long attrs)
{
	struct scatterlist *sg;
	int i;

	for_each_sg(list, sg, count, i)
		unmap_phys(dev, sg_dma_address(sg), sg_dma_len(sg), dir, attrs);
}

static int map_sg(struct device *dev, struct scatterlist *list, int count,
		  enum dma_data_direction dir, unsigned long attrs)
{
	struct scatterlist *sg;
	int i;

	for_each_sg(list, sg, count, i) {
		struct mapping *m = kzalloc(sizeof(*m), GFP_KERNEL);

		if (!m) {
			unmap_sg(dev, list, i, dir, attrs);
			return -ENOMEM;
		}
		m->addr = offset_in_page(sg->offset);
		m->size = sg->length;
		m->dir = dir;
		insert(m, offset_in_page(sg->offset));
		sg_dma_address(sg) = m->addr;
		sg_dma_len(sg) = m->size;
	}
	return count;
}

static const struct dma_map_ops ops = {
	.map_phys = map_phys,
	.unmap_phys = unmap_phys,
	.map_sg = map_sg,
	.unmap_sg = unmap_sg,
	.sync_single_for_cpu = sync_for_cpu,
	.sync_single_for_device = sync_for_device,
};

static const struct dma_map_ops coherent_ops = {
	.map_phys = map_phys,
	.unmap_phys = unmap_phys,
	.map_sg = map_sg,
	.unmap_sg = unmap_sg,
};

struct page *strictdma_page(u64 addr, unsigned int len, bool write)
{
	struct page *page = NULL;
	struct mapping *m;
	unsigned long flags;
	const char *wrong = NULL;

	spin_lock_irqsave(&lock, flags);
	m = find(addr);
	if (!m || !m->pages)
		wrong = "which is not mapped";
	else if (len && (addr < m->addr || addr + len > m->addr + m->size))
		wrong = "beyond what is mapped";
	else if (len && !(write ? writes(m->dir) : reads(m->dir)))
		wrong = "against the direction of the mapping";
	else
		page = m->pages[(addr - first_page(m)) >> PAGE_SHIFT];
	spin_unlock_irqrestore(&lock, flags);
	if (page)
		return page;
	mistake("the device %s %u bytes at 0x%llx, %s\n", write ? "writes" : "reads",
		len, addr, wrong);
	return nobodys;
}

struct device *strictdma_device(void)
{
	struct device *dev;

	mutex_lock(&making);
	if (device)
		goto out;
	nobodys = alloc_page(GFP_KERNEL | __GFP_ZERO);
	if (!nobodys)
		goto out;
	dev = root_device_register("strictdma");
	if (IS_ERR(dev)) {
		__free_page(nobodys);
		goto out;
	}
	dev->dma_parms = &parms;
	dev->coherent_dma_mask = DMA_BIT_MASK(64);
	dev->dma_mask = &dev->coherent_dma_mask;
	set_dma_ops(dev, coherent ? &coherent_ops : &ops);
	/* Finds out whether there is anything to synchronize. */
	if (dma_set_mask(dev, DMA_BIT_MASK(64)))
		mistake("no mask of 64 bits\n");
	dma_set_max_seg_size(dev, UINT_MAX);
	device = dev;
out:
	mutex_unlock(&making);
	return device;
}

void strictdma_exit(void)
{
	if (!device)
		return;
	if (mapped_now)
		mistake("%d mappings are left\n", mapped_now);
	root_device_unregister(device);
	__free_page(nobodys);
}
