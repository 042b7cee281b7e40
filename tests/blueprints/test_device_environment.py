"""What programs and containers are told about their devices: environment variables and CDI specifications."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema  # type: ignore[import-untyped]
import pytest

from blueprints.devices import (
    Device,
    DeviceRefused,
    Node,
    environment,
    grant,
    publish,
    qualified_name,
    specification,
    withdraw,
)
from blueprints.hostshell import HostShell
from interfaces.endpoints import LocalEndpoint
from interfaces.transports import transport_to
from tests.blueprints import device_peers
from tests.blueprints import host_peers as peers
from tests.blueprints.device_peers import Place

GPU = "GPU-9a1b2c3d-0000-1111-2222-333344445555"
SLICE = "MIG-9a1b2c3d-5555-1111-2222-333344445555"

SCHEMA: dict[str, Any] = {
    "type": "object",
    "additionalProperties": False,
    "required": ["cdiVersion", "kind", "devices"],
    "properties": {
        "cdiVersion": {"const": "0.3.0"},
        "kind": {"pattern": r"^[A-Za-z0-9]([A-Za-z0-9.-]*[A-Za-z0-9])?/[A-Za-z]([A-Za-z0-9_-]*[A-Za-z0-9])?$"},
        "devices": {
            "type": "array",
            "minItems": 1,
            "items": {
                "type": "object",
                "additionalProperties": False,
                "required": ["name", "containerEdits"],
                "properties": {
                    "name": {"pattern": r"^[A-Za-z]([A-Za-z0-9_.:-]*[A-Za-z0-9])?$"},
                    "containerEdits": {
                        "type": "object",
                        "additionalProperties": False,
                        "minProperties": 1,
                        "properties": {
                            "env": {"type": "array", "items": {"type": "string", "pattern": "^[A-Z_]+=[^\n]*$"}},
                            "deviceNodes": {
                                "type": "array",
                                "items": {
                                    "type": "object",
                                    "additionalProperties": False,
                                    "required": ["path"],
                                    "properties": {
                                        "path": {"type": "string", "pattern": "^/dev/"},
                                        "type": {"enum": ["b", "c", "u", "p"]},
                                        "major": {"type": "integer", "minimum": 0},
                                        "minor": {"type": "integer", "minimum": 0},
                                        "fileMode": {"type": "integer"},
                                        "permissions": {"pattern": "^[rwm]*$"},
                                        "uid": {"type": "integer"},
                                        "gid": {"type": "integer"},
                                    },
                                },
                            },
                        },
                    },
                },
            },
        },
    },
}
"""Written after the text of the specification's version 0.3.0, as far as it concerns device nodes and variables."""


def gpu(id: str = "0000:06:00.0", **more: Any) -> Device:
    """A GPU."""
    return Device(**{"id": id, "device_class": "gpu", "vendor": "10de", "uuid": GPU, **more})


@pytest.mark.parametrize(
    ("devices", "variables"),
    [
        ((), {}),
        ([gpu()], {"CUDA_VISIBLE_DEVICES": GPU, "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        (
            [gpu(), gpu("0000:06:00.0/mig-1-0", device_class="gpu_slice", uuid=SLICE)],
            {"CUDA_VISIBLE_DEVICES": f"{GPU},{SLICE}", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"},
        ),
        ([gpu(uuid="", index=5)], {"CUDA_VISIBLE_DEVICES": "0", "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}),
        ([gpu(vendor="1002", uuid="GPU-18f1ad2b8c2b4e6f")], {"ROCR_VISIBLE_DEVICES": "GPU-18f1ad2b8c2b4e6f"}),
        ([gpu(vendor="1002", uuid=""), gpu(vendor="1002")], {"ROCR_VISIBLE_DEVICES": "0,1"}),
        ([gpu(vendor="8086")] * 2, {"ZE_AFFINITY_MASK": "0,1", "ZE_FLAT_DEVICE_HIERARCHY": "COMPOSITE"}),
        ([gpu(device_class="nic")], {}),
        ([gpu(vendor="19e5")], {}),
    ],
)
def test_variables_name_exactly_the_devices_of_a_lease(devices: list[Device], variables: dict[str, str]) -> None:
    assert environment(devices) == variables


@pytest.mark.parametrize(
    "device",
    [
        gpu(nodes=(Node(path="/dev/nvidia0"), Node(path="/dev/nvidiactl", shared=True))),
        gpu("0000:06:00.0/mig-1-0", device_class="gpu_slice", nodes=(Node(path="/dev/nvidia-caps/nvidia-cap12"),)),
        gpu("10000:e1:00.0", device_class="nvme", vendor="144d", uuid="", nodes=(Node(path="/dev/ng0n1"),)),
        gpu("0000:81:00.0", device_class="", vendor="", uuid="", nodes=(Node(path="/dev/vfio/12"),)),
        gpu("x/-", device_class="a.b:c", vendor="", uuid="", nodes=(Node(path="/dev/vfio/12"),)),
    ],
)
def test_a_specification_is_one_of_the_earliest_version(device: Device) -> None:
    made = specification(device, {node.path: "195:0" for node in device.nodes})
    jsonschema.validate(made, SCHEMA)
    (one,) = made["devices"]
    assert [node["path"] for node in one["containerEdits"]["deviceNodes"]] == [node.path for node in device.nodes]
    assert qualified_name(device) == f"{made['kind']}={one['name']}"


def test_a_node_that_does_not_exist_is_in_no_specification() -> None:
    device = gpu(nodes=(Node(path="/dev/nvidia0"), Node(path="/dev/nvidia-uvm", shared=True)))
    (one,) = specification(device, {"/dev/nvidia0": "195:0"})["devices"]
    assert one["containerEdits"]["deviceNodes"] == [
        {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0, "permissions": "rw"}
    ]


class TestOnTheHost:
    """Files are those of root."""

    @pytest.fixture
    def place(self) -> Iterator[Place]:
        with device_peers.place() as made:
            yield made

    def test_a_file_for_each_device_appears_and_disappears(self, place: Place, tmp_path: Path) -> None:
        folder = tmp_path / "cdi"
        devices = [place.device(0), place.device(1)]
        account = place.account(0)
        numbers = grant(place.shell, account, "lease0", devices).numbers
        for _ in range(2):
            publish(place.shell, devices, numbers, folder=str(folder))
        files = sorted(folder.iterdir())
        assert [one.suffix for one in files] == [".json", ".json"]
        for device, file in zip(devices, files, strict=True):
            assert json.loads(file.read_text()) == specification(device, numbers)
            jsonschema.validate(json.loads(file.read_text()), SCHEMA)
            assert (file.stat().st_uid, stat.S_IMODE(file.stat().st_mode)) == (0, 0o644)
        (node,) = json.loads(files[0].read_text())["devices"][0]["containerEdits"]["deviceNodes"]
        real = os.stat(node["path"])
        assert (node["major"], node["minor"]) == (os.major(real.st_rdev), os.minor(real.st_rdev))
        withdraw(place.shell, devices[:1], folder=str(folder))
        assert list(folder.iterdir()) == files[1:]
        for _ in range(2):
            withdraw(place.shell, devices, folder=str(folder))
        assert not folder.exists()

    @pytest.mark.parametrize(
        "made", ["chmod 777 cdi", "chown 12345 cdi", "mv cdi real; chmod 777 real; ln -s real cdi"]
    )
    def test_a_folder_of_others_is_refused(self, tmp_path: Path, made: str) -> None:
        peers.needs_root()
        shell = HostShell(transport_to(LocalEndpoint(uid=0, gid=0, home="/")), 30)
        folder = tmp_path / "cdi"
        folder.mkdir()
        subprocess.run(["/bin/sh", "-c", made], cwd=tmp_path, check=True)
        with pytest.raises(DeviceRefused, match=re.escape(str(folder))):
            publish(shell, [gpu()], {}, folder=str(folder))
        with pytest.raises(DeviceRefused, match=re.escape(str(folder))):
            withdraw(shell, [gpu()], folder=str(folder))
        assert not list(folder.iterdir())
