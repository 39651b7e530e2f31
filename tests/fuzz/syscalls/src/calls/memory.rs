// SPDX-License-Identifier: GPL-2.0
//! The calls of memory nodes, regions and queues.

use super::{ioc, CURSOR, IOCTL, ODD};
use crate::consts::{AIO_ENDS, AIO_OPS, MEM_OPS, MEM_RIGHTS, NAMESPACES, NODE_OPS};
use crate::desc::{big, field, pad, Class, Desc, Field, Kind};
use crate::special::Special;
use zrs_sys::abi;

use Class::{Any, Dev, File, Queue, Region};
use Kind::{Array, Count, Fd, Flags, Len, Mem, Ns, Num, One, Struct};

/// Positions in a region, and lengths of a part.
const POSITION: Kind = Num(&[
    0,
    0,
    1,
    4095,
    4096,
    65536,
    0x10_0000,
    1 << 32,
    i64::MAX as u64,
    u64::MAX,
]);
const NODE: Kind = Num(&[1, 1, 2, 2, 3, 0, u64::MAX]);
const DOMAIN: Kind = Num(&[1, 1, 1, 0, 2, u64::MAX]);
const SMALL: Kind = Num(&[0, 0, 1, 2, 50, 1000, 0xffff_ffff]);
const BYTES: Kind = Num(&[4096, 65536, 0x10_0000, 1, 0, 0x40_0000, 1 << 32, u64::MAX]);
const SECRET: Kind = Num(&[0, 1, u64::MAX]);

const SERVE: &[Field] = &[
    field(4, DOMAIN),
    field(4, NODE),
    field(4, Fd(File)),
    field(4, Num(&[1, 1, 0, 2])),
    field(8, Num(&[0, 0, 4096, 1, 1 << 40])),
    field(8, Num(&[0x10_0000, 65536, 4096, 0, 1, u64::MAX])),
    pad(16),
    field(4, Num(&[0, 50, 100, 101])),
    field(4, ODD),
    field(8, ODD),
    field(8, ODD),
];
const NODES: &[Field] = &[
    field(8, CURSOR),
    field(4, DOMAIN),
    field(4, NODE),
    // A v4-mapped address: a host's, an unused one, 0.0.0.0.
    pad(8),
    field(4, Num(&[0xffff_0000, 0xffff_0000, 0])),
    big(
        4,
        Num(&[0x0a4d_0001, 0x0a4d_0002, 0x0a4d_0009, 0, 0xffff_ffff]),
    ),
    field(4, Num(&[0, 0, 0, 1, 2])),
    field(4, One(NODE_OPS)),
    field(4, DOMAIN),
    field(4, ODD),
    field(8, ODD),
    field(8, ODD),
];
const ALLOC: &[Field] = &[
    field(4, DOMAIN),
    field(4, NODE),
    field(8, BYTES),
    field(8, Num(&[0, 0, 0x1000, u64::MAX])),
    field(4, Num(&[0, 0, 1, 2, 3, 4])),
    field(4, SMALL),
    pad(16),
    pad(32),
    field(4, DOMAIN),
    field(4, NODE),
    field(8, ODD),
];
const OPEN: &[Field] = &[
    field(4, DOMAIN),
    field(4, NODE),
    field(8, POSITION),
    field(8, BYTES),
    field(4, Num(&[0, 1, 2, 0xffff_ffff])),
    field(4, Num(&[0, 1, 2, 0xffff_ffff])),
    field(8, SECRET),
    field(4, DOMAIN),
    field(4, NODE),
    field(4, Num(&[0, 0, 2, 1])),
    field(4, ODD),
];
const QUEUE: &[Field] = &[
    field(4, Num(&[8, 1, 64, 4096, 0, 4097])),
    field(4, ODD),
    field(8, ODD),
];
const BROKER: &[Field] = &[
    field(4, DOMAIN),
    field(4, NODE),
    field(8, BYTES),
    pad(32),
    field(4, Num(&[1, 1, 0, 2])),
    field(4, ODD),
    field(8, ODD),
    field(8, ODD),
];
const DRAIN: &[Field] = &[
    field(4, DOMAIN),
    field(4, NODE),
    field(4, Num(&[0, 1, 2])),
    field(4, ODD),
    field(8, ODD),
    field(8, ODD),
];
const SERVED: &[Field] = &[
    field(8, CURSOR),
    pad(8 + 8 + 24 + 16),
    field(8, ODD),
    field(8, ODD),
];
const FREE: &[Field] = &[
    field(4, DOMAIN),
    field(4, NODE),
    field(4, SMALL),
    field(4, Num(&[0, 1, 2, 0xffff_ffff])),
    field(8, ODD),
    field(8, ODD),
];
const STATS: &[Field] = &[pad(16 * 8), field(8, ODD), field(8, ODD), pad(6 * 8)];
const INFO: &[Field] = &[
    pad(8 + 32 + 12),
    field(4, ODD),
    field(8, ODD),
    field(8, ODD),
];
const KEY: &[Field] = &[
    field(4, Flags(MEM_RIGHTS)),
    field(4, SMALL),
    field(8, POSITION),
    field(8, BYTES),
    field(4, SMALL),
    field(4, ODD),
    field(4, Num(&[0, 1, 2, 0xffff_ffff])),
    field(4, Num(&[0, 1, 2, 0xffff_ffff])),
    field(8, SECRET),
];
const SQE: &[Field] = &[
    field(1, One(MEM_OPS)),
    field(1, Num(&[0, 0, 0, 1, 2])),
    field(2, Num(&[0, 0, 0, 1])),
    field(4, Fd(Region)),
    field(4, Fd(Region)),
    field(4, Num(&[0, 0, 0, 1])),
    field(8, POSITION),
    field(8, Mem),
    field(8, Len),
    field(8, Num(&[1, 2, 3, 3])),
    field(8, ODD),
    pad(8),
];
const SUBMIT: &[Field] = &[field(8, Array(SQE)), field(4, Count), field(4, ODD)];
const OFFSET: &[Field] = &[field(8, POSITION)];

/// A call by ioctl() on /dev/zrs that makes a descriptor of that class.
const fn makes(name: &'static str, args: &'static [Kind], class: Class, weight: usize) -> Desc {
    Desc::call(name, IOCTL, args).makes(class).weight(weight)
}

pub static CALLS: &[Desc] = &[
    Desc::special("regions", Special::Regions, &[Ns, One(NAMESPACES), BYTES])
        .makes_two(0, Region)
        .weight(24),
    makes(
        "mem_serve",
        &[Ns, Fd(Dev), ioc(abi::ZRS_IOC_MEM_SERVE), Struct(SERVE)],
        Any,
        6,
    ),
    Desc::call(
        "mem_nodes",
        IOCTL,
        &[Ns, Fd(Dev), ioc(abi::ZRS_IOC_MEM_NODES), Struct(NODES)],
    ),
    makes(
        "mem_alloc",
        &[Ns, Fd(Dev), ioc(abi::ZRS_IOC_MEM_ALLOC), Struct(ALLOC)],
        Region,
        8,
    ),
    makes(
        "mem_open",
        &[Ns, Fd(Dev), ioc(abi::ZRS_IOC_MEM_OPEN), Struct(OPEN)],
        Region,
        4,
    ),
    makes(
        "mem_queue",
        &[Ns, Fd(Dev), ioc(abi::ZRS_IOC_MEM_QUEUE), Struct(QUEUE)],
        Queue,
        8,
    ),
    makes(
        "mem_broker",
        &[Ns, Fd(Dev), ioc(abi::ZRS_IOC_MEM_BROKER), Struct(BROKER)],
        Any,
        4,
    ),
    Desc::call(
        "mem_drain",
        IOCTL,
        &[Ns, Fd(Dev), ioc(abi::ZRS_IOC_MEM_DRAIN), Struct(DRAIN)],
    ),
    Desc::call(
        "mem_region",
        IOCTL,
        &[Ns, Fd(Dev), ioc(abi::ZRS_IOC_MEM_REGION), Struct(SERVED)],
    ),
    Desc::call(
        "mem_free",
        IOCTL,
        &[Ns, Fd(Dev), ioc(abi::ZRS_IOC_MEM_FREE), Struct(FREE)],
    ),
    Desc::call(
        "mem_stats",
        IOCTL,
        &[Ns, Fd(Dev), ioc(abi::ZRS_IOC_MEM_STATS), Struct(STATS)],
    ),
    Desc::call(
        "region_info",
        IOCTL,
        &[Fd(Region), ioc(abi::ZRS_REGION_INFO), Struct(INFO)],
    ),
    Desc::call(
        "region_key",
        IOCTL,
        &[Fd(Region), ioc(abi::ZRS_REGION_KEY), Struct(KEY)],
    ),
    Desc::call(
        "region_unkey",
        IOCTL,
        &[Fd(Region), ioc(abi::ZRS_REGION_UNKEY), Struct(KEY)],
    ),
    Desc::call(
        "region_seal",
        IOCTL,
        &[Fd(Region), ioc(abi::ZRS_REGION_SEAL)],
    )
    .weight(2),
    Desc::call(
        "region_free",
        IOCTL,
        &[Fd(Region), ioc(abi::ZRS_REGION_FREE)],
    )
    .weight(2),
    Desc::call(
        "region_pread",
        libc::SYS_pread64,
        &[Fd(Region), Mem, Len, POSITION],
    )
    .weight(8),
    Desc::call(
        "region_pwrite",
        libc::SYS_pwrite64,
        &[Fd(Region), Mem, Len, POSITION],
    )
    .weight(8),
    Desc::special(
        "region_aio",
        Special::Aio,
        &[One(AIO_OPS), Fd(Region), Mem, Len, POSITION, One(AIO_ENDS)],
    )
    .weight(10),
    Desc::call("region_fsync", libc::SYS_fsync, &[Fd(Region)]).weight(1),
    Desc::call(
        "region_fallocate",
        libc::SYS_fallocate,
        &[Fd(Region), Num(&[0, 0, 1, 3]), POSITION, Len],
    )
    .weight(1),
    Desc::call(
        "copy_file_range",
        libc::SYS_copy_file_range,
        &[
            Fd(Region),
            Struct(OFFSET),
            Fd(Region),
            Struct(OFFSET),
            Len,
            Num(&[0, 0, 0, 1]),
        ],
    )
    .weight(12),
    Desc::call(
        "queue_submit",
        IOCTL,
        &[Fd(Queue), ioc(abi::ZRS_QUEUE_SUBMIT), Struct(SUBMIT)],
    )
    .weight(16),
    Desc::call(
        "queue_read",
        libc::SYS_read,
        &[Fd(Queue), Mem, Num(&[32, 64, 1024, 0, 31, 33])],
    )
    .weight(8),
];

#[cfg(test)]
mod tests {
    use super::*;
    use std::mem::size_of;

    #[test]
    fn structures_are_as_long_as_the_kernels() {
        let size = |fields: &[Field]| -> usize { fields.iter().map(|f| f.size).sum() };
        assert_eq!(size(SERVE), size_of::<abi::zrs_ioc_mem_serve>());
        assert_eq!(size(NODES), size_of::<abi::zrs_ioc_mem_nodes>());
        assert_eq!(size(ALLOC), size_of::<abi::zrs_ioc_mem_alloc>());
        assert_eq!(size(OPEN), size_of::<abi::zrs_ioc_mem_open>());
        assert_eq!(size(QUEUE), size_of::<abi::zrs_ioc_mem_queue>());
        assert_eq!(size(BROKER), size_of::<abi::zrs_ioc_mem_broker>());
        assert_eq!(size(DRAIN), size_of::<abi::zrs_ioc_mem_drain>());
        assert_eq!(size(SERVED), size_of::<abi::zrs_ioc_mem_region>());
        assert_eq!(size(FREE), size_of::<abi::zrs_ioc_mem_free>());
        assert_eq!(size(STATS), size_of::<abi::zrs_ioc_mem_stats>());
        assert_eq!(size(INFO), size_of::<abi::zrs_region_info>());
        assert_eq!(size(KEY), size_of::<abi::zrs_region_key>());
        assert_eq!(size(SQE), size_of::<abi::zrs_mem_sqe>());
        assert_eq!(size(SUBMIT), size_of::<abi::zrs_queue_submit>());
    }
}
