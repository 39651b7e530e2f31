#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""A key/value cache of an inference service in the memory of memory nodes.
  kv_cache.py worker NODE ADDRESS:PORT                  (one that prefills, and one that decodes)
  kv_cache.py router PREFILL-ADDRESS:PORT DECODE-ADDRESS:PORT [BLOCKS]

Each worker has a slab of blocks at the memory node that is near to it. The prefill worker writes blocks, the router
has their node write them to the decode worker's node, and the decode worker reads them. The router sees names and
keys of the blocks, and none of their bytes.

Then a request is given up in the middle of its copy: the router revokes the key that the copy writes with. When
that has returned nothing of the copy lands any more, so the blocks are given to another request at once. Without
the revocation the rest of the copy would be found in the middle of the other request's blocks.
"""
import hashlib
import json
import os
import queue
import socket
import sys
import threading
import time

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), ".."))
import zrs_mem  # noqa: E402  (it lies beside this folder)

BLOCK = 512 << 10  # bytes of keys and values of some tokens
WAIT = 60  # seconds for an answer


def block(seed, number):
    """What a model computes, for this example."""
    return hashlib.shake_256(f"{seed} {number}".encode()).digest(64) * (BLOCK // 64)


def write_all(region, data, off):
    done = 0
    while done < len(data):
        done += os.pwrite(region, data[done:], off + done)


def read_all(region, length, off):
    data = b""
    while len(data) < length:
        part = os.pread(region, length - len(data), off + len(data))
        if not part:
            raise EOFError("the region ends")
        data += part
    return data


class Worker:
    """Answers requests of the router, a line of JSON each."""

    def __init__(self, node):
        domain, number = ([0] + [int(part) for part in node.split(":")])[-2:]
        self.node = domain, number
        self.slab = None

    def room(self, blocks):
        """A slab for so many blocks. The router gets a key to derive others, which cannot free the slab."""
        self.slab, storage = zrs_mem.alloc(self.node, blocks * BLOCK)
        rights = zrs_mem.READ | zrs_mem.WRITE | zrs_mem.GRANT
        return zrs_mem.derive(self.slab, storage, rights, 0, blocks * BLOCK)

    def prefill(self, seed, number):
        write_all(self.slab, block(seed, number), number * BLOCK)

    def decode(self, seed, number):
        """Whether a block is what the model has computed."""
        return read_all(self.slab, BLOCK, number * BLOCK) == block(seed, number)

    def serve(self, address):
        host, port = address.rsplit(":", 1)
        with socket.create_server((host, int(port))) as server:
            print(f"worker at node {self.node[0]}:{self.node[1]} listens", flush=True)
            connection, _ = server.accept()
            with connection, connection.makefile("rw") as lines:
                for line in lines:
                    call, *arguments = json.loads(line)
                    answer = {"room": self.room, "prefill": self.prefill, "decode": self.decode}[call](*arguments)
                    print(json.dumps(answer), file=lines, flush=True)


class Remote:
    """A worker, as the router has it."""

    def __init__(self, address):
        host, port = address.rsplit(":", 1)
        self.connection = socket.create_connection((host, int(port)), timeout=WAIT)
        self.lines = self.connection.makefile("rw")

    def __call__(self, *call):
        print(json.dumps(call), file=self.lines, flush=True)
        return json.loads(self.lines.readline())


def pipeline(prefill, decode, source, target, blocks):
    """Blocks are written, copied and read at the same time; how many are right."""
    written, copied, right = queue.Queue(), queue.Queue(), []

    def write():
        for number in range(blocks):
            prefill("prefill", "first", number)
            written.put(number)
        written.put(None)

    def read():
        while (number := copied.get()) is not None:
            right.append(decode("decode", "first", number))

    threads = [threading.Thread(target=write), threading.Thread(target=read)]
    for thread in threads:
        thread.start()
    while (number := written.get()) is not None:
        off = number * BLOCK
        if zrs_mem.copy(source, target, BLOCK, off, off) != BLOCK:
            sys.exit(f"block {number} was not copied")
        copied.put(number)
    copied.put(None)
    for thread in threads:
        thread.join()
    return sum(right)


def abort(source, target, storage, blocks):
    """Begins a copy of all blocks and gives it up; how many bytes had landed then."""
    size = blocks * BLOCK
    key = zrs_mem.derive(target, storage, zrs_mem.WRITE, 0, size)
    by_key = zrs_mem.opened(key)
    began, done = threading.Event(), []

    def copy():
        landed = 0
        try:
            while landed < size:
                began.set()
                landed += os.copy_file_range(source, by_key, size - landed, landed, landed)
        except OSError as e:
            print(f"the copy ends: {e.strerror}", flush=True)
        done.append(landed)

    thread = threading.Thread(target=copy)
    thread.start()
    began.wait()
    time.sleep(0.02)
    if "no-revoke" not in os.environ.get("KV_CACHE_BREAK", ""):  # only to see the test fail
        zrs_mem.revoke(target, key)
        thread.join()
    os.close(by_key)
    return thread, done


def route(prefill_at, decode_at, blocks):
    prefill, decode = Remote(prefill_at), Remote(decode_at)
    source_id, target_id = prefill("room", blocks), decode("room", blocks)
    source, target = zrs_mem.opened(source_id), zrs_mem.opened(target_id)
    right = pipeline(prefill, decode, source, target, blocks)
    print(f"{right} of {blocks} blocks are right at the decode worker", flush=True)

    # On a busy machine a copy may be at its end before it is given up.
    for _ in range(20):
        thread, done = abort(source, target, target_id, blocks)
        if done != [blocks * BLOCK]:
            break
    # Another request has the blocks now.
    for number in range(blocks):
        decode("prefill", "second", number)
    time.sleep(0.5)
    kept = sum(decode("decode", "second", number) for number in range(blocks))
    thread.join()
    print(f"aborted after {done[0]} of {blocks * BLOCK} bytes", flush=True)
    print(f"{kept} of {blocks} blocks of the next request are untouched", flush=True)
    sys.exit(right != blocks or kept != blocks)


def main():
    if len(sys.argv) == 4 and sys.argv[1] == "worker":
        Worker(sys.argv[2]).serve(sys.argv[3])
    elif len(sys.argv) in (4, 5) and sys.argv[1] == "router":
        route(sys.argv[2], sys.argv[3], int(sys.argv[4]) if len(sys.argv) == 5 else 16)
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
