"""The phases of a DPU: what its status says, as percent, a sentence, and what DPF waits for us to do.

The phases and their order differ between versions (doca-platform, `api/provisioning/v1alpha1/dpu_types.go`), so an
unknown phase is shown by its name and breaks nothing.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from blueprints.answers import Json
from blueprints.dpf.cards import GROUP
from blueprints.kube import Condition, Object

HOLD = f"{GROUP}wait-for-external-nodeeffect"
"""Annotation on a DPU or DPUNodeMaintenance: DPF waits until it is `false`."""
REBOOT = f"{GROUP}dpunode-external-reboot-required"
"""Annotation on a DPUNode: DPF waits until the host was rebooted, and the annotation is removed."""
BY_HAND = "WaitingForManualPowerCycleOrReboot"
PERCENT: Mapping[str, int] = {
    "Initializing": 1, "Pending": 3, "Node Effect": 5, "Initialize Interface": 8, "Perform ARM Force Restart": 10,
    "Config FW Parameters": 12, "Update Firmware": 14, "Prepare BFB": 16, "DMS Deployment": 10, "OS Installing": 20,
    "Rebooting": 60, "Checking Host Reboot Required": 60, "DPU Config": 70, "Host Network Configuration": 75,
    "DPU Cluster Config": 85, "Service Readiness": 92, "Node Effect Removal": 96, "Ready": 99,
}  # fmt: skip
_HOLDING = ("Pending", "Node Effect")
"""Phases in which the effect on the host begins. Their order differs between versions."""
LIMITS: Mapping[str, float] = {"OS Installing": 3600.0, "Rebooting": 7200.0}
"""Seconds after which a phase has failed. The secret with which a DPU joins its cluster expires after two hours."""
LIMIT = 1800.0


_OF_IMAGE = ("BFBReady", "BFBPrepared", "BlueFieldSoftwareReady", "DPUFlavorExists", "DPUFlavorRendered")
"""Conditions that are about the image or the flavor, whatever the card is."""
_IMAGE_REASONS = re.compile(r"\A(GetBFB|BFB(NotReady|NotFound|Error)|DPUFlavor|BlueFieldSoftware)")
_WRONG_IMAGE = re.compile(r"Invalid FW Package", re.IGNORECASE)
"""The firmware's message about an image for another generation of cards
(https://github.com/dsx-ai-factory/infra-controller/issues/980)."""
_EARLY = ("", "Initializing", "Pending", "Node Effect", "Rebooting", "Deleting")
"""Phases in which DPF waits for something other than the card."""
_EARLY_CONDITIONS = ("Initialized", "Pending", "NodeEffectReady")


class Blame(StrEnum):
    """The cause of a failed installation."""

    IMAGE = "image"
    """The image or the flavor: it fails on every card."""
    CARD = "card"
    OTHER = "other"
    """DPF did not get as far as the card."""


def blame(dpu: Object, phase: str, names: Sequence[str]) -> Blame:
    """Return what the failure of a DPU in a phase is blamed on. `names` are those of its image and flavor objects."""
    wrong = [one for one in dpu.conditions if one.status == "False" and (one.reason or one.message)]
    if any(_is_about_image(one, names) for one in wrong):
        return Blame.IMAGE
    if phase == "Error":
        return Blame.OTHER if any(map(_is_early, wrong)) else Blame.CARD
    return Blame.OTHER if phase in _EARLY else Blame.CARD


def _is_early(said: Condition) -> bool:
    # DPF says under BFBReady, too, that no cluster has room.
    return said.type in _EARLY_CONDITIONS or (said.type == "BFBReady" and "Cluster" in said.reason)


def _is_about_image(said: Condition, names: Sequence[str]) -> bool:
    if _is_early(said) and "Cluster" in said.reason:
        return False
    if said.type in _OF_IMAGE or _IMAGE_REASONS.match(said.reason) or _WRONG_IMAGE.search(said.message):
        return True
    named = (rf"(?:BFB|BlueFieldSoftware|DPUFlavor) ['\"]?{re.escape(name)}(?![\w-])" for name in names)
    return any(re.search(one, said.message) for one in named)


class Task(StrEnum):
    """The next action for a DPU."""

    WAIT = "wait"
    HOLD = "hold"
    """DPF waits for us to hold the host."""
    REBOOT = "reboot"
    """DPF waits for us to reboot the host."""
    FAILED = "failed"
    DONE = "done"


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The state of a DPU that is being built."""

    task: Task
    phase: str
    percent: int
    sentence: str


def progress(dpu: Object | None, node: Object | None, maintenance: Sequence[Object]) -> Progress:
    """Return the progress of a DPU. `node` is its DPUNode, where the server has this kind."""
    if dpu is None:
        return Progress(task=Task.WAIT, phase="", percent=0, sentence="DPF has not created the DPU yet.")
    phase = dpu.phase or "Initializing"
    percent, said = PERCENT.get(phase, 0), why(dpu)
    sentence = f"DPU {dpu.name}: {phase}." + (f" {said}" if said else "")
    task = Task.WAIT
    if phase == "Error":
        task = Task.FAILED
    elif phase == "Ready" and dpu.observed:
        task = Task.DONE
    elif any(held(one) for one in (dpu, *maintenance)):
        task = Task.HOLD
    elif phase == "Rebooting" and waits_for_reboot(dpu) and (node is None or REBOOT in node.annotations):
        task = Task.REBOOT
    return Progress(task=task, phase=phase, percent=percent, sentence=sentence)


def reported(dpu: Object) -> Json | None:
    """Return the progress of a DPU as a watch reports it; None unless its installation goes on without us."""
    if may_be_held(dpu) or waits_for_reboot(dpu):
        return None
    now = progress(dpu, None, ())
    if now.task is not Task.WAIT:
        return None
    return {"phase": now.phase, "percent": now.percent, "sentence": now.sentence}


def progress_in(report: Json | None) -> Progress | None:
    """Return the progress that a watch has reported; None if it has reported none."""
    if report is None:
        return None
    return Progress(task=Task.WAIT, phase=report["phase"], percent=report["percent"], sentence=report["sentence"])


def held(one: Object) -> bool:
    """Return whether DPF waits at this object for us to hold the host."""
    return not one.deleting and one.annotations.get(HOLD, "false").lower() not in ("false", "")


def may_be_held(dpu: Object) -> bool:
    """Return whether DPF may wait at the maintenance of the host: before the installation, or in unknown phases."""
    return bool(dpu.phase) and (dpu.phase in _HOLDING or dpu.phase not in PERCENT)


def waits_for_reboot(dpu: Object) -> bool:
    """Return whether the DPU waits for a reboot of its host that DPF does not do itself."""
    status = dpu.status.get("rebootStatus")
    if isinstance(status, dict):
        return status.get("phase") == "Pending" and status.get("reason") == BY_HAND
    said = dpu.condition("Rebooted")
    return said is not None and not said.true and said.reason == BY_HAND


def why(dpu: Object) -> str:
    """Return the reasons and messages of the conditions that are false, at most three of them."""
    wrong = [one for one in dpu.conditions if one.status == "False" and (one.reason or one.message)][-3:]
    return " ".join(f"{one.type}: {one.reason} {one.message}".strip().rstrip(".") + "." for one in wrong)
