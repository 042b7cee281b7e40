"""The kind storage: conformance, its limits, what hostile leases try, and what is left after them."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from blueprints.amounts import Amounts
from blueprints.answers import Failed, Json, Wait
from blueprints.layered.storage.kind import Storage
from blueprints.layered.usage import Allowance
from blueprints.specs import LeaseView, ResourceView
from blueprints.testing.conformance import Outside
from blueprints.testing.outcome import Mishap
from interfaces.command import Command
from interfaces.errors import PathEscape, QuotaExceeded
from interfaces.filesystem import Filesystem
from tests.blueprints.layered_peers import Machine, OnMachine
from tests.blueprints.layered_peers import any_machine as machine

__all__ = ["machine"]

NAMES = ("", "zero", "ünï cödé ☃", "two\nlines", "-rf", "*", "'; rm -rf ~ #", ".hidden", "a" * 200)


class StorageBench(OnMachine):
    """How to look at storages on this machine."""

    kind = Storage()
    limit = "auto"

    def config(self) -> Json:
        return {"limit": self.limit, "disk_mib": 8, "max_disk_mib": 64}

    def requirements(self) -> Json:
        return {"disk_mib": 4}

    def impossible(self) -> Json:
        return {"disk_mib": 65}

    def amounts(self) -> Amounts:
        return Amounts(disk_mib=8)

    def outside(self) -> Sequence[Outside]:
        found = [each for home in self.machine.homes for each in home.iterdir() if each.name.startswith("conf-")]
        mounts = [line.split()[4] for line in Path("/proc/self/mountinfo").read_text().splitlines()]
        over = [point for point in mounts if point.startswith(f"{self.machine.folder}/")]
        return sorted(
            [Outside(name=each.name) for each in found] + [Outside(name=f"mount {Path(point).name}") for point in over],
            key=lambda thing: thing.name,
        )

    def kill(self, resource: ResourceView) -> None:
        folder = Path(resource.facts["folder"])
        os.system(f"umount -l {folder} 2>/dev/null")
        if folder.exists():
            folder.rmdir()

    def access_of(self, lease: LeaseView) -> Sequence[str]:
        return self.machine.processes()

    def litter(self, lease: LeaseView) -> None:
        command, files = self.opened(lease)
        for name in NAMES:
            if name:
                files.write_bytes(name, b"")
        files.mkdir("folder/in/folder")
        command.check("mkfifo pipe; ln -s /etc out; mkdir shut; touch shut/file; chmod 0 shut")
        command.run("echo x >../beside")
        command.check('touch /tmp/dd-litter-"$(id -u)"' if self.machine.own_account else "true")
        command.check("(setsid sleep 1000 &) >/dev/null 2>&1")
        command.check("(cd /; env -i setsid sleep 1001 &) >/dev/null 2>&1" if self.machine.own_account else "true")

    def left_by(self, lease: LeaseView) -> Sequence[str]:
        folder = Path(lease.resource.facts["folder"])
        around = [each.name for each in folder.parent.iterdir() if not each.name.startswith((folder.name, ".ssh"))]
        around += [each.name for each in Path("/tmp").glob(f"dd-litter-{self.machine.uid}")]
        return [each.name for each in folder.iterdir()] + around + self.machine.processes()

    def opened(self, lease: LeaseView) -> tuple[Command, Filesystem]:
        command, files = lease.interface("command"), lease.interface("filesystem")
        assert isinstance(command, Command)
        assert isinstance(files, Filesystem)
        return command, files


class TestStorage(StorageBench):
    """With a limit that the kernel keeps where it can be had."""

    def test_the_lease_says_how_its_size_is_kept(self) -> None:
        lease = self.activated(self.lease(self.built()))
        assert lease.facts["limit"] == ("loop" if self.machine.own_account else "checked")
        assert lease.facts["disk_mib"] == 8
        self._end(lease)

    def test_the_kernel_refuses_what_is_too_much_and_less_then_fits_again(self) -> None:
        if not self.machine.own_account:
            pytest.skip("needs a way from outside")
        lease = self.activated(self.lease(self.built()))
        command, files = self.opened(lease)
        files.write_bytes("most", bytes(7 << 20))
        with pytest.raises(QuotaExceeded):
            files.write_bytes("more", bytes(6 << 20))
        assert "No space" in command.run("cat /dev/zero >more").error_text
        files.remove("most")
        files.remove("more")
        files.write_bytes("more", bytes(6 << 20))
        self._end(lease)

    def test_a_file_system_that_a_reboot_took_away_is_mounted_again_with_what_was_in_it(self) -> None:
        resource, folder = self.unmounted_behind_its_back()
        assert not (folder / "kept").exists()
        self.ready("check", resource)
        assert (folder / "kept").read_text() == "kept"
        assert os.path.ismount(folder)
        lease = self.lease(resource)
        assert "No space" in self.opened(lease)[0].run("cat /dev/zero >more").error_text
        loop_devices = subprocess.run(["losetup", "-j", f"{folder}.img"], capture_output=True, text=True).stdout
        assert len(loop_devices.splitlines()) == 1
        self._end(lease)

    def test_it_is_not_gone_as_long_as_something_in_it_is_open(self) -> None:
        """What a process of another account has open there keeps the disk; the account's own are ended before."""
        if not self.machine.own_account:
            pytest.skip("needs a way from outside")
        resource = self.built()
        lease = self.activated(self.lease(resource))
        self.opened(lease)[1].write_text("kept", "kept")
        folder = Path(lease.facts["folder"])
        with (folder / "kept").open():
            outcome = self.run("destroy", resource, mishap=Mishap(does="stop", at=1))
            assert isinstance(outcome.answer, Wait)
            assert Path(f"{folder}.img").exists()
            assert self.devices(folder)
        self.destroyed(resource)
        assert not Path(f"{folder}.img").exists()
        assert not self.devices(folder)

    def devices(self, folder: Path) -> list[str]:
        """The loop devices of a storage's image, whether or not the file has a name still."""
        shown = subprocess.run(["losetup", "-a"], capture_output=True, text=True, check=True).stdout
        return [line for line in shown.splitlines() if f"{folder}.img" in line]

    def test_what_a_lease_wrote_does_not_come_back_with_the_file_system(self) -> None:
        resource, folder = self.unmounted_behind_its_back()
        for phase in ("deactivate", "clean"):
            self.ready(phase, resource, self.lease(resource))
        lease = self.activated(self.lease(resource))
        assert os.path.ismount(folder)
        assert not list(folder.iterdir())
        self._end(lease)

    def test_an_image_that_is_not_roots_own_is_never_mounted(self) -> None:
        resource, folder = self.unmounted_behind_its_back()
        image, aside = Path(f"{folder}.img"), Path(f"{folder}.aside")
        image.rename(aside)
        for swap in (lambda: image.symlink_to(aside), lambda: os.link(aside, image), self.forger(aside, image)):
            swap()
            answer = self.run("check", resource).answer
            assert isinstance(answer, Failed)
            assert answer.code == "unmounted"
            assert "image" in answer.message
            assert not os.path.ismount(folder)
            image.unlink()
        aside.rename(image)
        self._end(self.lease(resource))

    def forger(self, true: Path, false: Path) -> Callable[[], None]:
        """Puts the same bytes there, as somebody else's."""

        def forge() -> None:
            shutil.copy(true, false)
            os.chown(false, 65534, -1)

        return forge

    def unmounted_behind_its_back(self) -> tuple[ResourceView, Path]:
        """A storage with a file in it whose file system is gone, as after a reboot."""
        if not self.machine.own_account:
            pytest.skip("needs a way from outside")
        resource = self.built()
        lease = self.activated(self.lease(resource))
        self.opened(lease)[1].write_text("kept", "kept")
        folder = Path(lease.facts["folder"])
        subprocess.run(["umount", folder], check=True)
        return resource, folder

    def test_paths_and_links_do_not_lead_out_of_the_folder(self) -> None:
        lease = self.activated(self.lease(self.built()))
        command, files = self.opened(lease)
        command.check("ln -s / root; ln -s ../.. up")
        for path in ("../x", "/etc/passwd", "root/etc/passwd", "up/x", "a/../../x"):
            with pytest.raises(PathEscape):
                files.read_bytes(path)
            with pytest.raises(PathEscape):
                files.write_bytes(path, b"")
        self._end(lease)

    def test_commands_begin_in_the_folder_with_the_account_of_the_host_lease(self) -> None:
        lease = self.activated(self.lease(self.built()))
        command, files = self.opened(lease)
        folder = lease.facts["folder"]
        assert command.check("pwd; echo $HOME; id -u").text.split() == [folder, folder, str(self.machine.uid)]
        assert files.root == folder
        self._end(lease)

    def test_whose_account_is_shared_is_not_reused(self) -> None:
        resource = self.built()
        assert self.kind.reusable_after(self.lease(resource)) is self.machine.own_account
        self.destroyed(resource)

    def test_without_its_host_lease_it_is_gone_already(self) -> None:
        resource = self.built()
        orphan = replace(resource, parents={})
        self.ready("destroy", orphan)
        assert self.run("check", orphan).ended == "failed"
        self.destroyed(resource)


class TestCheckedStorage(StorageBench):
    """With a limit that is only looked at."""

    limit = "checked"

    def test_a_write_that_is_too_much_is_refused_clearly_and_leaves_nothing(self) -> None:
        lease = self.activated(self.lease(self.built()))
        _, files = self.opened(lease)
        files.write_bytes("most", bytes(6 << 20))
        with pytest.raises(QuotaExceeded, match="8 MiB"):
            files.write_bytes("more", bytes(3 << 20))
        assert [each.name for each in files.list()] == ["most"]
        files.remove("most")
        files.write_bytes("more", bytes(3 << 20))
        self._end(lease)

    def test_what_commands_write_too_much_is_found_by_the_check(self) -> None:
        lease = self.activated(self.lease(self.built()))
        command, _ = self.opened(lease)
        command.check("head -c 9000000 /dev/urandom >big")
        after = self.run("check", lease.resource)
        assert isinstance(after.answer, Failed)
        assert after.answer.code == "over_limit"
        self._end(lease)

    def test_a_limit_that_must_be_enforced_is_refused_where_it_cannot_be(self) -> None:
        assert not list(self.kind.drafts(self.blueprint().config, self.asked({"limit": ["loop"]})))


def test_a_size_that_the_disk_does_not_have_is_a_clear_failure(machine: Machine) -> None:
    if not machine.own_account:
        pytest.skip("needs a way from outside")
    bench = _bench(machine, {"limit": "loop", "max_disk_mib": 1 << 40, "disk_mib": 1 << 26})
    outcome = bench.run("build", bench.resource(bench.kind.drafts(bench.blueprint().config, None)[0]))
    assert isinstance(outcome.answer, Failed)
    assert outcome.answer.code == "disk_full"
    assert not [each for home in machine.homes for each in home.iterdir() if ".img" in each.name]
    bench.destroyed(outcome.spec.resource)


def test_measuring_happens_again_before_a_write_is_refused() -> None:
    asked: list[int] = []

    class Shrinking:
        def check(self, words: Sequence[str], *, timeout: float) -> object:
            asked.append(1)
            return type("Result", (), {"text": "1024" if len(asked) == 1 else "0"})

    allowance = Allowance(Shrinking(), "/x", 2)  # type: ignore[arg-type]
    allowance(1 << 20)
    allowance(1 << 20)
    assert len(asked) == 2
    with pytest.raises(QuotaExceeded):
        allowance(3 << 20)


def _bench(machine: Machine, config: Json) -> StorageBench:
    bench = StorageBench()
    bench.machine, bench.leased = machine, {}
    bench.config = lambda: config  # type: ignore[method-assign]
    return bench
