#!/usr/bin/python3
"""Looks for copies of payload in the built module that nobody would see (row Z3).
  copies.py ZRS.KO        (in the root: needs binutils and llvm)
What a program sends and receives is copied by the kernel's _copy_{to,from}_iter() or by the module's own
zrs_helper_copy_payload(), which the selftest copies/traced counts. So nothing else in the module may call
memcpy() or memmove(), or copy in line, with a length that the compiler does not know, except the functions
below. Prints what else does; exit status 1 then.
"""
import re
import subprocess
import sys

ALLOWED = [
    (r"^zrs_helper_copy_payload$", "it is what is traced"),
    (r"^zrs_helper_copy_(to|from)_sockptr$", "options of sockets"),
    (r"DeviceOps>::ioctl$", "devices' names"),
    (r"MemfdPages>::(read|write)$", "a memory node's processor in the node's own memory: no socket's payload"),
    (r"ptr_rotate::<.*directory::Entry>$", "the list of memory nodes"),
    (r"Vec<u8, kernel::alloc::allocator::Kmalloc>>::extend_from_slice$", "messages of memory links"),
    (r"PinnedPages>::(read|write)$", "a region's bytes that go by messages: no socket's payload"),
    (r"NetSettings>::file$", "the name of a setting"),
    (r"(transport::link::Link>::heard|memnode::side::Side>::hears)$", "the peer's hello"),
]
# Functions in which the compiler has put KVec::remove(): a memmove(), never a memcpy().
LISTS = re.compile(r"Pool>::reap$|Ports>::unlisten$|Pools>::untrack_mapped$|::release$|SocketOps>::accept$|"
                   r"::Sock>::accept(::\{closure#\d+\})?$|::Sock>::next_connection$|WorkItem.*>::run$|"
                   r"zrs_main::memnode::|MrPool>::(take|give)$|::NetTable<.*>>::change::<| as .*NetExit>::net_exit$")

lines = subprocess.run(["objdump", "-dr", "--no-show-raw-insn", sys.argv[1]], check=True,
                       capture_output=True, text=True).stdout
lines = subprocess.run(["llvm-cxxfilt"], input=lines, check=True, capture_output=True, text=True).stdout.splitlines()
bad, seen, name, recent = [], 0, "", []
for line in lines:
    start = re.match(r"^[0-9a-f]+ <(.*)>:$", line)
    if start:
        name, recent = start.group(1), []
        continue
    call = re.search(r"R_X86_64_(?:PLT32|PC32)\s+_*(memcpy|memmove)\b", line)
    inline = "rep movs" in line
    if call or inline:
        seen += 1
        # The length: the last thing that was put into it, if that is a number.
        register = r"%[er]cx$" if inline else r"%[er]dx$"
        last = next((text for text in reversed(recent) if re.search(register, text)), "")
        known = re.search(r"mov\s+\$0x[0-9a-f]+,", last)
        what = call.group(1) if call else "rep movs"
        fine = known or any(re.search(rule, name) for rule, _ in ALLOWED)
        if not fine and not (what == "memmove" and LISTS.search(name)):
            bad.append(f"{name}: {what}, of a length it is told ({last.strip()})")
    if line.strip() and "R_X86_64" not in line:
        recent = recent[-12:] + [line]
for text in bad:
    print(text)
print(f"{seen} copies in {len(lines)} lines, {len(bad)} that nobody would see")
sys.exit(1 if bad or not seen else 0)
