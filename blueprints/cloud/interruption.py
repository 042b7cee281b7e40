"""The program on a spot machine that waits for the notice that the cloud will reclaim the machine.

It polls the metadata service, writes a notice that every process of the guest can read, and runs the hooks that root
has put beside it. A kind supplies the reader: Python source that defines `provider`, the number of seconds between two
polls as `every`, and a function `notice()` that returns None, or the action and its time (ISO 8601, or empty). The
reader may call `ask(path, headers, method, timeout)` and `when(text)`.
"""

from __future__ import annotations

from typing import Any

METADATA = "http://169.254.169.254"
"""The address of the metadata service of EC2, Compute Engine and Azure."""
NOTICE = "/run/drydock/interruption.json"
HOOKS = "/etc/drydock/interruption.d"
PROGRAM = "/etc/drydock/interruption.py"
UNIT = "drydock-interruption.service"

_BEGIN = '''"""Wait until the cloud takes this machine back, write a notice, run the hooks once. Installed by Drydock.

Arguments: address of the metadata service, file of the notice, folder of the hooks."""

import datetime, email.utils, json, os, signal, stat, subprocess, sys, urllib.error, urllib.request

base, file, hooks = sys.argv[1:4]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))


def ask(path, headers, method="GET", timeout=5):
    request = urllib.request.Request(base + path, headers=headers, method=method)
    with opener.open(request, timeout=timeout) as answer:
        return answer.read(65536).decode()


def when(text):
    try:
        return email.utils.parsedate_to_datetime(text).astimezone(datetime.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
    except (TypeError, ValueError):
        return text

'''
_REST = """

def trusted(path, sort):
    it = os.lstat(path)
    return it.st_uid == os.geteuid() and not it.st_mode & 0o022 and sort(it.st_mode)


def write(said):
    with open(file + ".new", "w") as new:
        json.dump(said, new)
    os.chmod(file + ".new", 0o644)
    os.replace(file + ".new", file)


def start(path, environment):
    if not trusted(path, stat.S_ISREG) or not os.access(path, os.X_OK):
        print(path + " is not run: only plain executable files that root alone can change are.", flush=True)
        return []
    try:
        return [subprocess.Popen([path], env=environment, stdin=subprocess.DEVNULL)]
    except OSError as error:
        print(f"{path} cannot be run: {error}", flush=True)
        return []


def run(said):
    if not os.path.isdir(hooks) or not trusted(hooks, stat.S_ISDIR):
        return
    environment = dict(os.environ, DRYDOCK_NOTICE=file, **{"DRYDOCK_" + name.upper(): said[name] for name in said})
    paths = [os.path.join(hooks, name) for name in sorted(os.listdir(hooks))]
    for one in [one for path in paths for one in start(path, environment)]:
        one.wait()


def main():
    # A shutdown may be the first that is heard of it: it is asked once more then, and hooks are not cut short.
    signal.signal(signal.SIGTERM, lambda *_: None)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
    last, ending = "", False
    while not os.path.exists(file):
        found = None
        try:
            found = notice()
        except Exception as error:
            if str(error) != last:
                last = str(error)
                print(f"The metadata service does not answer: {last}", flush=True)
        if found:
            said = {"provider": provider, "action": str(found[0]), "time": str(found[1])}
            write(said)
            print(f"This machine will be reclaimed: {said}", flush=True)
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGTERM])
            return run(said)
        if ending:
            return
        ending = signal.sigtimedwait([signal.SIGTERM], every) is not None


main()
"""

_UNIT = f"""[Unit]
Description=Wait until the cloud takes this machine back (Drydock)
Wants=network-online.target
After=network-online.target

[Service]
ExecStart=/bin/sh -c 'exec "$$(command -v python3 || echo /usr/libexec/platform-python)" -I {PROGRAM} {METADATA} {NOTICE} {HOOKS}'
Restart=on-failure
RestartSec=10
KillMode=mixed
TimeoutStopSec=30
RuntimeDirectory=drydock
RuntimeDirectoryPreserve=yes

[Install]
WantedBy=multi-user.target
"""  # noqa: E501 - a unit's line cannot be broken inside quotes


def program(reader: str) -> str:
    """Return the source of the program, including a kind's reader."""
    return f"{_BEGIN}\n{reader.strip()}\n{_REST}"


def cloud_config(reader: str) -> dict[str, Any]:
    """Return the cloud-config that installs and starts the program.

    The boot neither waits for it nor fails because of it.
    """
    return {
        "write_files": [
            {"path": PROGRAM, "permissions": "0644", "content": program(reader)},
            {"path": f"/etc/systemd/system/{UNIT}", "permissions": "0644", "content": _UNIT},
        ],
        "runcmd": [
            ["mkdir", "-p", "-m", "755", HOOKS],
            ["systemctl", "daemon-reload"],
            ["systemctl", "enable", "--now", "--no-block", UNIT],
        ],
    }
