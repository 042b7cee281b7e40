"""What a tenant may try in order to outlive a lease, as programs for the Python of the machine: what tests run with may
be closed to other accounts."""

from __future__ import annotations

from tests.blueprints import host_peers as peers

PYTHON = "/usr/bin/python3"

DETACHED = """
import ctypes, os, sys, threading, time
libc = ctypes.CDLL(None, use_errno=True)
if os.fork():
    os._exit(0)
os.setsid()
if os.fork():
    os._exit(0)
null = os.open("/dev/null", os.O_RDWR)
for number in range(3):
    os.dup2(null, number)
"""

EXITED_LEADER = (
    DETACHED
    + """
def beat():
    end = time.time() + 60
    while time.time() < end:
        try:
            os.utime(sys.argv[1])
        except OSError:
            pass
        time.sleep(0.05)
with open(sys.argv[1], "w") as sign:
    sign.write(str(os.getpid()))
threading.Thread(target=beat).start()
time.sleep(0.1)
libc.syscall({"x86_64": 60}.get(os.uname().machine, 93), 0)
"""
)
"""A process whose first thread has exited: /proc shows a zombie. A second thread touches the file $1, which
holds the number of the process."""

KEYS = """
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
number = {"x86_64": 250}.get(os.uname().machine, 219)
keyctl = lambda *words: libc.syscall(number, *[ctypes.c_long(word) for word in words])
for ring in (-4, -5):
    if libc.syscall(number - 2, b"user", b"drydock-left", b"secret", 6, ctypes.c_long(ring)) < 0:
        sys.exit("no keys here")
for ring in (-5, -4) if "closed" in sys.argv else ():
    keyctl(15, ring, 60)
    keyctl(5, ring, 0)
"""
"""Leaves a key in both keyrings of the uid; with `closed` ones that nobody may touch for a minute."""

QUEUE = """
import ctypes, os, sys
librt = ctypes.CDLL("librt.so.1", use_errno=True)
flags = os.O_RDWR | os.O_CREAT if "make" in sys.argv else os.O_RDONLY
if librt.mq_open(sys.argv[1].encode(), flags, 0o666, None) < 0:
    sys.exit(os.strerror(ctypes.get_errno()))
"""
"""Opens the POSIX message queue $1, with `make` a new one."""


def words(program: str, *arguments: str) -> list[str]:
    """The exact arguments that run one of these."""
    peers.require(PYTHON)
    return [PYTHON, "-I", "-c", program, *arguments]
