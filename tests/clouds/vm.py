"""`make test-vm`: a Debian in QEMU, set up by our user data as a cloud's machine is, and entered as we enter one.

Needs root (for the guest's files), qemu-system-x86, mmdebstrap and genisoimage. It takes some minutes; less with
ACCEL=kvm, where that works. The guest reaches nothing; only its port 22 is forwarded to a loopback address.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from blueprints.accounts import access
from blueprints.amounts import Amounts
from blueprints.answers import Answer, Failed, Ready, Wait
from blueprints.cloud import guest
from blueprints.cloud.config import CloudConfig, ImageWords
from blueprints.hostshell import HostShell
from blueprints.specs import BlueprintView, ResourceView, Spec
from blueprints.userdata import READY_MARK, user_data
from interfaces.keys import KeyPair, new_key_pair
from tests.interfaces.sshd import free_port

USER = "drydock"
PROGRAMS = {"qemu-system-x86_64": "qemu-system-x86", "mmdebstrap": "mmdebstrap", "genisoimage": "genisoimage",
            "mke2fs": "e2fsprogs"}  # fmt: skip
GUEST = ("linux-image-cloud-amd64", "systemd-sysv", "dbus", "cloud-init", "openssh-server", "sudo", "ifupdown",
         "isc-dhcp-client", "iproute2", "e2fsprogs")  # fmt: skip
MEMORY = "1024"
ACCEL = os.environ.get("ACCEL", "tcg,thread=multi")
PATIENCE = 1800.0
"""Seconds for its first boot, which an emulated processor needs up to."""


def main() -> int:
    """Build, boot, enter, look; the exit status."""
    if missing := sorted(package for program, package in PROGRAMS.items() if not shutil.which(program)):
        print(f"Missing here: {', '.join(missing)} (apt install {' '.join(missing)}).", file=sys.stderr)
        return 2
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is below is cleared away
    folder = Path(tempfile.mkdtemp(prefix="drydock-vm-", dir="/var/tmp"))
    try:
        return _run(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _run(folder: Path) -> int:
    control, host = new_key_pair("drydock"), new_key_pair("drydock-host")
    ends_at = dt.datetime.now(dt.UTC) + dt.timedelta(hours=2)
    text = user_data(user=USER, public_key=control.public, host_key=host, ends_at=ends_at, also={"runcmd": ["true"]})
    _say("a Debian is put together")
    _disk(folder)
    _seed(folder, text)
    with _machine(folder) as port:
        spec = _spec(port, control, host)
        answer = _reached(spec)
        if not isinstance(answer, Ready):
            print(f"It never let us in: {answer}\n{(folder / 'console').read_text(errors='replace')[-3000:]}")
            return 1
        broken = [what for what, holds in _promises(access.shell(spec), control, host) if not _promise(what, holds)]
    return 1 if broken else 0


def _say(text: str) -> None:
    print(f"{time.strftime('%H:%M:%S')}  {text}", flush=True)


def _promise(what: str, holds: bool) -> bool:
    _say(f"{'yes' if holds else 'NO '} {what}")
    return holds


def _promises(shell: HostShell, control: KeyPair, host: KeyPair) -> Iterator[tuple[str, bool]]:
    def told(command: str) -> str:
        return shell.run(command).strip()

    yield "we are its control account", told("id -un") == USER
    yield "which may become root", told("sudo -n id -u") == "0"
    yield "its first boot has left our mark", told(f"test -e {READY_MARK} && echo yes") == "yes"
    key = told("sudo -n cat /etc/ssh/ssh_host_ed25519_key.pub").split()[:2]
    yield "its host key is the one that we gave it", key == host.public.split()[:2]
    others = told("ls /etc/ssh/ssh_host_*_key | grep -v ed25519 || true")
    yield "it has no other", not others
    yield "only our key opens the account", told("cat ~/.ssh/authorized_keys").count("ssh-") == 1
    yield "nobody enters by password", "passwordauthentication no" in told("sudo -n sshd -T | tr A-Z a-z")
    yield "its dead man's switch is set", "drydock-end" in told("systemctl list-timers --all --no-pager")


def _spec(port: int, control: KeyPair, host: KeyPair) -> Spec:
    config = CloudConfig(credential="vm", image=ImageWords(), user=USER, ssh_port=port)
    blueprint = BlueprintView(id=1, name="vm", kind="vm", generation=1, config=config)
    facts = {"address": "127.0.0.1", "port": port, "user": USER, "host_keys": [host.public]}
    resource = ResourceView(
        id=1, key="dd-vm-1-r1", name="vm", type="host", origin="built", blueprint=blueprint, attributes={},
        capacity=Amounts(), facts=facts, secrets={"private_key": control.private},
    )  # fmt: skip
    return Spec(phase="build", key=resource.key, resource=resource)


def _reached(spec: Spec) -> Answer:
    """By the step that a build takes, until it is ready or has failed."""
    end, said = time.monotonic() + PATIENCE, ""
    while True:
        answer = guest.reach(spec, {})
        if isinstance(answer, (Ready, Failed)) or time.monotonic() > end:
            return answer
        if isinstance(answer, Wait) and answer.sentence != said:
            said = answer.sentence
            _say(said)
        time.sleep(5)


def _disk(folder: Path) -> None:
    root = folder / "root"
    quiet = ["--quiet", "--variant=apt", f"--include={','.join(GUEST)}", '--aptopt=Acquire::Languages "none"']
    _command("mmdebstrap", *quiet, "bookworm", str(root))
    (root / "etc" / "fstab").write_text("/dev/vda / ext4 defaults 0 1\n")
    config = "datasource_list: [NoCloud]\nlocale: false\n"  # it has none to choose from
    (root / "etc" / "cloud" / "cloud.cfg.d" / "90_drydock.cfg").write_text(config)
    for name in ("vmlinuz", "initrd.img"):
        shutil.copy(next((root / "boot").glob(f"{name}-*")), folder / name)
    _command("mke2fs", "-q", "-t", "ext4", "-d", str(root), str(folder / "disk"), "3G")
    shutil.rmtree(root)


def _seed(folder: Path, text: str) -> None:
    (folder / "user-data").write_text(text)
    (folder / "meta-data").write_text(json.dumps({"instance-id": "dd-vm-1", "local-hostname": "guest"}))
    names = [str(folder / name) for name in ("user-data", "meta-data")]
    _command(
        "genisoimage", "-quiet", "-output", str(folder / "seed.iso"), "-volid", "cidata", "-joliet", "-rock", *names
    )


def _command(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, timeout=1200)
    if done.returncode:
        raise RuntimeError(f"{words[0]} failed: {done.stderr.strip()[-1500:]}")


@contextlib.contextmanager
def _machine(folder: Path) -> Iterator[int]:
    """It runs; the port of this machine that leads to its SSH server."""
    port = free_port("127.0.0.1")
    line = "root=/dev/vda rw console=ttyS0 net.ifnames=0 ds=nocloud"
    command = [
        "qemu-system-x86_64", "-accel", ACCEL, "-cpu", "max", "-m", MEMORY, "-device", "virtio-rng-pci", "-nodefaults",
        "-display", "none", "-serial", f"file:{folder / 'console'}", "-kernel", str(folder / "vmlinuz"), "-initrd",
        str(folder / "initrd.img"), "-append", line, "-no-reboot",
        "-drive", f"file={folder / 'disk'},if=virtio,format=raw",
        "-drive", f"file={folder / 'seed.iso'},if=virtio,format=raw,readonly=on",
        "-netdev", f"user,id=n,restrict=on,hostfwd=tcp:127.0.0.1:{port}-:22", "-device", "virtio-net-pci,netdev=n",
    ]  # fmt: skip
    _say(f"it boots; 127.0.0.1:{port} leads to it")
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    try:
        yield port
    finally:
        process.kill()
        process.communicate()


if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "drydock.settings")
    sys.exit(main())
