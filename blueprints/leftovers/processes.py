"""Test cases about processes: each is one way in which a process could outlive its lease."""

from __future__ import annotations

from blueprints.leftovers.values import Row

_UNMARKED = "In a shared account, a process without the lease's environment and folder may be Drydock's own."
_THREADS = r"""
loose setsid python3 -c 'import sys, threading, time
for _ in range(4): threading.Thread(target=time.sleep, args=(300,), daemon=True).start()
time.sleep(300)' "$t"
"""
_EXITED_LEADER = r"""
loose setsid python3 -c 'import ctypes, platform, threading, time
threading.Thread(target=time.sleep, args=(300,)).start()
ctypes.CDLL(None).syscall(60 if platform.machine() == "x86_64" else 93, 0)' "$t"
"""
_RESPAWNING = r"""
body='[ "$2" -lt 900 ] || exit 0; sleep 0.3; setsid /bin/sh -c "$0" "$0" "$1" $(($2 + 1)) &'
sleep 0.1 || impossible "sleep takes whole seconds only"
for _ in 1 2 3; do loose setsid /bin/sh -c "$body" "$body" "$t" 0; done
"""
_UNSHARED = r"""
said=$(unshare @WORDS@ true 2>&1) || impossible "namespaces are not allowed: $said"
loose setsid unshare @WORDS@ /bin/sh -c "@FIRST@$life" "$t"
"""
# It takes hold of each process of its own account that begins after it was armed, and never lets it go on.
_TRACER = r"""
case $(cat /proc/sys/kernel/yama/ptrace_scope 2>/dev/null) in
  [123]) impossible "Yama lets no process attach to another that is not its child";;
esac
loose setsid python3 -c 'import ctypes, os, sys, time
libc, armed = ctypes.CDLL(None), sys.argv[2]
def mine():
    found = set()
    for name in os.listdir("/proc"):
        try:
            if name.isdecimal() and os.stat("/proc/" + name).st_uid == os.getuid(): found.add(int(name))
        except OSError: pass
    return found - {os.getpid()}
until = time.monotonic() + 300
while not os.path.exists(armed) and time.monotonic() < until: time.sleep(0.05)
time.sleep(1)
known = mine()
while time.monotonic() < until:
    for pid in mine() - known:
        known.add(pid)
        libc.ptrace(16, pid, None, None)
    time.sleep(0.001)' "$t" "$HOME/.$t"
"""
_OPENED = r"""
mkdir -m 777 -- "$HOME/$t" && chmod 711 -- "$HOME" || exit 1
chmod 777 -- "$HOME/$t"
[ -z "$above" ] || chmod 711 -- "$above" || exit 1
echo "$HOME/$t"
"""
_COPY_ID = r"""
cp -- "$(command -v id)" "$note/id" && chmod 4755 -- "$note/id" && [ -u "$note/id" ] ||
  impossible "the other lease's folder is closed to this one"
echo "$note"
"""
_KEEP_OPEN = r"""
loose setsid /bin/sh -c 'exec 9<"$1/id"
n=0; while [ ! -e "$1/go" ] && [ $n -lt 3000 ]; do sleep 0.1; n=$((n + 1)); done
/proc/self/fd/9 -u >"$1/said.new"; mv "$1/said.new" "$1/said"' "$t" "$note"
n=0; until ls -l /proc/[0-9]*/fd/9 2>/dev/null | grep -qF "$note/id" || [ $n -ge 50 ]; do sleep 0.1; n=$((n + 1)); done
"""
_RUN_OPEN = r"""
: >"$note/go"
n=0; until [ -e "$note/said" ] || [ $n -ge 50 ]; do sleep 0.1; n=$((n + 1)); done
[ "$(cat "$note/said" 2>/dev/null)" = "$uid" ]
"""
_COPY_PYTHON = r"""
cp -- "$(python3 -c 'import os, sys; print(os.path.realpath(sys.executable))')" "$note/python" &&
  chmod 4755 -- "$note/python" && [ -u "$note/python" ] || impossible "the other lease's folder is closed to this one"
echo "$note"
"""
_ONE_THREAD = r"""
loose setsid "$note/python" -I -c 'import ctypes, os, platform, threading, time
number = 117 if platform.machine() == "x86_64" else 147
libc, theirs, ours = ctypes.CDLL(None), os.geteuid(), os.getuid()
if theirs == ours: raise SystemExit(1)
def other():
    libc.syscall(number, theirs, theirs, theirs)
    time.sleep(300)
threading.Thread(target=other, daemon=True).start()
time.sleep(0.2)
libc.syscall(number, ours, ours, ours)
time.sleep(300)' "$t"
"""
_REMOVED = 'rm -rf -- "$note"'


def _unshared(words: str, first: str = "") -> str:
    return _UNSHARED.replace("@WORDS@", words).replace("@FIRST@", first)


PROCESSES = (
    Row(name="background", proves="A background process is ended.",
        plant='loose /bin/sh -c "$life" "$t"', look="alive", undo="ended"),
    Row(name="daemon", proves="A process that forked twice, in a session of its own, is ended.",
        plant='( loose setsid /bin/sh -c \'( /bin/sh -c "$0" "$1" & )\' "$life" "$t" )',
        look="alive", undo="ended", tools=("setsid",)),
    Row(name="unmarked-daemon", proves="A process without the lease's environment and folder is ended.",
        plant='cd /; ( loose env -i PATH="$PATH" setsid /bin/sh -c \'( /bin/sh -c "$0" "$1" & )\' "$life" "$t" )',
        look="alive", undo="ended", tools=("setsid",), shared=_UNMARKED),
    Row(name="stubborn", proves="A process that ignores signals is ended.",
        plant='( trap "" HUP INT QUIT TERM; loose setsid /bin/sh -c "$life" "$t" )',
        look="alive", undo="ended", tools=("setsid",)),
    Row(name="stopped", proves="A stopped process is ended.",
        plant='loose setsid /bin/sh -c \'kill -s STOP $$; eval "$0"\' "$life" "$t"',
        look="alive", undo="ended", tools=("setsid",)),
    Row(name="respawning", proves="Processes that keep restarting themselves are ended.",
        plant=_RESPAWNING, look="alive", undo="ended; sleep 0.5; ended", tools=("setsid",)),
    Row(name="job", proves="A job of the jobs interface is ended, and the next lease does not see it.",
        plant='/bin/sh -c "$life" "$t"', look='alive || in_homes ".drydock/jobs/$t"',
        undo='ended; each_home rm -rf ".drydock/jobs/$t"', job=True),
    Row(name="threads", proves="A process with several threads is ended.",
        plant=_THREADS, look="alive", undo="ended", tools=("setsid", "python3")),
    Row(name="exited-leader", proves="A process whose main thread has exited before its other threads is ended.",
        plant=_EXITED_LEADER, look="alive", undo="ended", tools=("setsid", "python3")),
    Row(name="user-namespace", proves="A process in a user namespace of its own is ended.",
        plant=_unshared("-Ur"), look="alive", undo="ended", tools=("setsid", "unshare")),
    Row(name="pid-namespace", proves="A process hidden in nested process namespaces is ended.",
        plant=_unshared("-Urpf", "exec unshare -Urpf /bin/sh -c '$life' '$t'; "), look="alive", undo="ended",
        tools=("setsid", "unshare")),
    Row(name="mount-namespace", proves="A process in a mount namespace of its own is ended.",
        plant=_unshared("-Urm", "mount -t tmpfs none /mnt && cd /mnt; "), look="alive", undo="ended",
        tools=("setsid", "unshare", "mount")),
    Row(name="setuid-elsewhere", proves="A setuid program in another lease's home gives no access.",
        accomplice=_OPENED, plant=_COPY_ID, look='[ "$("$note/id" -u 2>/dev/null)" = "$uid" ]', undo=_REMOVED,
        tools=("id",), own_account=True, seen_at_once=False),
    Row(name="setuid-descriptor", proves="A deleted setuid program that is kept open gives no access.",
        accomplice=_OPENED, plant=_COPY_ID, after=_KEEP_OPEN, arm='rm -f -- "$note/id"', look=_RUN_OPEN,
        undo=f"ended; {_REMOVED}", tools=("id", "setsid"), own_account=True, seen_at_once=False,
        rests=True),
    Row(name="thread-with-the-uid", proves="A process of another lease with a thread running as the account is ended.",
        accomplice=_OPENED, plant=_COPY_PYTHON, after=_ONE_THREAD, look="alive", undo=f"ended; {_REMOVED}",
        tools=("setsid", "python3"), own_account=True),
    Row(name="tracer", proves="A process that traces all others does not block the cleaning.",
        plant=_TRACER, look="alive", undo="ended", arm=': >"$HOME/.$t"', tools=("setsid", "python3"),
        own_account=True),
)  # fmt: skip
