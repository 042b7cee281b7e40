"""`make demo-metal`: two machines that QEMU emulates, from unknown servers to erased ones that are off.

Everything is real but the hardware: Drydock's ramdisk boots on virtual media that a Redfish BMC fetches, a Debian image
is written, boots with Secure Boot, and is rescued and erased. Emulated processors are slow; it takes 10 to 25 minutes.
Where that is not possible, the story of `tests.metal.demo` is shown instead.
"""

from __future__ import annotations

import base64
import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from drydock.core import clock
from drydock.demo.demo_output import DemoOutput
from tests import demos, peers
from tests.blueprints.host_peers import free_port
from tests.metal import demo
from tests.metal.deployment import web

PATIENCE = 1500.0
"""Seconds for a phase. Within one, the machine boots up to twice."""
NEEDED = ("qemu", "ovmf", "mmdebstrap", "xorriso", "mtools", "zstd", "sfdisk", "ssh", "swtpm", "swtpm_setup")
ADDRESSES = {"alpha": "127.9.6.11", "beta": "127.9.6.12"}
USER = "drydock"
CANARY = "a file that the first tenant has left"
_LINE = """#!{python}
import os, select, socket, sys
with socket.socket(socket.AF_UNIX) as line:
    line.connect(os.path.join("{folder}", sys.argv[2], "line"))
    os.read(0, 4096)  # the credential, which this line does not need
    while True:
        for ready in select.select([0, line], [], [])[0]:
            content = os.read(0, 65536) if ready == 0 else line.recv(65536)
            if not content:
                sys.exit()
            line.sendall(content) if ready == 0 else os.write(1, content)
"""
"""The operator's program that connects to the serial port of a machine."""


def missing() -> str:
    """Return what this machine lacks for the demo; an empty string if it has everything."""
    if os.geteuid() != 0:
        return "it needs root, because the files of a deployed system belong to its accounts"
    lacking = sorted(peers.PEERS[name].package for name in NEEDED if peers.find(name) is None)
    return f"these Debian packages are missing: {', '.join(lacking)}" if lacking else ""


class QemuDemo:
    """The story."""

    def __init__(self, stage: DemoOutput, boot_port: int, folder: Path) -> None:
        self.stage, self.boot_port, self.folder = stage, boot_port, folder
        self.ids: dict[str, int] = {}
        self._said: dict[str, str] = {}

    def run(self) -> None:
        """From two unknown servers to two that are erased and off."""
        from drydock.cli.toolkit.session import connect_here
        from tests.clouds.world import crew
        from tests.metal import debian, ramdisk
        from tests.metal.debian_guest import image_archive

        self.stage.scene("A ramdisk and a Debian image, built from Debian's packages")
        site = self.folder / "site"
        site.mkdir()
        built = ramdisk.built()
        (site / "ramdisk.iso").symlink_to(built / "ramdisk.iso")
        made = debian.built(built)
        (site / debian.NAME).symlink_to(made / debian.NAME)
        archive = self.folder / "archives/image.tar"
        self.archive = image_archive(archive, made / "busybox")
        archive.rename(archive.with_name(f"{self.archive}.tar"))
        with contextlib.ExitStack() as stack:
            self.site = stack.enter_context(ramdisk.site(site))
            self._machines(stack)
            stack.enter_context(web(self.boot_port))
            self.workers = stack.enter_context(crew())
            self.client = connect_here()
            self._blueprint(site / debian.NAME)
            self.workers.start(1)
            self._enrol()
            lease = self._deploy()
            self._use(lease)
            self._rescue(lease)
            self._end(lease)

    def _machines(self, stack: contextlib.ExitStack) -> None:
        from tests.blueprints.tpm_peers import manufacture
        from tests.bmc.double import redfish_double
        from tests.metal.qemu_machine import qemu_machine

        self.stage.scene("Two servers that are off, each with a BMC that speaks Redfish")
        self.port = next(port for port in iter(lambda: free_port(ADDRESSES["alpha"]), 0))
        self.machines, self.doubles = {}, {}
        for number, (name, address) in enumerate(ADDRESSES.items(), 1):
            about = {"name": name, "serial": f"SN-{name.upper()}", "macs": (f"52:54:00:0d:0d:0{number}",)}
            machine = qemu_machine(
                self.folder / name, address, port=self.port, site=self.site, uefi=True,
                disks={"nvme": 2048, "sata": 64}, **about,
            )  # fmt: skip
            self.machines[name] = stack.enter_context(machine)
            manufacture(self.machines[name].qemu.factory)
            self.doubles[name] = stack.enter_context(redfish_double(self.machines[name]))

    def _blueprint(self, image: Path) -> None:
        from blueprints.models import Blueprint
        from drydock_client.values import BlueprintChange
        from interfaces.keys import new_key_pair
        from tests.metal.qemu_machine import GUEST_SITE

        self.client.add_credential("rack-root", {"private_key": new_key_pair("control").private})
        self.client.add_credential("rack-bmc", self.doubles["alpha"].credential())
        digest = subprocess.run(["sha256sum", image], capture_output=True, text=True, check=True).stdout.split()[0]
        debian = {
            "url": f"http://{GUEST_SITE}/{image.name}", "sha256": digest, "format": "raw.zst",
            "root_device": {"serial": "NVME-DRYDOCK-1"},
        }  # fmt: skip
        ramdisk = {
            "url": f"http://127.0.0.1:{self.site}/ramdisk.iso", "port": self.port, "boot_timeout": PATIENCE,
            "samples": 16,
        }  # fmt: skip
        authorities = "".join(
            (machine.qemu.factory / "ca/issuercert.pem").read_text() for machine in self.machines.values()
        )
        config = {
            "credential": "rack-root", "bmc_credential": "rack-bmc", "min_free_mib": 0, "lease_sudo": True,
            "boot_timeout": PATIENCE, "connect_timeout": 30, "ramdisk": ramdisk, "images": {"debian": debian},
            "attestation": {"tpm": {"ca": authorities}},
        }  # fmt: skip
        made = self.client.add_blueprint("rack", "bare_metal", config, BlueprintChange())
        Blueprint.objects.filter(pk=made.id).update(audience="everyone")
        self.stage.promise("the blueprint is checked without a call", made.enabled, str(made.problems))

    def _enrol(self) -> None:
        self.stage.scene("Both are registered; nobody knows the certificate of beta's BMC")
        for name, double in self.doubles.items():
            known = double.fingerprint if name == "alpha" else ""
            where = {
                "address": ADDRESSES[name], "port": self.port, "user": USER, "name": name,
                "serial": f"SN-{name.upper()}",
                "bmc": {"driver": "redfish", **double.access(), "fingerprint": known},
                "console": {"driver": "command", "program": "line", "address": name},
            }  # fmt: skip
            self.ids[name] = int(self.client.register("rack", where).id)
        self._wait("beta is held", lambda: bool(self._held()))
        self.stage.line(f"the operator is asked: {self._held()}")
        self.stage.promise("nothing was sent to that BMC", not self.doubles["beta"].calls)
        self.client.resolve(resource=self.ids["beta"], yes=True, message="same as on its label")
        self._wait("both are inspected and erased in the ramdisk", lambda: self._all(state="active"))
        self.stage.promise("both are off, without media", self._bare())
        for name in self.ids:
            is_a = self._row(name).attributes
            self.stage.line(f"{name}: {is_a['vendor']} {is_a['model']}, serial number {is_a['serial']}")
        self.stage.promise(
            "both have shown what their TPMs measured", all("tpm" in self._row(one).traits for one in self.ids)
        )

    def _deploy(self) -> Any:
        from leases.allocator import Allocator
        from leases.models import LeaseEvidence

        self.stage.scene("A lease: the image is written. The worker is killed in the middle of that")
        workload = {
            "archive": self.archive, "command": "echo serving; exec httpd -f -p 8080 -h /etc", "ports": ["8080/tcp"],
        }  # fmt: skip
        lease = Allocator(
            "host", owner=self.client.name, exclusive=True, requirements={"image": "debian"}, workload=workload
        ).allocate()
        self._wait("the image is being written", lambda: self._progress("write") >= 5)
        self.workers.kill()
        self.stage.line("the worker is dead; the machine goes on writing, and another worker comes")
        self.workers.start(1)
        self._wait("the lease is active", lambda: self._lease(lease).state == "active")
        self.name = next(name for name in self.ids if self._row(name).used_slots)
        shown = LeaseEvidence.objects.filter(lease=lease.id, kind="tpm").first()
        self.stage.promise(
            "its TPM was asked before, and the evidence is kept with the lease", bool(shown and shown.passed)
        )
        return lease

    def _use(self, lease: Any) -> None:
        self.stage.scene("A command over SSH, with the host key that was in the seed; and the serial console")
        command = lease.interface("command")
        said = command.check(["sh", "-c", "echo $(id -un) on $(. /etc/os-release; echo $PRETTY_NAME)"]).text.strip()
        self.stage.line(said)
        secure = command.check(["sh", "-c", "od -An -j4 -tu1 /sys/firmware/efi/efivars/SecureBoot-*"]).text.strip()
        self.stage.promise("it has booted with Secure Boot", secure == "1", secure)
        command.check(["sh", "-c", f"echo '{CANARY}' > canary; sync"])
        self.stage.promise("what the tenant writes is on the disk", self._on_disk())
        self.stage.promise("its serial console asks for a login", "login:" in self._console(lease))
        self.stage.scene("Its workload: a container as a systemd unit, from an archive whose hash the host has checked")
        units = ["systemctl", "list-units", "--no-legend", "drydock-lease-*"]
        self._wait("its unit runs", lambda: "running" in command.run(units).text)
        self.stage.line(command.check(units).text.strip())
        self.stage.promise("the lease says so", self._workload(lease).unit, str(self._workload(lease)))

    def _workload(self, lease: Any) -> Any:
        found = self.client.lease(lease.id).workload
        assert found is not None
        return found

    def _console(self, lease: Any) -> str:
        part, text = self.client.attach_console(lease.id), b""
        end, sequence = clock.monotonic() + 120, 0
        while b"login:" not in text and clock.monotonic() < end:
            sequence += 1
            self.client.write_console(lease.id, session=part.session, sequence=sequence, content=b"\r")
            part = self.client.read_console(
                lease.id, offset=part.next_offset, session=part.session, revision=part.revision, wait=5.0
            )
            text += base64.b64decode(part.output)
        self.client.detach_console(lease.id, session=part.session)
        return text.decode(errors="replace")

    def _rescue(self, lease: Any) -> None:
        self.stage.scene("A rescue: the owner logs in to the ramdisk as root")
        self._act("rescue")
        about = self._row(self.name).facts["rescue"]
        key, known = self.folder / "key", self.folder / "known"
        key.touch(mode=0o600)
        key.write_text(self.client.private_key(lease.id))
        known.write_text(f"[{about['address']}]:{about['port']} {' '.join(about['host_key'].split()[:2])}\n")
        words = ["ssh", "-F", "/dev/null", "-i", str(key), "-p", str(about["port"])]
        words += ["-o", f"UserKnownHostsFile={known}", "-o", "BatchMode=yes", "-o", "ConnectTimeout=60"]
        script = "mount -o ro /dev/nvme0n1p2 /mnt && grep -rhs . --include=canary /mnt/home /mnt/var; umount /mnt"
        found = subprocess.run(
            [*words, f"{about['user']}@{about['address']}", script], capture_output=True, text=True, timeout=300
        )
        self.stage.promise("the owner reads the disk from the ramdisk", CANARY in found.stdout, found.stderr[-300:])
        self._act("unrescue")
        said = lease.interface("command").check(["echo", "back"]).text.strip()
        self.stage.promise("the system on the disk is back", said == "back")

    def _act(self, name: str) -> None:
        from leases.models import Run

        self.client.start_act(self.ids[self.name], name)
        self._wait(f"the act {name} is done", lambda: not Run.objects.filter(resource=self.ids[self.name]).exists())

    def _end(self, lease: Any) -> None:
        from leases.models import ErasureRecord

        self.stage.scene("Release: the lease is over at once, and the server is erased")
        lease.release()
        self._wait("the lease is over", lambda: self._lease(lease).state == "destroyed")
        self._wait(f"{self.name} is clean", lambda: not self._row(self.name).in_maintenance)
        self.stage.promise("what the tenant left is not on the raw disk", not self._on_disk())
        for one in ErasureRecord.objects.filter(resource_id=self.ids[self.name], lease_id__isnull=False):
            self.stage.line(f"erasure record: {one.disk} {one.serial}, {one.method}, verified: {one.verified}")
            self.stage.promise("the record says that nothing was left", one.verified, one.problem)
        self.stage.promise("both are off, without media", self._bare())
        for id in self.ids.values():
            self.client.change_resource(id, "retire")
        self._wait("both are handed back", lambda: all(self._row(name).gone_at for name in self.ids))
        open_ones = sum(double.sessions for double in self.doubles.values())
        # The killed worker may have been in the middle of a call. BMCs end such a session after their own time.
        what = "no session is left at a BMC, but for the one that the killed worker may have had"
        self.stage.promise(what, open_ones <= 1, str(open_ones))

    def _on_disk(self) -> bool:
        disk, text = self.machines[self.name].qemu.disk("nvme"), CANARY.encode()
        with disk.open("rb") as opened:
            before = b""
            while part := opened.read(16 << 20):
                if text in before + part:
                    return True
                before = part[-len(text) :]
        return False

    def _bare(self) -> bool:
        inserted = [it for machine in self.machines.values() for it in machine.media.values() if it.get("Inserted")]
        return not inserted and all(machine.power_state == "Off" for machine in self.machines.values())

    def _row(self, name: str) -> Any:
        from leases.models import Resource

        return Resource.objects.get(pk=self.ids[name])

    def _lease(self, lease: Any) -> Any:
        from leases.models import Lease

        return Lease.objects.get(pk=lease.id)

    def _all(self, **wanted: Any) -> bool:
        return all(getattr(self._row(name), field) == value for name in self.ids for field, value in wanted.items())

    def _held(self) -> str:
        from leases.models import Run

        found = Run.objects.filter(resource=self.ids["beta"], waits_for="operator").first()
        return found.sentence if found else ""

    def _progress(self, step: str) -> int:
        from leases.models import Run

        found = Run.objects.filter(step=step).first()
        return found.percent or 0 if found else 0

    def _wait(self, what: str, holds: Callable[[], bool]) -> None:
        end = clock.monotonic() + PATIENCE
        while not holds():
            self._tell()
            if clock.monotonic() > end:
                said = "; ".join(f"{name}: {self._row(name).message}" for name in self.ids)
                raise TimeoutError(f"{what}: not within {PATIENCE:.0f} s; {said}")
            clock.sleep(0.5)
        self.stage.promise(what, True)

    def _tell(self) -> None:
        """Print what each run does, once for each step."""
        from leases.models import Run

        for run in Run.objects.exclude(sentence="").filter(phase__in=("build", "activate", "clean", "act")):
            what = f"{run.phase} {run.step}: {run.sentence}"
            if self._said.get(str(run.pk)) != f"{run.phase} {run.step}":
                self._said[str(run.pk)] = f"{run.phase} {run.step}"
                self.stage.line(what[:200])


@contextlib.contextmanager
def _folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="drydock-qemu-", dir="/var/tmp") as folder:
        Path(folder).chmod(0o755)
        commands = Path(folder) / "commands"
        commands.mkdir(mode=0o755)
        (commands / "line").write_text(_LINE.format(python=sys.executable, folder=folder))
        (commands / "line").chmod(0o755)
        (Path(folder) / "archives").mkdir()
        yield Path(folder)


def main() -> int:
    """Run the demo; the exit status."""
    if lacks := missing():
        print(f"Machines that really boot are left out: {lacks}. This is the demo with doubles of machines.")
        return demo.main()
    port = free_port("127.0.0.1")
    with _folder() as folder:
        settings = {
            "DRYDOCK_SWEEP_INTERVAL_SECONDS": "1", "DRYDOCK_VISIBILITY_TIMEOUT_SECONDS": "30",
            "DRYDOCK_STEP_TOKEN_SECONDS": "120", "DRYDOCK_BOOT_URL": f"http://127.0.0.1:{port}",
            "DRYDOCK_BMC_COMMANDS": str(folder / "commands"), "DRYDOCK_ARCHIVES": str(folder / "archives"),
        }  # fmt: skip
        return demos.run(
            "demo-metal", lambda output: QemuDemo(output, port, folder).run(), settings=settings,
            page="docs/kinds/bare_metal.md",
        )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
