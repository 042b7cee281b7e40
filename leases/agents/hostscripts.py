"""The shell scripts that install the agent on a host. Root runs them; what they start there has the agent's account.

The account owns its folder, so root writes nothing in it and runs nothing from it.
"""

from __future__ import annotations

NO_PYTHON, OTHER_ACCOUNT, NO_RUNUSER = 70, 71, 72
"""Exit codes of SET_UP."""

_COMMON = """
account=$1 folder=$2; shift 2
file=$folder/program/drydock-agent.pyz
umask 077
cd /
# From here on everything that belongs to the agent is done as its account.
as() { runuser -u "$account" -- env -i PATH=/usr/local/bin:/usr/bin:/bin HOME="$folder" LC_ALL=C "$@"; }
"""

SET_UP = (
    _COMMON
    + f"""
command -v runuser >/dev/null || exit {NO_RUNUSER}
made=no
if ! getent passwd "$account" >/dev/null; then
  shell=/usr/sbin/nologin; [ -e $shell ] || shell=/bin/false
  useradd --system --home-dir "$folder" --no-create-home --shell $shell --user-group "$account" || exit
  made=yes
fi
[ "$(getent passwd "$account" | cut -d: -f6)" = "$folder" ] || exit {OTHER_ACCOUNT}
# A link in its place would lead root elsewhere.
[ ! -L "$folder" ] || exit {OTHER_ACCOUNT}
[ -d "$folder" ] || mkdir -- "$folder" && chown -h -- "$account:" "$folder" && chmod 700 -- "$folder" || exit
python=
for one in /usr/bin/python3 /usr/local/bin/python3 /usr/bin/python3.1[1-9] /usr/local/bin/python3.1[1-9]; do
  [ -x "$one" ] || continue
  as "$one" -I -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && python=$one && break
done
systemd=no; [ -d /run/systemd/system ] && systemd=yes
there=no; as /bin/sh -c '[ -f "$1" ] || [ -f "$2" ]' sh "$file" "$folder/agent.json" && there=yes
echo "made=$made"
echo "there=$there"
echo "systemd=$systemd"
echo "python=$python"
[ -n "$python" ] || exit {NO_PYTHON}
"""
)
"""Create the account and its folder, and find Python. $1: the account, $2: the folder. Prints NAME=VALUE lines."""

COPY = (
    _COMMON
    + """
as "$1" -I -c '
import base64, hashlib, os, sys
path, wanted = sys.argv[1:]
content = base64.b64decode(sys.stdin.buffer.read())
os.makedirs(os.path.dirname(path), mode=0o700, exist_ok=True)
new = path + ".new"
if os.path.lexists(new):
    os.unlink(new)
handle = os.open(new, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o700)
with os.fdopen(handle, "w+b") as opened:
    opened.write(content)
    opened.flush()
    os.fsync(handle)
    opened.seek(0)
    found = hashlib.sha256(opened.read()).hexdigest()
if found != wanted:
    os.unlink(new)
    sys.exit("The file arrived with the SHA-256 " + found + ".")
if os.path.exists(path):
    os.replace(path, path + ".previous")
os.replace(new, path)
' "$file" "$2" || exit
as "$1" -I "$file" check
"""
)
"""Store the program from standard input (base64), verify its SHA-256 and run its self-check, which prints its version.

$3: Python, $4: the SHA-256. The file before is kept.
"""

JOIN = (
    _COMMON
    + """
IFS= read -r code
# The code and the certificates come on standard input, because every account of the host can read arguments.
ca=
if [ "$3" = yes ]; then
  as tee "$folder/ca.pem" >/dev/null || exit
  ca="--ca $folder/ca.pem"
fi
printf '%s\\n' "$code" | as "$1" -I "$file" join "$2" --code - --state "$folder" $ca
"""
)
"""Join the server. $3: Python, $4: the server's address, $5: whether certificates follow the code on standard input."""

STATUS = _COMMON + 'as "$1" -I "$file" status --state "$folder" 2>/dev/null; true\n'
"""Print what the agent knows about its membership. $3: Python."""

ONCE = _COMMON + 'as "$1" -I "$file" once --state "$folder"\n'
"""Report once. $3: Python."""

START = r"""
unit=/etc/systemd/system/drydock-agent.service
[ ! -e $unit ] || cp -p $unit $unit.previous || exit
cat >$unit.new && chmod 644 $unit.new && mv -f $unit.new $unit || exit
systemctl daemon-reload && systemctl enable --quiet drydock-agent.service && systemctl restart drydock-agent.service
"""
"""Install the unit from standard input, and start it."""

RESTORE = (
    _COMMON
    + """
as test -f "$file.previous" || exit 0
as mv -f "$file.previous" "$file" || exit
unit=/etc/systemd/system/drydock-agent.service
[ ! -e $unit.previous ] || { mv -f $unit.previous $unit && systemctl daemon-reload; }
[ ! -d /run/systemd/system ] || systemctl try-restart drydock-agent.service
"""
)
"""Put the file before back in its place."""

STOP = r"""
if [ -d /run/systemd/system ] && [ -e /etc/systemd/system/drydock-agent.service ]; then
  systemctl disable --quiet --now drydock-agent.service
  rm -f /etc/systemd/system/drydock-agent.service /etc/systemd/system/drydock-agent.service.previous
  systemctl daemon-reload
fi
[ "$(getent passwd "$1" | cut -d: -f6)" = "$2" ] || exit 0
uid=$(id -u "$1") || exit
[ "$uid" != 0 ] || exit
# The agent may have been started without systemd. Each kill reaches all processes of the account at once.
rounds=20
while :; do
  left=$(echo /proc/[0-9]*/task/[0-9]*/status |
    xargs grep -lsE "^Uid:([[:space:]][0-9]+)*[[:space:]]$uid([[:space:]]|\$)" |
    xargs -r grep -LsE '^State:[[:space:]]+[ZX]')
  [ -n "$left" ] && [ $rounds -gt 0 ] || break
  rounds=$((rounds - 1))
  runuser -u "$1" -- /bin/sh -c 'kill -s KILL -- -1'
  sleep 0.1
done
[ -z "$left" ] && echo ended || echo left
"""
"""Stop and remove the unit, and end the agent. $1: the account, $2: the folder.

Prints `ended`, `left` if processes remain, or nothing if the account is missing or belongs to something else.
"""

REMOVE_ACCOUNT = 'getent passwd "$1" >/dev/null || exit 0; userdel "$1"\n'
"""Remove the account. $1: the account."""

UNIT = """\
# Installed by Drydock: `drydock agents install`. What is written here is replaced at the next installation.
[Unit]
Description=Drydock agent
After=network-online.target
Wants=network-online.target

[Service]
Type=exec
ExecStart={python} -I {folder}/program/drydock-agent.pyz run --state {folder}
User={account}
Group={account}
StateDirectory=drydock-agent
StateDirectoryMode=0700
WorkingDirectory={folder}
Environment=PYTHONUNBUFFERED=1
UMask=0077
Restart=always
RestartSec=10
# The server does not accept the token any more: only a new code helps.
RestartPreventExitStatus=3
TimeoutStopSec=60

NoNewPrivileges=yes
CapabilityBoundingSet=
AmbientCapabilities=
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
# nvidia-smi opens the devices, and drivers read all of /sys and /proc, so neither is hidden.
ProtectClock=yes
ProtectHostname=yes
ProtectControlGroups=yes
ProtectKernelLogs=yes
ProtectKernelModules=yes
ProtectKernelTunables=yes
RestrictAddressFamilies=AF_INET AF_INET6 AF_UNIX
RestrictNamespaces=yes
RestrictRealtime=yes
RestrictSUIDSGID=yes
LockPersonality=yes
RemoveIPC=yes
SystemCallArchitectures=native
SystemCallFilter=@system-service
SystemCallFilter=~@privileged @resources

[Install]
WantedBy=multi-user.target
"""
"""The systemd unit. Apart from the program it is deploy/systemd/drydock-agent.service."""
