"""Rows about kernel and network state: keyrings, queues, shared memory, sockets, file systems."""

from __future__ import annotations

from blueprints.leftovers.values import Row

_KERNEL = "The kernel stores it per account, and in a shared account it may belong to Drydock or another lease."
_KEY = r"""python3 -c 'import ctypes, platform, sys
what, ring, name = sys.argv[1], int(sys.argv[2]), sys.argv[3].encode()
libc = ctypes.CDLL(None, use_errno=True)
add, keyctl = (248, 250) if platform.machine() == "x86_64" else (217, 219)
libc.syscall.restype = ctypes.c_long
if what == "add":
    if libc.syscall(add, b"user", name, b"left", 4, ring) > 0: raise SystemExit(0)
    print("the kernel refuses: error", ctypes.get_errno())
    raise SystemExit(3)
key = libc.syscall(keyctl, 10, ring, b"user", name, 0)
if what == "undo" and key > 0: libc.syscall(keyctl, 9, key, ring)
raise SystemExit(0 if key > 0 else 1)' """
_QUEUE = r"""python3 -c 'import ctypes, os, sys
what, name = sys.argv[1], b"/" + sys.argv[2].encode()
try: rt = ctypes.CDLL("librt.so.1", use_errno=True); rt.mq_open
except (OSError, AttributeError): rt = ctypes.CDLL(None, use_errno=True)
if what == "add":
    if rt.mq_open(name, os.O_CREAT | os.O_RDWR, 0o600, None) >= 0: raise SystemExit(0)
    print("the kernel refuses:", os.strerror(ctypes.get_errno()))
    raise SystemExit(3)
if what == "undo": rt.mq_unlink(name)
found = rt.mq_open(name, os.O_RDONLY)
raise SystemExit(0 if found >= 0 or ctypes.get_errno() == 13 else 1)' """
_IPC = r"""
m=$(ipcmk -M 4096 -p 600) && q=$(ipcmk -Q -p 600) && s=$(ipcmk -S 1 -p 600) || impossible "ipcmk is refused"
echo "${m##* } ${q##* } ${s##* }"
"""
_IPC_LOOK = r"""
set -- $note
left() { awk -v id="$2" -v uid="$uid" 'NR == 1 { for (n = 1; n <= NF; n++) if ($n == "uid") at = n; next }
  $2 == id && $at == uid { found = 1 } END { exit !found }' "/proc/sysvipc/$1"; }
[ -r /proc/sysvipc/shm ] || impossible "/proc/sysvipc cannot be read"
left shm "$1" || left msg "$2" || left sem "$3"
"""
_LISTENING = r"""
loose setsid python3 -c 'import os, socket, sys, threading, time
name, kind, place = sys.argv[1:]
if kind == "tcp":
    s = socket.socket()
    s.bind(("127.0.0.1", 0))
else:
    s = socket.socket(socket.AF_UNIX)
    os.chdir(os.path.dirname(place))
    s.bind("\0" + name if kind == "abstract" else os.path.basename(place))
    os.chdir("/")
s.listen()
said = str(s.getsockname()[1]) if kind == "tcp" else "here"
with open(place + ".new", "w") as f: f.write(said + "\n")
os.rename(place + ".new", place + ".at")
def serve():
    while True:
        c, _ = s.accept()
        c.sendall(name.encode())
        c.close()
threading.Thread(target=serve, daemon=True).start()
time.sleep(300)' "$t" @KIND@ "$HOME/$t"
n=0; until [ -e "$HOME/$t.at" ] || [ $n -ge 100 ]; do sleep 0.1; n=$((n + 1)); done
cat "$HOME/$t.at" 2>/dev/null || impossible "nothing listens"
"""
_TCP_LOOK = r"""python3 -c 'import socket, sys
try:
    with socket.create_connection(("127.0.0.1", int(sys.argv[2])), 2) as s: said = s.recv(200)
except OSError: raise SystemExit(1)
raise SystemExit(0 if said.decode() == sys.argv[1] else 1)' "$t" "$note" """
# Nothing answers for the file system: whatever looks into it waits until its process is ended.
_FUSE = r"""
[ -r /dev/fuse ] && [ -w /dev/fuse ] || impossible "the account cannot open /dev/fuse"
mkdir -p -- "$HOME/$t"
loose setsid python3 -c 'import array, os, socket, subprocess, sys, time
ours, theirs = socket.socketpair()
program = "fusermount3" if os.system("command -v fusermount3 >/dev/null") == 0 else "fusermount"
mount = subprocess.Popen([program, "--", sys.argv[2]], env={**os.environ, "_FUSE_COMMFD": str(theirs.fileno())},
                         pass_fds=[theirs.fileno()])
_, held, _, _ = ours.recvmsg(1, socket.CMSG_SPACE(4))
time.sleep(300)' "$t" "$HOME/$t"
n=0; until grep -qF "$t" /proc/self/mountinfo || [ $n -ge 30 ]; do sleep 0.1; n=$((n + 1)); done
grep -qF "$t" /proc/self/mountinfo || impossible "fusermount refuses"
"""


def _listening(kind: str) -> str:
    return _LISTENING.replace("@KIND@", kind)


def _key(name: str, ring: int, proves: str) -> Row:
    return Row(
        name=name, proves=proves, plant=f'{_KEY} add {ring} "$t"', look=f'same_uid; {_KEY} look {ring} "$t"',
        undo=f'same_uid; {_KEY} undo {ring} "$t"', tools=("python3",), shared=_KERNEL,
    )  # fmt: skip


KERNEL = (
    _key("user-keyring", -4, "A key in the account's keyring (@u) is removed."),
    _key("user-session-keyring", -5, "A key in the account's session keyring (@us) is removed."),
    Row(name="message-queue", proves="A POSIX message queue is removed.",
        plant=f'{_QUEUE} add "$t"', look=f'{_QUEUE} look "$t"', undo=f'{_QUEUE} undo "$t"', tools=("python3",),
        shared=_KERNEL),
    Row(name="system-v", proves="System V shared memory, queues and semaphores are removed.",
        plant=_IPC, look=_IPC_LOOK, undo='set -- $note; ipcrm -m "$1" -q "$2" -s "$3"', tools=("ipcmk", "ipcrm", "awk"),
        shared=_KERNEL),
    Row(name="unix-socket", proves="A process that listens on a Unix socket is ended.",
        plant=_listening("unix"), look='alive || in_homes "$t"', undo='ended; each_home rm -f "$t" "$t.at"',
        tools=("setsid", "python3")),
    Row(name="abstract-socket", proves="A process that listens on an abstract Unix socket is ended.",
        plant=_listening("abstract"), look='alive || grep -qF "@$t" /proc/net/unix',
        undo='ended; each_home rm -f "$t.at"', tools=("setsid", "python3")),
    Row(name="tcp-port", proves="A process that listens on a port is ended.",
        plant=_listening("tcp"), look=f"alive || {_TCP_LOOK}", undo='ended; each_home rm -f "$t.at"',
        tools=("setsid", "python3")),
    Row(name="fuse", proves="A file system that the lease mounted, and that does not answer, is unmounted.",
        plant=_FUSE, look='alive || grep -qF "$t" /proc/self/mountinfo', undo="ended", tools=("setsid", "python3")),
)  # fmt: skip
