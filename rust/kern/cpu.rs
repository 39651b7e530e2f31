// SPDX-License-Identifier: GPL-2.0

//! The sizes of the machine's caches and memory.
//!
//! C: `arch/x86/include/asm/cpuid/api.h`, `include/linux/mm.h`. The kernel knows each cache
//! (`get_cpu_cacheinfo()`), but does not tell modules.

use crate::bindings;
use kernel::page::PAGE_SHIFT;

/// Bytes of the machine's memory, as far as the kernel has it to give. Any context.
pub fn total_ram_bytes() -> u64 {
    // SAFETY: reads a counter.
    let pages = unsafe { bindings::totalram_pages() };
    (pages as u64) << PAGE_SHIFT
}

/// Bytes of the last-level cache of the CPU that calls: of one, where the machine has several. None
/// where the architecture or the CPU does not say. Any context.
#[cfg(not(CONFIG_X86))]
pub fn last_level_cache_bytes() -> Option<usize> {
    None
}

/// Bytes of the last-level cache of the CPU that calls: of one, where the machine has several. None
/// where the architecture or the CPU does not say. Any context.
#[cfg(CONFIG_X86)]
pub fn last_level_cache_bytes() -> Option<usize> {
    // Intel describes the caches in the first leaf, AMD, which has nothing in that, in the other;
    // where AMD does not (virtual machines often lack it), there is a sum. Then what /proc/cpuinfo
    // says.
    caches(0, 4)
        .or_else(|| caches(0x8000_0000, 0x8000_001d))
        .or_else(third_level)
        .or_else(|| {
            // SAFETY: written while the CPUs come up, long before a module is loaded.
            let kib = unsafe { bindings::boot_cpu_data.x86_cache_size } as usize;
            kib.checked_mul(1 << 10).filter(|&bytes| bytes != 0)
        })
}

/// The size of a processor's third level, by AMD; all of it, where it consists of several.
#[cfg(CONFIG_X86)]
fn third_level() -> Option<usize> {
    const LEAF: u32 = 0x8000_0006;

    let [highest, ..] = cpuid(0x8000_0000, 0);
    if highest < LEAF {
        return None;
    }
    let [.., size] = cpuid(LEAF, 0);
    // In pieces of 512 KiB; nothing from others.
    Some((size >> 18) as usize * (512 << 10)).filter(|&bytes| bytes != 0)
}

/// The size of the last level of those caches that CPUID leaf `leaf` describes, if the CPU has
/// that; `base` says which is the highest leaf of its kind.
#[cfg(CONFIG_X86)]
fn caches(base: u32, leaf: u32) -> Option<usize> {
    /// Caches of a CPU; there are four or five.
    const MOST: u32 = 16;

    let [highest, ..] = cpuid(base, 0);
    if highest < leaf {
        return None;
    }
    (0..MOST)
        .map(|index| cpuid(leaf, index))
        .take_while(|[kind, ..]| kind & 0x1f != 0)
        // Of data (1), of instructions (2), of both (3).
        .filter(|[kind, ..]| kind & 0x1f != 2)
        .max_by_key(|[kind, ..]| kind >> 5 & 7)
        .and_then(|[_, lines, sets, _]| {
            let ways = (lines >> 22) as usize + 1;
            let partitions = (lines >> 12 & 0x3ff) as usize + 1;
            let line = (lines & 0xfff) as usize + 1;
            (sets as usize + 1).checked_mul(ways * partitions * line)
        })
}

/// `eax`, `ebx`, `ecx`, `edx` of a CPUID leaf and subleaf (`ecx`).
#[cfg(CONFIG_X86)]
fn cpuid(leaf: u32, index: u32) -> [u32; 4] {
    let mut regs = [0; 4];
    // SAFETY: CPUID can be asked for any leaf, and there is room for the four.
    unsafe { bindings::cpuid_count(leaf, index, regs.as_mut_ptr()) };
    regs
}
