"""The kind accelerators passes the suite, with a captured tree on this machine."""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from blueprints.accelerators.kind import Accelerators
from blueprints.answers import Failed, Json, Need
from blueprints.contract import DeclaredAct
from blueprints.specs import BlueprintView, Draft, HostView, LeaseView, ResourceView
from blueprints.testing.conformance import Outside
from drydock.demo import captured
from interfaces.errors import Unreachable
from interfaces.local.restrictions import device_group
from interfaces.transport import Transport
from tests.accelerators.fake_fpga import FPGA, FakeFpga
from tests.accelerators.fake_smi import FRESH, FakeSmi
from tests.blueprints import device_peers
from tests.blueprints.device_peers import Place
from tests.blueprints.layered_peers import Machine, OnMachine, machine

__all__ = ["machine"]

ADDRESS = captured.GPU


class AcceleratorBench(OnMachine):
    """A host with a captured tree."""

    kind = Accelerators()

    @pytest.fixture(autouse=True)
    def _tree(
        self, machine: Machine
    ) -> Iterator[None]:  # not tmp_path: with pytest-xdist, other accounts may not enter it
        self.root = machine.folder / "captured"
        self.cut = False
        self.smi = FakeSmi(machine.folder / "tools")
        self.fpga: FakeFpga | None = None
        self.address = ADDRESS
        self.place: Place | None = None
        if not machine.own_account:
            yield
            return
        with device_peers.place() as self.place:
            self.node = Path(self.place.node(0).path)
            self.before = self.node.stat().st_mode
            yield
            assert self.node.stat().st_mode in (self.before, stat.S_IFCHR | 0o600)

    def config(self) -> Json:
        nodes = {ADDRESS: [str(self.node)]} if self.place else {}
        images = self.fpga.images() if self.fpga else {}
        return {
            "captured": str(self.root), "hosts": ["rack-*"], "nodes": nodes, "tools": str(self.smi.folder),
            "images": images, "setup": ["*"],
        }  # fmt: skip

    def act_arguments(self, act: str) -> Json:
        return {"image": "filter"} if act == "program" else {}

    def seen_of_act(self, resource: ResourceView, act: str) -> Json:
        assert self.fpga is not None
        return {"afu_id": self.fpga.afu.read_text(), "staged": Path("/var/lib/drydock-images").exists()}

    def _prepared(self, act: DeclaredAct) -> ResourceView:
        if not self.place:
            pytest.skip("only root programs an FPGA")
        self.address = FPGA if act.name == "program" else ADDRESS
        return super()._prepared(act)

    def degrade(self, resource: ResourceView) -> bool:
        there = self.root / "drydock-tools/nvidia-smi.out"
        errors = "<dram_uncorrectable>{}</dram_uncorrectable>"
        there.write_text(there.read_text().replace(errors.format(0), errors.format(3)))
        return True

    def requirements(self) -> Json:
        return {"class": "gpu", "model": "P100"}

    def impossible(self) -> Json:
        return {"memory_mib": 1 << 30}

    def outside(self) -> Sequence[Outside]:
        return []

    def host(self, id: int = 7, name: str = "rack-7") -> HostView:
        return HostView(id=id, name=name, blueprint="racks", connect=self._connect)

    def _connect(self) -> Transport:
        if self.cut:
            raise Unreachable("The host does not answer.")
        return self.machine.root() if self.place else self.machine.way(str(self.machine.folder), ())

    def blueprint(self, generation: int = 1) -> BlueprintView:
        hosts = [self.host(), self.host(8, "rack-8"), self.host(9, "other")]
        return replace(
            super().blueprint(generation),
            hosts=lambda id: [host for host in hosts if id in (None, host.id)],
        )  # fmt: skip

    def draft(self) -> Draft:
        self.plant()
        return next(
            one for one in self.kind.discover(self.blueprint()) if one.attributes.get("address") == self.address
        )

    def resource(self, draft: Draft | None = None, *, generation: int = 1) -> ResourceView:
        return replace(super().resource(draft, generation=generation), host=self.host)

    def plant(self) -> None:
        if not self.root.exists():
            self.machine.folder.chmod(0o711)
            captured.write(self.root)
            self.fpga = FakeFpga(self.machine.folder)
            self.root.chmod(0o755)

    def kill(self, resource: ResourceView) -> None:
        (self.root / "sys/bus/pci/devices" / ADDRESS).unlink()
        (self.root / "drydock-tools/nvidia-smi.out").unlink()

    @contextmanager
    def cut_off(self, resource: ResourceView) -> Iterator[None]:
        self.cut = True
        yield
        self.cut = False

    def litter(self, lease: LeaseView) -> None:
        self.smi.set(used="9000", draining="")
        if self.place:  # only root can change more, and undo it
            self.smi.set(compute_mode="Prohibited", power="120.00", locked="1410")

    def left_by(self, lease: LeaseView) -> Sequence[str]:
        now = self.smi.read()
        return [f"{name} is {value}" for name, value in now.items() if value != FRESH.get(name)]

    def access_of(self, lease: LeaseView) -> Sequence[str]:
        if not self.place:
            return []
        uid = self.machine.uid
        groups = device_group(uid)
        ways = [*device_peers.RECORD.glob(f"leases/{uid}/{lease.key}"), *Path("/run/cdi").glob("drydock-*")]
        node = os.stat(self.node)
        opened = [] if (node.st_uid, stat.S_IMODE(node.st_mode)) in ((0, 0o600), (0, 0o666)) else [oct(node.st_mode)]
        return [str(way) for way in ways if groups is None or groups.exists()] + opened


class TestAccelerators(AcceleratorBench):
    """The suite, and what only this kind does."""

    def test_a_captured_tree_stands_for_the_first_host(self) -> None:
        assert self.kind.reported_places(self.blueprint()) == ["7"]

    def test_the_hosts_of_the_config_are_read(self) -> None:
        blueprint = self.blueprint()
        configs: list[tuple[Json, list[str]]] = [
            ({"hosts": ["*"]}, ["7", "8", "9"]),
            ({"hosts": ["rack-8", "other"]}, ["8", "9"]),
            ({"blueprints": ["elsewhere"]}, []),
            ({"reports": "sent"}, []),
        ]
        for config, places in configs:
            changed = replace(blueprint, config=self.kind.Config.model_validate(config))
            assert list(self.kind.reported_places(changed)) == places

    def test_the_lease_asks_for_an_account_on_the_host_of_the_device(self) -> None:
        lease = self.lease(self.built())
        answer = self.kind.activate()[0].act(self.spec("activate", lease.resource, lease), {})
        assert isinstance(answer, Need)
        (needed,) = answer.leases
        assert (needed.name, needed.type, needed.on_resources) == ("host", "host", (7,))

    def test_the_check_closes_a_device_that_is_not_leased(self) -> None:
        resource = self.built()
        self.ready("check", resource)
        assert self.place is None or self.node.stat().st_mode & 0o777 == 0o600
        self.destroyed(resource)
        assert self.place is None or self.node.stat().st_mode == self.before

    def test_the_folder_of_a_capture_that_is_not_there_is_named(self) -> None:
        self.plant()
        shutil.rmtree(self.root)
        with pytest.raises(Exception, match=r"captured is not a folder that can be read on rack-7"):
            self.kind.read_report(self.blueprint(), "7", "")

    def test_a_device_that_another_one_replaced_is_unhealthy(self) -> None:
        resource = self.built()
        there = self.root / "drydock-tools/nvidia-smi.out"
        there.write_text(there.read_text().replace(captured.UUID, captured.UUID[::-1].replace("UPG-", "") + "-GPU"))
        there.write_text(there.read_text().replace("0423718026114", "0423718026115"))
        answer = self.run("check", resource).answer
        assert isinstance(answer, Failed)
        assert answer.message == f"Another device is in the place of {ADDRESS}."
