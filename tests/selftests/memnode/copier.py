#!/usr/bin/python3
"""Copies a region to another one again and again, until that fails.
  copier.py SOURCE TARGET    (storage ids)
Says "copying" after the first copy, and the errno of the failure, by its name.
"""
import errno
import os
import sys

sys.path.insert(0, "/zrs/userspace/examples")
from zrs_mem import opened


source, target = opened(sys.argv[1]), opened(sys.argv[2])
size = os.fstat(source).st_size
short = None
while True:
    try:
        done = os.copy_file_range(source, target, size, 0, 0)
    except OSError as e:
        print(f"ended: {errno.errorcode[e.errno]}, short: {short}", flush=True)
        break
    if done == size:
        print("copying", flush=True)
    else:
        short = done
