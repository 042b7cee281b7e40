"""The controllers of DPUVolumes and DPUVolumeAttachments (doca-platform, internal/storage/snap/host-controller).

A volume is scheduled by its DPUStoragePolicy, and bound once the vendor has provided it. An attachment waits for its
volume, and for the only DPU of its DPUNode. A volume is kept until no attachment names it.
"""

from __future__ import annotations

from tests.dpus import conditions
from tests.dpus.api import ATTACHMENT, DPU, DPU_NODE, POLICY, VOLUME, Json, Kind, is_deleting, name_of
from tests.dpus.generations import READY
from tests.dpus.state import State

PROVIDING, ATTACHING = "Providing", "Attaching"
"""The steps in which volumes and attachments can be stuck: `Faults.stick(ATTACHING, kind="DPUVolumeAttachment")`."""
NOT_BOUND = "volume is not bound yet"


class Storage:
    """Volumes and attachments. Stands in for the vendor of the storage, and for the card that emulates the device."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.provided: set[str] = set()
        """Names of the volumes that the vendor has."""
        self.ready: set[str] = set()
        """Names of DPUNodes whose DPU is ready although it is no object, as a test has put it there by hand."""

    def run(self) -> None:
        for volume in self.state.all(VOLUME):
            self._step(VOLUME, volume)
        for attachment in self.state.all(ATTACHMENT):
            self._step(ATTACHMENT, attachment)

    def left(self) -> list[str]:
        """Return the volumes that the vendor still has."""
        return sorted(self.provided)

    def _step(self, kind: Kind, item: Json) -> None:
        item = self.state.add_finalizer(kind, item)
        if is_deleting(item):
            self._delete(kind, item)
        elif kind is VOLUME:
            self._provide(item)
        else:
            self._attach(item)

    def _delete(self, kind: Kind, item: Json) -> None:
        users = [one for one in self.state.all(ATTACHMENT) if one["spec"]["dpuVolumeName"] == name_of(item)]
        if kind is VOLUME and users:
            if not all(is_deleting(one) for one in users):
                self.state.violations.add(f"{VOLUME.name} {name_of(item)} was deleted before its attachment")
            self._put(kind, item, {"DPUVolumeReconciled": "volume is attached"}, "AwaitingDeletion")
        elif self.state.drop_finalizer(kind, item) and kind is VOLUME:
            self.provided.discard(name_of(item))

    def _provide(self, item: Json) -> None:
        known = self.state.api.get(POLICY, item["spec"]["dpuStoragePolicyName"]) is not None
        bound = known and not self.state.faults.is_stuck(VOLUME.name, PROVIDING, name_of(item))
        if bound:
            self.provided.add(name_of(item))
        self._put(
            VOLUME, item,
            {
                "DPUVolumeReconciled": "", "Scheduled": "" if known else "volume is not scheduled yet",
                "Bound": "" if bound else NOT_BOUND,
            },
            extra={"phase": "Bound" if bound else "Pending"},
        )  # fmt: skip

    def _attach(self, item: Json) -> None:
        problem = self._problem(item)
        stuck = self.state.faults.is_stuck(ATTACHMENT.name, ATTACHING, name_of(item))
        waits = "DPUAttach not ready: no function is free" if stuck and not problem else ""
        self._put(
            ATTACHMENT, item,
            {"DPUVolumeAttachmentReconciled": problem, "ControllerAttached": problem, "DPUAttached": problem or waits},
            extra={} if problem or waits else {"dpuAttached": True, "dpu": _device(item)},
        )  # fmt: skip

    def _problem(self, item: Json) -> str:
        spec = item["spec"]
        volume = self.state.find(VOLUME, spec["dpuVolumeName"])
        if volume is None:
            return f"DPUVolume {spec['dpuVolumeName']} not found"
        if not conditions.is_true(volume, "Bound"):
            return f"DPUVolume {spec['dpuVolumeName']} is not ready"
        if self.state.find(DPU_NODE, spec["dpuNodeName"]) is None:
            return f"DPUNode {spec['dpuNodeName']} not found"
        if spec["dpuNodeName"] in self.ready:
            return ""
        dpus = [one for one in self.state.all(DPU) if one["spec"].get("dpuNodeName") == spec["dpuNodeName"]]
        if len(dpus) != 1:
            return f"{len(dpus)} DPUs found for DPUNode {spec['dpuNodeName']}"
        ready = conditions.is_true(dpus[0], READY) or (dpus[0].get("status") or {}).get("phase") == READY
        return "" if ready else f"DPU {name_of(dpus[0])} is not ready"

    def _put(
        self, kind: Kind, item: Json, problems: dict[str, str], reason: str = "Pending", extra: Json | None = None
    ) -> None:
        put_summary(self.state, kind, item, problems, reason, extra)


def put_summary(
    state: State, kind: Kind, item: Json, problems: dict[str, str], reason: str = "Pending", extra: Json | None = None
) -> None:
    """Put conditions into a status, each with its problem or an empty text, and Ready, which sums them up."""
    generation = item["metadata"]["generation"]
    whole = next(filter(None, problems.values()), "")

    def put(status: Json) -> None:
        status["observedGeneration"] = generation
        for of_type, problem in {**problems, READY: whole}.items():
            conditions.put(status, of_type, not problem, reason if problem else "Success", problem, generation)
        status.update(extra or {})

    state.change_status(kind, item, put)


def _device(item: Json) -> Json:
    return {"deviceName": f"nvme-{name_of(item)}", "pciAddress": "26:00.2"}
