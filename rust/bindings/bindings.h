/* SPDX-License-Identifier: GPL-2.0 */
/*
 * The input of the bindgen pass. bindgen_parameters in this folder says which
 * names of it become Rust; types that the kernel crate has completely are
 * taken from there.
 */

#include "helpers.h"
#include "kern.h"
#include "zrs_trace.h"
#include <net/addrconf.h>
#include <net/route.h>

#include "../../uapi/linux/zrs.h"

/* bindgen does not see through casts and some macros. */
const gfp_t ZRS_CONST_GFP_USER = GFP_USER;
const gfp_t ZRS_CONST___GFP_COMP = __GFP_COMP;
const gfp_t ZRS_CONST___GFP_HIGH = __GFP_HIGH;
const gfp_t ZRS_CONST___GFP_NOMEMALLOC = __GFP_NOMEMALLOC;
const gfp_t ZRS_CONST___GFP_NORETRY = __GFP_NORETRY;
const gfp_t ZRS_CONST___GFP_RETRY_MAYFAIL = __GFP_RETRY_MAYFAIL;
const gfp_t ZRS_CONST___GFP_THISNODE = __GFP_THISNODE;
const gfp_t ZRS_CONST___GFP_ACCOUNT = __GFP_ACCOUNT;
const int ZRS_CONST_DMA_TO_DEVICE = DMA_TO_DEVICE;
const int ZRS_CONST_DMA_FROM_DEVICE = DMA_FROM_DEVICE;
const int ZRS_CONST_DMA_BIDIRECTIONAL = DMA_BIDIRECTIONAL;
const unsigned int ZRS_CONST_PAGE_SHIFT = PAGE_SHIFT;
const long ZRS_CONST_MAX_SCHEDULE_TIMEOUT = MAX_SCHEDULE_TIMEOUT;
const unsigned int ZRS_CONST_FMODE_POSITIONED =
	(__force unsigned int)(FMODE_LSEEK | FMODE_PREAD | FMODE_PWRITE);
const unsigned int ZRS_CONST_FMODE_CAN_ODIRECT = (__force unsigned int)FMODE_CAN_ODIRECT;
const int ZRS_CONST_IOCB_APPEND = IOCB_APPEND;
const int ZRS_CONST_IOCB_NOWAIT = (__force int)IOCB_NOWAIT;
const unsigned int ZRS_CONST_WQ_FLAG_EXCLUSIVE = WQ_FLAG_EXCLUSIVE;
const unsigned int ZRS_CONST_POLL_BUSY_LOOP = (__force unsigned int)POLL_BUSY_LOOP;
