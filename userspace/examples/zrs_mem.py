# SPDX-License-Identifier: GPL-2.0
"""Regions of memory nodes for Python, by nothing but the calls of /dev/zrs.

A region is a file descriptor: os.pread(), os.pwrite(), os.copy_file_range() and os.close() do the rest. A storage id
is a text, as the command zrs prints it: whoever has it may do all that its key allows.
"""
import base64
import fcntl
import os
import struct

READ, WRITE, GRANT, FREE = 1, 2, 4, 8  # rights
KEEP = 1  # the region stays when its descriptor is closed

# struct zrs_mem_storage: va, len, and the key: region, gen, secret
_STORAGE = struct.Struct("<QQIIQ")


def _request(direction, number, size):
    return direction << 30 | size << 16 | 0xE7 << 8 | number


_ALLOC = _request(3, 0x12, 96)
_OPEN = _request(1, 0x13, 56)
_KEY = _request(3, 0x51, 48)
_UNKEY = _request(3, 0x52, 48)
_SEAL = 0xE753
_FREE = 0xE754


def _split(storage):
    node, digits = storage.removeprefix("zrs:").split("/")
    domain, number = ([0] + [int(part) for part in node.split(":")])[-2:]
    return (domain, number), base64.b32decode(digits.upper() + "====")


def _join(node, storage):
    digits = base64.b32encode(storage).decode().rstrip("=").lower()
    name = f"{node[0]}:{node[1]}" if node[0] else str(node[1])
    return f"zrs:{name}/{digits}"


def _device(number, request):
    device = os.open("/dev/zrs", os.O_RDWR | os.O_CLOEXEC)
    try:
        return fcntl.ioctl(device, number, request)
    finally:
        os.close(device)


def alloc(node, length, flags=0, admission=b""):
    """A new region of a node (domain, number), of zeroes: its descriptor and its storage id."""
    request = bytearray(struct.pack("<IIQQII16s32s16s", *node, length, 0, flags, 0, admission, b"", b""))
    region = _device(_ALLOC, request)
    return region, _join(node, bytes(request[48:80]))


def opened(storage):
    """The descriptor of a region."""
    node, data = _split(storage)
    return _device(_OPEN, bytearray(struct.pack("<II32s16s", *node, data, b"")))


def _of_key(rights, uses, off, length, ttl_ms, key):
    return bytearray(struct.pack("<IIQQII16s", rights, uses, off, length, ttl_ms, 0, key))


def derive(region, storage, rights, off, length, uses=0, ttl_ms=0):
    """A storage id for a part of a region, which allows no more than these rights."""
    node, data = _split(storage)
    request = _of_key(rights, uses, off, length, ttl_ms, b"")
    fcntl.ioctl(region, _KEY, request)
    va = _STORAGE.unpack(data)[0]
    return _join(node, struct.pack("<QQ", va + off, length) + bytes(request[32:48]))


def revoke(region, storage):
    """Revokes the key of a storage id: when this returns, nothing lands any more that it let in."""
    fcntl.ioctl(region, _UNKEY, _of_key(0, 0, 0, 0, 0, _split(storage)[1][16:]))


def seal(region):
    """Nothing writes the region any more, and nothing lands when this returns."""
    fcntl.ioctl(region, _SEAL)


def free(region):
    """Frees the region: nothing lands when this returns."""
    fcntl.ioctl(region, _FREE)


def copy(source, target, length, source_off=0, target_off=0):
    """os.copy_file_range() until all is copied: the source's node writes to the target's."""
    done = 0
    while done < length:
        n = os.copy_file_range(source, target, length - done, source_off + done, target_off + done)
        if n == 0:
            break
        done += n
    return done
