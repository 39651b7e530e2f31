#!/usr/bin/python3
"""Reads the first bytes of regions by remote keys, again and again.
  reader.py REGION...    (storage ids)
Says "reading" when it has read of all.
"""
import itertools
import os
import sys
import time

sys.path.insert(0, "/zrs/userspace/examples")
from zrs_mem import opened

regions = [opened(text) for text in sys.argv[1:]]
for n in itertools.count():
    for region in regions:
        os.pread(region, 5000, 0)
    if n == 0:
        print("reading", flush=True)
    time.sleep(0.2)
