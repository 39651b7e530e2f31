// SPDX-License-Identifier: GPL-2.0
//! A C program prints every constant, size and offset of `uapi/linux/zrs.h`; they must equal
//! those of `zrs_sys::abi`, and nothing of the header may be missing there.
// rows: B3

use std::collections::{BTreeMap, BTreeSet};
use std::mem::{offset_of, size_of};
use std::path::{Path, PathBuf};
use std::process::Command;

use zrs_sys::abi::*;

/// The values of the Rust side: C expression -> value.
#[derive(Default)]
struct Table {
    values: BTreeMap<String, u64>,
    names: BTreeSet<String>,
}

impl Table {
    fn constant(&mut self, name: &str, value: u64) {
        self.names.insert(name.into());
        self.values
            .insert(format!("(unsigned long long)({name})"), value);
    }
    fn size(&mut self, name: &str, size: usize) {
        self.names.insert(format!("struct {name}"));
        self.values
            .insert(format!("sizeof(struct {name})"), size as u64);
    }
    fn field(&mut self, name: &str, field: &str, offset: usize, size: usize) {
        let field = field.trim_end_matches('_');
        self.names.insert(format!("{name}.{field}"));
        self.values
            .insert(format!("offsetof(struct {name}, {field})"), offset as u64);
        self.values.insert(
            format!("sizeof(((struct {name} *)0)->{field})"),
            size as u64,
        );
    }
}

fn field_size<S, F>(_: fn(&S) -> &F) -> usize {
    size_of::<F>()
}

macro_rules! constants {
    ($t:ident: $($name:ident)*) => { $($t.constant(stringify!($name), $name as u64);)* };
}
macro_rules! layout {
    ($t:ident: $($s:ident { $($f:ident)* })*) => { $(
        $t.size(stringify!($s), size_of::<$s>());
        $($t.field(stringify!($s), stringify!($f), offset_of!($s, $f), field_size(|s: &$s| &s.$f));)*
    )* };
}

fn rust_side() -> Table {
    let mut t = Table::default();
    constants!(t:
        IPPROTO_ZRS IPPROTO_ZRS_AUTO SOL_ZRS ZRS_UAPI_VERSION ZRS_RING_VERSION ZRS_FEATURE_STREAM ZRS_FEATURE_RX_RING ZRS_FEATURE_RING_WAIT
        ZRS_FEATURE_RECV_MAP ZRS_FEATURE_ESCAPE ZRS_FEATURE_IPV6 ZRS_FEATURE_TCP ZRS_FEATURE_DGRAM ZRS_FEATURE_MEM
        ZRS_FEATURE_FALLBACK ZRS_FEATURE_RULES ZRS_FEATURE_MEM_QUEUE ZRS_FEATURE_MEM_BROKER ZRS_FEATURE_MEM_NODES
        ZRS_IOC_RULES ZRS_IOC_FALLBACK
        ZRS_FEATURE_PEERS ZRS_IOC_PEERS ZRS_PEER_ALLOW ZRS_PEER_DENY ZRS_PEERS_LIST ZRS_PEERS_SET ZRS_PEERS_PUT
        ZRS_PEERS_DEL ZRS_PEERS_COUNTS ZRS_PEERS_MAX
        ZRS_FEATURE_DGRAM_MAP ZRS_FEATURE_MEM_ADMIN ZRS_FEATURE_MEM_STATS ZRS_FEATURE_RING_SMALL ZRS_FEATURE_KEYS ZRS_IOC_KEYS ZRS_KEY_NAME_LEN ZRS_KEYS_LIST ZRS_KEYS_PUT ZRS_KEYS_DEL ZRS_KEYS_COUNTS ZRS_KEYS_MAX
        ZRS_RULE_TCP ZRS_RULE_ZRS ZRS_RULE_CONNECT ZRS_RULE_BIND
        ZRS_RULES_LIST ZRS_RULES_SET ZRS_RULES_ADD ZRS_RULES_DEL ZRS_RULES_MAX ZRS_WHY_MAX
        ZRS_IOC_MAGIC ZRS_NAME_LEN ZRS_RESIDENCY_BUCKETS
        ZRS_IOC_VERSION ZRS_IOC_SOCKET ZRS_IOC_STATS ZRS_IOC_POOL ZRS_IOC_LINK ZRS_IOC_SOCK
        ZRS_IOC_TABLE ZRS_IOC_CACHE ZRS_IOC_DGRAM ZRS_IOC_DOORBELL ZRS_IOC_RING_WAIT ZRS_IOC_RECV_MAP
        ZRS_IOC_MEM_SERVE ZRS_IOC_MEM_NODES ZRS_IOC_MEM_ALLOC ZRS_IOC_MEM_OPEN ZRS_IOC_MEM_REGION ZRS_IOC_MEM_FREE ZRS_IOC_MEM_STATS
        ZRS_IOC_MEM_QUEUE ZRS_IOC_MEM_BROKER ZRS_IOC_MEM_DRAIN ZRS_MEM_DRAIN_UNDO ZRS_QUEUE_SUBMIT ZRS_MEM_QUEUE_MAX ZRS_MEM_OP_COPY ZRS_MEM_OP_WRITE
        ZRS_MEM_OP_READ ZRS_MEM_OP_CANCEL ZRS_MEM_F_DRAIN ZRS_MEM_OP_LEN_MAX ZRS_MEM_VIA
        ZRS_REGION_INFO ZRS_REGION_KEY ZRS_REGION_UNKEY ZRS_REGION_SEAL ZRS_REGION_FREE
        ZRS_MEM_READ ZRS_MEM_WRITE ZRS_MEM_GRANT ZRS_MEM_FREE ZRS_MEM_SERVE_OPEN ZRS_MEM_NODES_LIST ZRS_MEM_NODES_SET
        ZRS_MEM_NODES_DEL ZRS_MEM_NODES_CLEAR ZRS_MEM_NODES_SELF ZRS_MEM_KEEP
        ZRS_MEM_NODE_UNKNOWN ZRS_MEM_NODE_SERVED ZRS_MEM_NODE_DRAINING ZRS_MEM_NODE_ABSENT
        ZRS_REGION_LIVE ZRS_REGION_SEALING ZRS_REGION_SEALED ZRS_REGION_CLOSING
        ZRS_AREA_OFFSET ZRS_RECV_MAP_DONTWAIT ZRS_RECV_MAP_SHIFT
        ZRS_ESCAPE_NEVER ZRS_ESCAPE_PRESSURE ZRS_ESCAPE_ALWAYS
        ZRS_LINK_CONNECTING ZRS_LINK_UP ZRS_LINK_DOWN ZRS_LINK_F_ACCEPTED ZRS_LINK_F_PROVED
        ZRS_POOL_ALL ZRS_LACK_OTHER ZRS_LACK_REG ZRS_LACK_SEND_SGE ZRS_LACK_RECV_SGE ZRS_LACK_QP_WR
        ZRS_LACK_CQE
        ZRS_STATE_CLOSED ZRS_STATE_BOUND ZRS_STATE_LISTEN ZRS_STATE_CONNECTING
        ZRS_STATE_ESTABLISHED ZRS_STATE_CLOSING
        ZRS_RX_RING ZRS_INFO ZRS_TCP ZRS_DGRAM_UDP ZRS_DGRAM_INFO ZRS_RX_RING_ESCAPE ZRS_RX_RING_SMALL
        ZRS_TCP_NEVER ZRS_TCP_AUTO ZRS_TCP_REQUIRED ZRS_TCP_ONLY
        ZRS_WHY_NONE ZRS_WHY_ASKED ZRS_WHY_LOCAL ZRS_WHY_DRAIN ZRS_WHY_KNOWN ZRS_WHY_NO_ZRS ZRS_WHY_SLOW
        ZRS_WHY_NO_LISTENER ZRS_WHY_NO_RESOURCES ZRS_WHY_RULE ZRS_WHY_ASKING ZRS_WHY_PEER ZRS_WHY_OFF ZRS_WHY_KEY ZRS_WHY_NO_NEW_PRIVS
        ZRS_CARRIER_ZRS ZRS_CARRIER_TCP
        ZRS_DESC_FREE ZRS_DESC_READY ZRS_DESC_HELD ZRS_DESC_DONE ZRS_DESC_KERNEL
        ZRS_DESC_ESCAPED
    );
    layout!(t:
        zrs_ioc_version { version reserved features }
        zrs_mem_node { domain node }
        zrs_mem_key { region gen secret }
        zrs_mem_storage { va len key }
        zrs_ioc_mem_serve { node memfd flags offset len admission host_percent reserved0 reserved }
        zrs_ioc_mem_nodes { cursor node addr scope_id op own_domain state incarnation free }
        zrs_ioc_mem_alloc { node len va flags ttl_ms admission storage via reserved }
        zrs_ioc_mem_broker { node quota admission node_admission flags reserved0 reserved }
        zrs_ioc_mem_drain { node flags reserved0 reserved }
        zrs_ioc_mem_queue { entries flags reserved }
        zrs_mem_sqe { op flags reserved0 fd src_fd reserved1 off src len user_data reserved2 }
        zrs_mem_cqe { user_data res done flags reserved }
        zrs_queue_submit { sqes count flags }
        zrs_ioc_mem_open { node storage via flags reserved }
        zrs_ioc_mem_free { node region gen reserved }
        zrs_ioc_mem_stats {
            regions region_bytes links grants_given grants_held requests_sent requests_served requests_refused
            program_write_bytes program_read_bytes node_write_bytes node_read_bytes copied_out_bytes copied_within_bytes late_revokes silent_links reserved
        }
        zrs_ioc_mem_region { cursor node len region gen owner state flags holds node_bytes node_free reserved }
        zrs_region_info { node storage rights keys holds reserved0 reserved }
        zrs_region_key { rights uses off len ttl_ms reserved0 key }
        zrs_rule { action calls family prefix_len addr first_port last_port reserved }
        zrs_peer { action family prefix_len reserved addr }
        zrs_ioc_peers { cursor peers op count peer refused unasked refused_there reserved }
        zrs_key { family prefix_len addr name }
        zrs_ioc_keys { cursor op error key proved unoffered keyless wrong unusable silent refused_there reserved }
        zrs_ioc_rules { cursor rules op count rule at reserved0 reserved }
        zrs_ioc_fallback { by_why known known_max reserved }
        zrs_ioc_socket { family type_ flags reserved }
        zrs_ioc_stats {
            tx_bytes rx_bytes tx_copied rx_copied rx_spilled work_requests recv_requests
            completions empty_events resources_made pages_pinned sockets channels links
            pool_bytes pool_used protocol_errors signaled windows_revoked
            tcp_known tcp_no_zrs tcp_slow tcp_no_listener tcp_no_resources
        }
        zrs_ioc_pool {
            cursor device bytes block_bytes window_bytes windows blocks_held cache blocks blocks_low
            lack lack_has lack_needs blocks_lent reserved
        }
        zrs_ioc_link {
            cursor device local_addr remote_addr state channels tx_bytes rx_bytes flags waiting bulk
            bulk_max waits id dgram_drops local_addr6 remote_addr6 scope_id reserved1
        }
        zrs_info {
            state channel local_addr remote_addr local_port remote_port uid inode tx_bytes
            rx_bytes tx_copied rx_copied tx_queued rx_queued window peer_window backlog error
            link backlog_max carriers why reserved local_addr6 remote_addr6 family local_scope_id
            remote_scope_id tcp
        }
        zrs_ioc_sock { cursor info }
        zrs_dgram_info {
            family uid inode tx_bytes rx_bytes tx_datagrams rx_datagrams tx_queued rx_queued rx_waiting
            rx_drops tx_drops error sndbuf rcvbuf local_addr6 remote_addr6 local_port remote_port
            local_scope_id remote_scope_id reserved0 reserved
        }
        zrs_ioc_dgram { cursor info }
        zrs_ioc_table {
            hot_slots near_places ways most entries hot near reserved0 hits near_hits faults parked
            evicted contended reserved
        }
        zrs_ioc_cache {
            cursor node policy devices residency_us cache_bytes rate bytes small_bytes large_bytes
            small_high large_high small_share unread unread_high escapes escaped_bytes escaped
            escape_failures escape_reserved escape_max waits denied refused dry residency reserved
        }
        zrs_rx_ring {
            flags entries ring_offset ring_bytes window_offset window_bytes escape_offset escape_bytes
        }
        zrs_desc { pos off len state escape_off reserved1 }
        zrs_ioc_ring_wait { head timeout_ns reserved }
        zrs_ioc_recv_map { addr len copied flags reserved0 reserved }
        zrs_ring {
            version entries desc_offset reserved0 first reserved1 head reserved2 need_credit reserved3
        }
    );
    t
}

fn uapi() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../uapi")
}

/// Names of the header: constants, `struct x`, and `x.field`.
fn header_names() -> BTreeSet<String> {
    let text = std::fs::read_to_string(uapi().join("linux/zrs.h")).unwrap();
    let mut plain = String::new();
    let mut rest = text.as_str();
    while let Some(start) = rest.find("/*") {
        plain.push_str(&rest[..start]);
        rest = &rest[start..];
        rest = &rest[rest.find("*/").unwrap() + 2..];
    }
    plain.push_str(rest);

    let mut names = BTreeSet::new();
    let mut inside: Option<String> = None;
    for line in plain.lines().map(str::trim) {
        if let Some(def) = line.strip_prefix("#define ") {
            let name = def.split_whitespace().next().unwrap();
            if name != "_UAPI_LINUX_ZRS_H" {
                names.insert(name.to_string());
            }
        } else if let Some(name) = line
            .strip_prefix("struct ")
            .and_then(|l| l.strip_suffix(" {"))
        {
            names.insert(format!("struct {name}"));
            inside = Some(name.to_string());
        } else if line == "};" {
            inside = None;
        } else if let (Some(s), Some(decl)) = (&inside, line.strip_suffix(';')) {
            let field = decl.split_whitespace().last().unwrap();
            let field = field.split('[').next().unwrap();
            names.insert(format!("{s}.{field}"));
        }
    }
    names
}

#[test]
fn nothing_is_missing() {
    let (ours, header) = (rust_side().names, header_names());
    let different: Vec<_> = ours.symmetric_difference(&header).collect();
    assert!(different.is_empty(), "only on one side: {different:?}");
}

/// The values of these expressions, as a C program finds them by the header.
fn by_the_header<'a>(exprs: impl Iterator<Item = &'a str>, name: &str) -> BTreeMap<String, u64> {
    let mut c = String::from(
        "#include <stdio.h>\n#include <stddef.h>\n#include <linux/zrs.h>\nint main(void)\n{\n",
    );
    for expr in exprs {
        c.push_str(&format!(
            "\tprintf(\"%s=%llu\\n\", \"{expr}\", (unsigned long long)({expr}));\n"
        ));
    }
    c.push_str("\treturn 0;\n}\n");

    let dir = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let (source, program) = (dir.join(format!("{name}.c")), dir.join(name));
    std::fs::write(&source, c).unwrap();
    let cc = std::env::var("CC").unwrap_or_else(|_| "cc".into());
    let done = Command::new(&cc)
        .args(["-Wall", "-Werror", "-I"])
        .arg(uapi())
        .arg("-o")
        .args([&program, &source])
        .status()
        .unwrap_or_else(|e| panic!("the C compiler {cc} does not start: {e}"));
    assert!(done.success(), "{cc} refused the probe");
    let out = Command::new(&program).output().unwrap().stdout;
    values(&String::from_utf8(out).unwrap())
}

/// Lines of `expression=value`.
fn values(text: &str) -> BTreeMap<String, u64> {
    let lines = text.lines().filter(|l| !l.starts_with('#'));
    lines
        .map(|l| l.rsplit_once('=').unwrap())
        .map(|(k, v)| (k.to_string(), v.parse().unwrap()))
        .collect()
}

#[test]
fn equals_the_header() {
    let table = rust_side();
    let seen = by_the_header(table.values.keys().map(String::as_str), "layout");
    for (expr, ours) in &table.values {
        assert_eq!(
            Some(ours),
            seen.get(expr),
            "{expr}: zrs_sys::abi, then the header"
        );
    }
}

/// Programs of version 2 find their interface unchanged. A structure that outgrows its reserved
/// fields gets a new number.
#[test]
fn version_2_is_as_it_was() {
    let then = values(include_str!("uapi-2.txt"));
    let now = by_the_header(then.keys().map(String::as_str), "uapi-2");
    for (expr, then) in &then {
        assert_eq!(now.get(expr), Some(then), "{expr}");
    }
}

/// The tracepoints say every reason why TCP carries a connection by its name.
#[test]
fn tracepoints_know_every_why() {
    let top = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let read = |path: &str| std::fs::read_to_string(top.join(path)).unwrap();
    let (uapi, trace) = (read("uapi/linux/zrs.h"), read("rust/helpers/zrs_trace.h"));
    let reasons: Vec<&str> = uapi
        .split_whitespace()
        .filter(|word| word.starts_with("ZRS_WHY_"))
        .filter(|word| !matches!(*word, "ZRS_WHY_NONE" | "ZRS_WHY_MAX"))
        .filter(|word| word.bytes().all(|b| b.is_ascii_uppercase() || b == b'_'))
        .collect();
    assert!(reasons.len() >= 10, "{reasons:?}");
    for why in reasons {
        assert!(trace.contains(&format!("{{ {why},")), "{why}");
    }
}
