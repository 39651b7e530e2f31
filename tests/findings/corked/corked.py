#!/usr/bin/python3
"""10: sendfile() of a file of 11 bytes with a count of 100 to a UDP socket, by IPv4 and by IPv6."""
import os
import socket
import sys
import tempfile


def arrives(family, address):
    """What a datagram socket receives; over loopback it is there when sendfile() returns."""
    with socket.socket(family, socket.SOCK_DGRAM) as server, socket.socket(family, socket.SOCK_DGRAM) as client, \
            tempfile.TemporaryFile() as file:
        server.bind((address, 0))
        server.settimeout(2)
        client.connect(server.getsockname())
        file.write(b"eleven byte")
        file.flush()
        os.sendfile(client.fileno(), file.fileno(), 0, 100)
        try:
            return len(server.recv(200))
        except TimeoutError:
            return None


by4, by6 = arrives(socket.AF_INET, "127.0.0.1"), arrives(socket.AF_INET6, "::1")
print(f"by IPv4 {by4} bytes, by IPv6 {by6 or 'nothing'}")
sys.exit(11 if by4 != 11 else 10 if by6 is None else 0)
