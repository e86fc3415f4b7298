"""Stands in for a worse machine: refuses system calls as a container's filter does, then becomes the given program.

usage: stand_in.py RULES PROGRAM [ARG...]
RULES is a JSON list of [number, errno, mask]; with a mask that is not 0 only calls whose first argument has one of
its bits are refused. Nothing else is changed, so the program sees the machine as it is but for the refusals.
"""

import ctypes
import json
import os
import struct
import sys

LOAD, EQUAL, ANY_BIT, RETURN = 0x20, 0x15, 0x45, 0x06
NUMBER, FIRST_ARGUMENT = 0, 16
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, MODE_FILTER = 22, 38, 2

code = [(LOAD, 0, 0, NUMBER)]
for number, error, mask in json.loads(sys.argv[1]):
    if mask:
        code.append((EQUAL, 0, 4, number))
        code.append((LOAD, 0, 0, FIRST_ARGUMENT))
        code.append((ANY_BIT, 0, 1, mask))
        code.append((RETURN, 0, 0, ERRNO | error))
        code.append((LOAD, 0, 0, NUMBER))
    else:
        code.append((EQUAL, 0, 1, number))
        code.append((RETURN, 0, 0, ERRNO | error))
code.append((RETURN, 0, 0, ALLOW))

program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *line) for line in code))
header = struct.pack("HxxxxxxQ", len(code), ctypes.addressof(program))
libc = ctypes.CDLL(None, use_errno=True)
# Root may install a filter as it is, and in a container it does not lose the powers of setuid programs either.
if os.geteuid() != 0 and libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0:
    raise OSError(ctypes.get_errno(), "no_new_privs")
if libc.prctl(PR_SET_SECCOMP, MODE_FILTER, ctypes.create_string_buffer(header)) != 0:
    raise OSError(ctypes.get_errno(), "seccomp")
os.execv(sys.argv[2], sys.argv[2:])
