// SPDX-License-Identifier: GPL-2.0
/* Per-CPU counters, for rust/kern/percpu.rs. */

#include "kern.h"

#include <linux/percpu.h>

static DEFINE_PER_CPU_ALIGNED(s64[ZRS_HELPER_COUNTERS], counters);

s64 __percpu *zrs_helper_counters(void)
{
	return (s64 __percpu *)&counters;
}

s64 __percpu *zrs_helper_alloc_counters(size_t n)
{
	return __alloc_percpu(n * sizeof(s64), SMP_CACHE_BYTES);
}

void zrs_helper_this_cpu_add(s64 __percpu *counter, s64 n)
{
	this_cpu_add(*counter, n);
}

s64 zrs_helper_this_cpu_add_return(s64 __percpu *counter, s64 n)
{
	return this_cpu_add_return(*counter, n);
}

s64 zrs_helper_percpu_sum(s64 __percpu *counter)
{
	s64 sum = 0;
	int cpu;

	for_each_possible_cpu(cpu)
		sum += READ_ONCE(*per_cpu_ptr(counter, cpu));
	return sum;
}
