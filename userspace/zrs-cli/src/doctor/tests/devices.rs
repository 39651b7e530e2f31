// SPDX-License-Identifier: GPL-2.0
//! The devices, their ports and addresses, and firewalls.

use super::*;

const PORT: &str = "/sys/class/infiniband/mlx5_0/ports/1";

#[test]
fn the_service_port() {
    let ids = |text: &str| well().command("rdma resource show cm_id", text).examine();
    let listens = |comm: &str, port: u16| {
        ids(&format!(
            "link rxe0/1 cm-idn 1 state LISTEN ps TCP comm {comm} src-addr 0.0.0.0:{port}\n"
        ))
    };
    has(
        &listens("[zrs]", 340),
        "service port",
        Status::Ok,
        "zrs listens",
    );
    only(
        &listens("rping", 340),
        "service port",
        Failure,
        "rping listens on port 340",
    );
    has(&listens("rping", 1340), "service port", Status::Ok, "free");
    let checks = well().without_program("rdma resource").examine();
    only(&checks, "service port", Warning, "does not say");
}

#[test]
fn no_device() {
    let mut mock = well().without("/sys/class/infiniband");
    mock.pool = None;
    let checks = mock.examine();
    has(&checks, "pools", Failure, "no RDMA device");
    has(&checks, "devices", Failure, "there is no RDMA device");
}

#[test]
fn what_a_device_lacks() {
    let info = |from: &str, to: &str| {
        assert!(DEVINFO.contains(from));
        well()
            .unloaded()
            .command("ibv_devinfo -v -d mlx5_0", &DEVINFO.replace(from, to))
            .examine()
    };
    for (from, to, text) in [
        (
            "max_sge:\t\t\t30",
            "max_sge:\t\t\t2",
            "max_sge is 2, 3 are needed",
        ),
        (
            "max_qp_wr:\t\t\t32768",
            "max_qp_wr:\t\t\t16",
            "max_qp_wr is 16, 513 are needed",
        ),
        (
            "max_qp:\t\t\t\t131072",
            "max_qp:\t\t\t\t0",
            "max_qp is 0, 1 are needed",
        ),
        ("MEM_MGT_EXTENSIONS", "", "no fast registration"),
    ] {
        let checks = info(from, to);
        has(&checks, "mlx5_0 limits", Failure, text);
        has(
            &checks,
            "devices",
            Failure,
            "no RDMA device of this network namespace",
        );
    }
    // Without a shared receive queue the module makes one for each link.
    for (from, to) in [
        ("max_srq:\t\t\t8388608", "max_srq:\t\t\t0"),
        ("max_srq_wr:\t\t\t32767", "max_srq_wr:\t\t\t16"),
        ("max_srq_sge:\t\t\t31", "max_srq_sge:\t\t\t1"),
    ] {
        let text = "a receive queue for each link, 131072 queue pairs";
        has(&info(from, to), "mlx5_0 limits", Status::Ok, text);
    }
    // A loaded module that does not answer may have the parameter.
    let checks = |own: Option<&str>| {
        let mock = well().unloaded();
        match own {
            Some(own) => mock.file("/sys/module/zrs/parameters/own_receives", own),
            None => mock,
        }
        .examine()
    };
    for own in [None, Some("0\n")] {
        let text = "one receive queue for all links, 131072 queue pairs";
        has(&checks(own), "mlx5_0 limits", Status::Ok, text);
    }
    let text = "a receive queue for each link, 131072 queue pairs";
    has(&checks(Some("1\n")), "mlx5_0 limits", Status::Ok, text);
    // The module has found the limit, as the kernel reports it.
    let mut unfit = well();
    unfit.pool = None;
    unfit.unfit = vec![zrs::Unfit {
        device: "mlx5_0".into(),
        limit: Some("max_recv_sge"),
        has: 1,
        needs: 2,
    }];
    let text = "max_recv_sge is 1, 2 are needed";
    has(&unfit.examine(), "mlx5_0 limits", Failure, text);
    let mut refused = well();
    refused.pool = Some("mlx5_1");
    has(
        &refused.examine(),
        "mlx5_0 limits",
        Failure,
        "has no pool there",
    );
    let checks = well().unloaded().without_program("ibv_devinfo").examine();
    has(&checks, "mlx5_0 limits", Warning, "does not tell");
    has(&checks, "mlx5_0 MTU", Warning, "does not tell");
}

#[test]
fn the_port_and_its_address() {
    let down = well().file(&format!("{PORT}/state"), "1: DOWN\n").examine();
    has(&down, "mlx5_0 port", Failure, "DOWN, not active");
    let small = DEVINFO.replace("4096 (5)", "1024 (3)");
    let checks = well().command("ibv_devinfo -d mlx5_0", &small).examine();
    only(&checks, "mlx5_0 MTU", Warning, "1024 bytes");
    let empty = well().without(&format!("{PORT}/gid_attrs")).examine();
    has(
        &empty,
        "mlx5_0 address",
        Failure,
        "no interface belongs to it",
    );
    let infiniband = well()
        .without(&format!("{PORT}/gid_attrs"))
        .file(&format!("{PORT}/link_layer"), "InfiniBand\n")
        .file(
            "/sys/class/net/eth1/device/infiniband/mlx5_0/node_type",
            "1: CA\n",
        )
        .examine();
    has(&infiniband, "mlx5_0 address", Status::Ok, "eth1 192.0.2.1");
    let v1 = well()
        .without(&format!("{PORT}/gid_attrs/types/1"))
        .examine();
    has(&v1, "mlx5_0 address", Failure, "no GID of RoCE v2");
    let addresses = "2: eth1    inet6 fe80::1/64 scope link \n";
    let local = well().command("ip -o addr show", addresses).examine();
    has(&local, "mlx5_0 address", Failure, "eth1 has no address");
    let no_ip = well().without_program("ip").examine();
    has(&no_ip, "mlx5_0 address", Warning, "ip(8)");
    let elsewhere = well()
        .command("ip -o addr show", "1: lo    inet 127.0.0.1/8\n")
        .command("ip -o link show", "1: lo: <UP>\n")
        .examine();
    has(
        &elsewhere,
        "mlx5_0 interface",
        Status::Ok,
        "another network namespace",
    );
    has(&elsewhere, "devices", Failure, "of this network namespace");
    let iwarp = well()
        .file("/sys/class/infiniband/mlx5_0/node_type", "4: RNIC\n")
        .without(&format!("{PORT}/gid_attrs/types/1"));
    has(&iwarp.examine(), "mlx5_0 transport", Status::Ok, "(340)");
}

#[test]
fn firewalls() {
    // Of hardware no packet passes them.
    let drop = "table inet f {\n chain c {\n type filter hook input priority filter; policy drop;\n udp dport 53 accept\n }\n}\n";
    let checks = well().command("nft list ruleset", drop).examine();
    assert!(checks.iter().all(|c| c.name != "firewall"));

    let soft = || well().without("/sys/class/infiniband/mlx5_0/device");
    has(&soft().examine(), "firewall", Status::Ok, "no nft");
    let nft = |text: &str| soft().command("nft list ruleset", text).examine();
    only(&nft(drop), "firewall", Failure, "none names UDP port 4791");
    let open = drop.replace("dport 53", "dport 4791");
    has(&nft(&open), "firewall", Status::Ok, "lets UDP port 4791 in");
    let closed = drop.replace("dport 53 accept", "dport 4791 drop");
    only(&nft(&closed), "firewall", Failure, "udp dport 4791 drop");
    has(
        &nft("table inet f {\n}\n"),
        "firewall",
        Status::Ok,
        "policy is to accept",
    );
    let denied = soft()
        .command("nft --version", "nftables v1.1\n")
        .command("nft list ruleset", "");
    only(&denied.examine(), "firewall", Warning, "cannot be read");
    // siw's packets are those of a TCP connection of this host.
    let iwarp = |text: &str| {
        let mock = soft().command("nft list ruleset", text);
        let rnic = mock.file("/sys/class/infiniband/mlx5_0/node_type", "4: RNIC\n");
        rnic.examine()
    };
    has(
        &iwarp(drop),
        "firewall (iWARP)",
        Failure,
        "none names TCP port 340",
    );
    let open = drop.replace("udp dport 53", "tcp dport 340");
    has(
        &iwarp(&open),
        "firewall (iWARP)",
        Status::Ok,
        "lets TCP port 340 in",
    );
    assert!(iwarp(&open).iter().all(|c| c.name != "firewall"));
    let iptables = soft().command("iptables -S INPUT", "-P INPUT DROP\n");
    only(&iptables.examine(), "firewall", Failure, "none names");
    let iptables = soft().command(
        "iptables -S INPUT",
        "-P INPUT ACCEPT\n-A INPUT -p udp -m udp --dport 4791 -j DROP\n",
    );
    only(
        &iptables.examine(),
        "firewall",
        Failure,
        "--dport 4791 -j DROP",
    );
}
