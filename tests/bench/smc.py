#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""SMC by its generic netlink (include/uapi/linux/smc.h): smc-tools are not in Debian.

smc.py ueid NAME   adds an enterprise ID. Hosts that have one in common may use SMC-Rv2; version 1 needs
                   RoCEv1, which Soft-RoCE does not have.
smc.py counts      lines NAME=N: what has gone by ZRS, SMC, RDMA and TCP since this machine was booted.
"""
import glob
import json
import socket
import struct
import subprocess
import sys

NETLINK_GENERIC = 16
NLMSG_ERROR, NLMSG_DONE = 2, 3
NLM_F_REQUEST, NLM_F_ACK, NLM_F_DUMP = 1, 4, 0x300
GENL_ID_CTRL, CTRL_CMD_GETFAMILY, CTRL_ATTR_FAMILY_ID, CTRL_ATTR_FAMILY_NAME = 16, 3, 1, 2

SMC_NETLINK_GET_STATS, SMC_NETLINK_GET_FBACK_STATS, SMC_NETLINK_ADD_UEID = 7, 8, 10
SMC_NLA_EID_TABLE_ENTRY, SMC_MAX_EID_LEN = 1, 32
SMC_GEN_STATS, SMC_NLA_STATS_SMCR_TECH = 7, 2
SMC_NLA_STATS_T_CLNT_V2_SUCC, SMC_NLA_STATS_T_SRV_V2_SUCC = 8, 10
SMC_NLA_STATS_T_RX_BYTES, SMC_NLA_STATS_T_TX_BYTES = 16, 17
SMC_GEN_FBACK_STATS = 8
SMC_NLA_FBACK_STATS_SRV_CNT, SMC_NLA_FBACK_STATS_CLNT_CNT = 2, 3
SMC_NLA_FBACK_STATS_RSN_CODE = 4


def attribute(kind, data):
    """One attribute, padded."""
    return struct.pack("=HH", 4 + len(data), kind) + data + bytes(-len(data) % 4)


def attributes(data):
    """The attributes in `data`, by number."""
    found = {}
    while len(data) >= 4:
        size, kind = struct.unpack_from("=HH", data)
        found[kind & 0x3FFF] = data[4:size]
        data = data[(size + 3) & ~3:]
    return found


def number(data):
    """A number of four or eight bytes."""
    return int.from_bytes(data, sys.byteorder)


class Generic:
    """A conversation with one family of generic netlink."""

    def __init__(self, name):
        self.socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, NETLINK_GENERIC)
        asked = attribute(CTRL_ATTR_FAMILY_NAME, name.encode() + b"\0")
        (family,) = self.ask(GENL_ID_CTRL, CTRL_CMD_GETFAMILY, NLM_F_ACK, asked)
        self.family = number(family[CTRL_ATTR_FAMILY_ID])

    def ask(self, family, command, flags, data=b""):
        """The attributes of each answer."""
        body = struct.pack("=BBH", command, 1, 0) + data
        self.socket.send(struct.pack("=IHHII", 16 + len(body), family, NLM_F_REQUEST | flags, 1, 0) + body)
        answers = []
        while True:
            got = self.socket.recv(1 << 16)
            while got:
                size, kind = struct.unpack_from("=IH", got)
                if kind in (NLMSG_ERROR, NLMSG_DONE):
                    (error,) = struct.unpack_from("=i", got, 16)
                    if error:
                        raise OSError(-error, f"netlink command {command}")
                    return answers
                answers.append(attributes(got[20:size]))
                got = got[(size + 3) & ~3:]


def smc_counts():
    """Bytes both ways, connections and fallbacks, and why those happened."""
    smc = Generic("SMC_GEN_NETLINK")
    (stats,) = smc.ask(smc.family, SMC_NETLINK_GET_STATS, NLM_F_DUMP)
    tech = attributes(attributes(stats[SMC_GEN_STATS])[SMC_NLA_STATS_SMCR_TECH])
    fallbacks, reasons = 0, []
    for answer in smc.ask(smc.family, SMC_NETLINK_GET_FBACK_STATS, NLM_F_DUMP):
        answer = attributes(answer[SMC_GEN_FBACK_STATS])
        for which in (SMC_NLA_FBACK_STATS_SRV_CNT, SMC_NLA_FBACK_STATS_CLNT_CNT):
            fallbacks += number(answer.get(which, b"\0"))
        reasons.append(f"0x{number(answer[SMC_NLA_FBACK_STATS_RSN_CODE]):08x}")
    if reasons:
        print("fallbacks because of", *reasons, file=sys.stderr)
    return {
        "smc_bytes": number(tech[SMC_NLA_STATS_T_RX_BYTES]) + number(tech[SMC_NLA_STATS_T_TX_BYTES]),
        "smc_connections": number(tech[SMC_NLA_STATS_T_CLNT_V2_SUCC]) + number(tech[SMC_NLA_STATS_T_SRV_V2_SUCC]),
        "smc_fallbacks": fallbacks,
    }


def counts():
    """All of them."""
    zrs = json.loads(subprocess.run(["zrs", "stats", "--json"], check=True, capture_output=True).stdout)
    packets = 0
    for path in glob.glob("/sys/class/infiniband/*/ports/1/hw_counters/sent_pkts"):
        with open(path, encoding="ascii") as file:
            packets += int(file.read())
    with open("/proc/net/snmp", encoding="ascii") as file:
        names, values = [line.split() for line in file if line.startswith("Tcp:")]
    return {
        "zrs_bytes": zrs["tx_bytes"] + zrs["rx_bytes"],
        **smc_counts(),
        "rdma_packets": packets,
        "tcp_segments": int(values[names.index("OutSegs")]),
    }


def main():
    """What the arguments say."""
    match sys.argv[1:]:
        case ["ueid", name]:
            smc = Generic("SMC_GEN_NETLINK")
            entry = name.ljust(SMC_MAX_EID_LEN).encode() + b"\0"
            smc.ask(smc.family, SMC_NETLINK_ADD_UEID, NLM_F_ACK, attribute(SMC_NLA_EID_TABLE_ENTRY, entry))
        case ["counts"]:
            for name, value in counts().items():
                print(f"{name}={value}")
        case _:
            sys.exit(__doc__)


main()
