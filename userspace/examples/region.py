#!/usr/bin/python3
# SPDX-License-Identifier: GPL-2.0
"""Has one memory node write a file's bytes to another one.
  region.py FROM TO FILE    (nodes as 1:1 and 1:2)
The file is put to the first node, which writes it to the second one; it is read back from there, and compared.
"""
import os
import sys

import zrs_mem


def node(text):
    domain, number = ([0] + [int(part) for part in text.split(":")])[-2:]
    return domain, number


def main():
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    with open(sys.argv[3], "rb") as file:
        data = file.read()
    source, _ = zrs_mem.alloc(node(sys.argv[1]), len(data))
    done = 0
    while done < len(data):
        done += os.pwrite(source, data[done:], done)
    target, storage = zrs_mem.alloc(node(sys.argv[2]), len(data))
    if zrs_mem.copy(source, target, len(data)) != len(data):
        sys.exit("the copy is short")
    # As another program would, with a key that allows no more than this.
    reader = zrs_mem.opened(zrs_mem.derive(target, storage, zrs_mem.READ, 0, len(data)))
    back = b""
    while len(back) < len(data):
        back += os.pread(reader, len(data) - len(back), len(back))
    if back != data:
        sys.exit("the copy differs")
    print(f"{len(data)} bytes went from node {sys.argv[1]} to node {sys.argv[2]}, and are the same")
    zrs_mem.free(source)
    zrs_mem.free(target)


if __name__ == "__main__":
    main()
