"""What goes wrong in the controllers when a test says so."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Failure:
    """What a DPU fails with. The reason is that of the condition of the phase."""

    reason: str
    message: str


@dataclass
class Faults:
    """Faults, each until it is removed or used up. DPUs and other objects are named as in Kubernetes; "" is any."""

    _stuck: set[tuple[str, str, str]] = field(default_factory=set)
    _failing: dict[tuple[str, str, str], tuple[Failure, int]] = field(default_factory=dict)
    finalizers: set[tuple[str, str]] = field(default_factory=set)
    """(kind, name) of objects that never lose their finalizer."""
    recreated: dict[tuple[str, str], int] = field(default_factory=dict)
    """(kind, name) of objects that someone creates again under their name, and how many more times."""
    stale: dict[str, int] = field(default_factory=dict)
    """DPUs whose status does not change for so many ticks after they were deleted: Ready stays Ready."""
    reboots: int = 0
    """How many more times a reboot is requested again after its host was rebooted."""
    inserted: dict[str, str] = field(default_factory=dict)
    """Phases that follow others, and are in no documentation."""

    # Stuck and failing DPUs, BFBs and DPUClusters

    def stick(self, phase: str, name: str = "", *, kind: str = "DPU") -> None:
        """Let objects stay in a phase for ever."""
        self._stuck.add((kind, phase, name))

    def release(self, phase: str, name: str = "", *, kind: str = "DPU") -> None:
        """Let them go on."""
        self._stuck.discard((kind, phase, name))

    def is_stuck(self, kind: str, phase: str, name: str) -> bool:
        return bool({(kind, phase, name), (kind, phase, "")} & self._stuck)

    def fail(
        self, phase: str, name: str = "", *, kind: str = "DPU", reason: str = "INTEGRITY_FAIL", message: str = "",
        times: int = 1,
    ) -> None:  # fmt: skip
        """Let objects end in Error in a phase. The reason's default is that of a card that refuses its image."""
        failure = Failure(reason, message or f"{phase} failed: {reason}")
        self._failing[kind, phase, name] = (failure, times)

    def failure(self, kind: str, phase: str, name: str) -> Failure | None:
        """Return what an object fails with now, which uses it up."""
        for key in ((kind, phase, name), (kind, phase, "")):
            if key in self._failing:
                failure, times = self._failing.pop(key)
                if times > 1:
                    self._failing[key] = (failure, times - 1)
                return failure
        return None

    # Others

    def keep_finalizer(self, kind: str, name: str = "") -> None:
        """Never remove the finalizer of objects."""
        self.finalizers.add((kind, name))

    def keeps_finalizer(self, kind: str, name: str) -> bool:
        return bool({(kind, name), (kind, "")} & self.finalizers)

    def recreate(self, kind: str, name: str, times: int = 1) -> None:
        """Let someone else create an object again under its name, as soon as it is gone."""
        self.recreated[kind, name] = times

    def stay_stale(self, dpu: str, ticks: int = 3) -> None:
        """Let a DPU show its old status for a while after it was deleted."""
        self.stale[dpu] = ticks

    def is_stale(self, dpu: str) -> bool:
        """Return whether a deleted DPU shows its old status now, which uses up a tick."""
        left = self.stale.get(dpu, 0)
        if left:
            self.stale[dpu] = left - 1
        return left > 0

    def request_reboot_again(self, times: int = 1) -> None:
        """Request a reboot once more after it was carried out."""
        self.reboots += times

    def insert_phase(self, name: str, after: str) -> None:
        """Let DPUs go through a phase that no documentation has, after a known one. See Double.allow_phase."""
        self.inserted[after] = name
