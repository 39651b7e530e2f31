// SPDX-License-Identifier: GPL-2.0
//! The memory nodes.

use super::*;

#[test]
fn memory_nodes() {
    let path = "/etc/zrs/nodes";
    let node = |node: &str, at| MemNode {
        node: node.parse().unwrap(),
        addr: "192.0.2.11".parse().unwrap(),
        at,
    };
    let with = |file: &str, nodes: Vec<MemNode>| {
        let mock = well().file(path, file);
        Mock { nodes, ..mock }
    };
    let file = "1:1 192.0.2.11\n1:2 192.0.2.11\n";
    let served = || vec![node("1:1", At::Served), node("1:2", At::Served)];
    let checks = with(file, served()).examine();
    has(
        &checks,
        "nodes file",
        Status::Ok,
        "2 nodes, as the directory",
    );
    has(&checks, "memory nodes", Status::Ok, "2 nodes, all served");
    assert!(checks.iter().all(|c| c.status == Status::Ok), "{checks:#?}");

    let checks = with("1:1 192.0.2.11\n1:2 here\n", served()).examine();
    only(&checks, "nodes file", Failure, "line 2: ");
    let checks = with("1:1 192.0.2.11\n1:2 192.0.2.12\n", served()).examine();
    only(&checks, "nodes file", Warning, "says: 1:2 192.0.2.12");
    let one = vec![node("1:1", At::Served)];
    only(
        &with(file, one).examine(),
        "nodes file",
        Warning,
        "says: 1:2 192.0.2.11",
    );

    let absent = vec![node("1:1", At::Served), node("1:2", At::Absent)];
    only(
        &with(file, absent).examine(),
        "memory nodes",
        Warning,
        "them: 1:2 at 192.0.2.11",
    );
    let lost = vec![node("1:1", At::Lost(113)), node("1:2", At::Served)];
    only(
        &with(file, lost).examine(),
        "memory hosts",
        Warning,
        "1:1 at 192.0.2.11: no route to host",
    );
    let lost = (1..9)
        .map(|n| node(&format!("2:{n}"), At::Lost(113)))
        .collect();
    let many = Mock {
        nodes: lost,
        ..well()
    };
    only(&many.examine(), "memory hosts", Warning, ", and 3 more");

    let unloaded = well().file(path, file).unloaded().examine();
    has(&unloaded, "nodes file", Status::Ok, "2 nodes");
}
