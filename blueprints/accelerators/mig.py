"""MIG layouts of NVIDIA GPUs: read, change and verify them with the nvidia-smi of the host."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import NamedTuple

from blueprints.accelerators import nvidia
from blueprints.accelerators.drafts import identity
from blueprints.accelerators.layouts import in_words, is_layout
from blueprints.answers import Answer, Failed, Hold, Json, Maintenance, Need, Ready, Scope, Wait
from blueprints.specs import Spec
from drydock_agent import Device
from interfaces.errors import CommandFailed

_OFFERED = re.compile(r"\|\s+\d+\s+MIG (\S+)\s+\d+\s+\d+/\d+\s")
_NOTHING_THERE = ("no gpu instances found", "no compute instances found", "not found")
_OFF, _ON = "0", "1"


class Layout(NamedTuple):
    """The MIG mode of a GPU, now and after a reset, and its slices."""

    enabled: bool
    pending: bool
    profiles: tuple[str, ...]
    slices: tuple[str, ...]
    """Ids of the slices."""
    processes: int


def layout_of(devices: Sequence[Device], id: str) -> Layout | None:
    """Return the layout of a GPU as nvidia-smi reports it, or None if the GPU has no MIG mode."""
    whole = next((one for one in devices if one.id == id), None)
    mode = whole.attributes.get("mig") if whole is not None else None
    if whole is None or mode not in ("Enabled", "Disabled"):
        return None
    parts = [one for one in devices if one.part_of == id]
    compute = whole.attributes.get("compute_processes", 0)
    return Layout(
        enabled=mode == "Enabled",
        pending="MIG mode" in whole.reason,
        profiles=tuple(str(one.attributes.get("mig_profile", "")).lower() for one in parts),
        slices=tuple(one.id for one in parts),
        processes=compute if isinstance(compute, int) else 0,
    )


def bring_to(spec: Spec, memo: Json, wanted: Sequence[str]) -> Answer:
    """Bring a GPU to a layout, one change for each call, so that each call is short and can be repeated.

    The memo remembers the slices that were there before, and what the layout was, to restore it.
    """
    gpu = nvidia.gpu_of(spec)
    if gpu is None:
        return Ready()
    known = spec.resource.facts["device"]
    now = layout_of(gpu.read_all(), known["id"])
    if now is None:
        return Ready() if not wanted else _failed(f"{known['id']} has no MIG mode, so it cannot be split.")
    memo = memo or {"slices": list(now.slices), "profiles": list(now.profiles), "enabled": now.enabled}
    if not now.pending and is_layout(now.enabled, now.profiles, wanted):
        return _reached(spec, memo, now)
    if now.processes:
        return _failed(f"{now.processes} processes compute on {known['id']}, so its layout cannot be changed.")
    try:
        return _one_change(spec, memo, gpu, now, tuple(wanted))
    except CommandFailed as error:
        return _undone(spec, memo, gpu, _said(error))


def _reached(spec: Spec, memo: Json, now: Layout) -> Answer:
    host = spec.resource.facts["host"]
    changed = bool(memo.get("changed"))
    gone = tuple(identity(host, one) for one in memo["slices"]) if changed else ()
    return Ready(rediscover=changed, gone=gone, log=f"The MIG layout is {in_words(now.enabled, now.profiles)}.")


def _one_change(spec: Spec, memo: Json, gpu: nvidia.Gpu, now: Layout, wanted: tuple[str, ...]) -> Answer:
    if now.pending:
        return _make_effective(spec, memo, gpu)
    if now.slices:
        if memo.get("created"):
            return _undone(spec, memo, gpu, f"After the change its MIG layout is {in_words(True, now.profiles)}.")
        _remove_slices(gpu)
        return Wait(after=0.0, memo=memo | {"changed": True}, sentence="The slices of the GPU were removed.")
    if now.enabled != bool(wanted):
        gpu.run("-mig", _ON if wanted else _OFF)
        return Wait(after=0.0, memo=memo | {"changed": True}, sentence="The MIG mode of the GPU was changed.")
    offered = offers(gpu)
    if missing := sorted(set(wanted) - set(offered)):
        said = f"{spec.resource.facts['device']['id']} does not offer the MIG profiles {', '.join(missing)}."
        return _undone(spec, memo, gpu, f"{said} It offers {', '.join(offered) or 'none'}.")
    if memo.get("created"):
        return _undone(spec, memo, gpu, "After the change the GPU has no slices.")
    gpu.run("mig", "-cgi", ",".join(wanted), "-C", after=True)
    return Wait(after=0.0, memo=memo | {"changed": True, "created": True}, sentence="The slices were created.")


def _make_effective(spec: Spec, memo: Json, gpu: nvidia.Gpu) -> Answer:
    """Reset the GPU so that its new MIG mode takes effect. If that is refused, ask for a restart of the idle host."""
    if not memo.get("reset"):
        said = gpu.reset()
        return Wait(after=1.0, memo=memo | {"changed": True, "reset": said or "done"}, sentence="The GPU was reset.")
    if "parent:alone" not in spec.granted:
        sentence = f"The MIG mode of {spec.resource.name} takes effect only after a restart of the host."
        return Need(maintenance=Maintenance(relation="parent", action="alone", holders="wait", sentence=sentence))
    if spec.resolution is not None and spec.resolution.yes:
        return _failed("The MIG mode still waits for a restart of the host after it was restarted.")
    if spec.resolution is not None:
        return _failed(f"The host of {spec.resource.name} is not to be restarted: {spec.resolution.text}".rstrip(": "))
    what = (
        f"Restart the host of {spec.resource.name}, and answer yes when it is back. Its new MIG mode waits for that. "
        f"Result of the reset: {memo['reset']}."
    )
    return Hold(who="operator", what=what, memo=memo)


def offers(gpu: nvidia.Gpu) -> list[str]:
    """Return the names of the GPU instance profiles that a GPU in MIG mode has."""
    return list(dict.fromkeys(name.lower() for name in _OFFERED.findall(gpu.run("mig", "-lgip", after=True))))


def _remove_slices(gpu: nvidia.Gpu) -> None:
    for option in ("-dci", "-dgi"):
        try:
            gpu.run("mig", option, after=True)
        except CommandFailed as error:
            if not any(text in _said(error).lower() for text in _NOTHING_THERE):
                raise


def _undone(spec: Spec, memo: Json, gpu: nvidia.Gpu, problem: str) -> Failed:
    """Restore the layout that the GPU had before as far as possible, and return the failure."""
    before = in_words(memo["enabled"], memo["profiles"])
    try:
        _remove_slices(gpu)
        now = layout_of(gpu.read_all(), spec.resource.facts["device"]["id"])
        if now is not None and now.enabled != memo["enabled"]:
            gpu.run("-mig", _ON if memo["enabled"] else _OFF)
        if memo["profiles"]:
            gpu.run("mig", "-cgi", ",".join(memo["profiles"]), "-C", after=True)
        now = layout_of(gpu.read_all(), spec.resource.facts["device"]["id"])
        done = now is not None and not now.pending and is_layout(now.enabled, now.profiles, memo["profiles"])
    except CommandFailed as error:
        return _failed(f"{problem} The layout before ({before}) could not be restored: {_said(error)}")
    if not done:
        return _failed(f"{problem} The layout before ({before}) could not be restored.")
    return _failed(f"{problem} Its layout is {before} again, as before.")


def _said(error: CommandFailed) -> str:
    said = " ".join((error.result.text + " " + error.result.error_text).split())
    return f"nvidia-smi said: {said[-300:]}" if said else f"nvidia-smi ended with exit code {error.result.exit_code}."


def _failed(message: str) -> Failed:
    return Failed(scope=Scope.OPERATOR, code="mig_layout", message=message)
