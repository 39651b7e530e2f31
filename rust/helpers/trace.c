// SPDX-License-Identifier: GPL-2.0
/*
 * The one place where the tracepoints of zrs_trace.h become code, as C macros
 * of the kernel make it.
 */

#define CREATE_TRACE_POINTS
#define CREATE_RUST_TRACE_POINTS
#include "zrs_trace.h"

#include <linux/in6.h>

static_assert(sizeof(struct sockaddr_in6) == ZRS_TRACE_ADDR);
