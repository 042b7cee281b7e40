"""The DPUVolumes of a lease and their DPUVolumeAttachments. Pure.

DPF lets the storage vendor of the policy provide a DPUVolume, and the card emulate a function of the host for it. An
attachment names a DPUNode, of whose DPUs DPF must choose one. It looks at objects in its own namespace
`dpf-operator-system` only (doca-platform, `internal/storage/snap/host-controller`). 24.10 has neither type.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar

from blueprints.answers import Json
from blueprints.dpf.objects import Place, Written
from blueprints.kube import Object, at, object_name
from interfaces.dpu_services import Volume

VOLUME, ATTACHMENT = "DPUVolume", "DPUVolumeAttachment"
_MODES = {"block": "Block", "filesystem": "Filesystem"}
_FACTS = {
    "device": "dpu.deviceName", "pci_address": "dpu.pciAddress", "nvme_namespace": "dpu.nvmeAttrs.namespaceUUID",
    "filesystem_tag": "dpu.virtioFSAttrs.filesystemTag",
}  # fmt: skip
"""Fact of a volume -> field of the status of its attachment."""
_LONGEST = 200


def name_of(lease: str, volume: str) -> str:
    """Return the name of the objects of a volume."""
    return object_name(f"{lease}-{volume}")


class VolumeObjects(Written[Volume]):
    """How volumes are written: the volume, and its attachment to the host of the DPU."""

    kinds: ClassVar[tuple[str, ...]] = (ATTACHMENT, VOLUME)
    root: ClassVar[str] = VOLUME
    newer: ClassVar[tuple[str, ...]] = (ATTACHMENT, VOLUME)
    name: ClassVar[str] = "drydock-volume"
    definition: ClassVar[str] = "drydock-volume-definition"

    def parse(self, given: Json) -> Volume:
        """Return a volume from JSON. Raises InvalidRequest."""
        return Volume.from_json(given)

    def specs(self, place: Place, made: Volume) -> Sequence[tuple[str, str, Json]]:
        """Return kind, name and spec of the objects of a volume."""
        name = name_of(place.lease, made.name)
        volume = {
            "dpuStoragePolicyName": made.policy, "accessModes": [made.access], "volumeMode": _MODES[made.mode],
            "resources": {"requests": {"storage": f"{made.size_gib}Gi"}},
        }  # fmt: skip
        attached = {"functionType": made.function, "hotplugFunction": made.hotplug}
        attachment = {"dpuNodeName": place.host, "dpuVolumeName": name, **attached}
        return [(VOLUME, name, volume), (ATTACHMENT, name, attachment)]

    def facts(self, objects: Sequence[tuple[str, Object]]) -> Mapping[str, str]:
        """Return by which device the host has the volume, once it is attached."""
        return dict(_reported(objects))


def _reported(objects: Sequence[tuple[str, Object]]) -> Iterator[tuple[str, str]]:
    for kind, one in objects:
        if kind == ATTACHMENT and one.observed:
            for fact, path in _FACTS.items():
                if isinstance(value := at(one.status, path), str) and value:
                    yield fact, value[:_LONGEST]


VOLUMES = VolumeObjects()
