"""The step in which DPF installs a card: its phases, and what DPF waits for us to do."""

from __future__ import annotations

import datetime as dt
from contextlib import suppress
from dataclasses import dataclass

from blueprints.answers import Answer, Failed, Health, Hold, Json, Maintenance, Need, Ready, Scope, Wait
from blueprints.dpf import SELDOM, Site, kube_told, opened
from blueprints.dpf.images import Image
from blueprints.dpf.phases import (
    HOLD,
    REBOOT,
    Blame,
    Progress,
    Task,
    blame,
    held,
    may_be_held,
    progress,
    progress_in,
    waits_for_reboot,
)
from blueprints.dpu.dpf.actions import CARD, HOST
from blueprints.dpu.dpf.config import Config
from blueprints.kube import Object, RequestForbidden
from blueprints.specs import Spec
from drydock.core import clock

_LOOK = 2.0


@dataclass(frozen=True)
class Seen:
    """The objects of DPF that describe the DPU now."""

    dpu: Object | None
    node: Object | None
    """Read only while the DPU waits for a reboot."""
    maintenance: tuple[Object, ...]


@kube_told
def provision(spec: Spec, memo: Json) -> Answer:
    """Follow the DPU through its phases until it is ready, and do what DPF waits for."""
    if (now := progress_in(spec.progress)) is not None and "since" in memo:
        memo = _timed(memo, now)
        if not _is_late(spec, memo, now):
            return _waiting(spec, memo, now)
    with opened(spec) as site:
        seen = _seen(site)
        now = progress(seen.dpu, seen.node, seen.maintenance)
        memo = _timed(memo, now)
        if now.task is Task.DONE:
            # Whatever ran on the card before, this does now.
            return Ready(facts={"phase": now.phase}, carrier_health=Health())
        if now.task is Task.FAILED:
            return _again(site, spec, memo, seen, now)
        if now.task is Task.HOLD:
            _release_hold(site, seen)
            return _waits(site, spec, memo, seen, now)
        if now.task is Task.REBOOT:
            return _reboot(site, spec, memo, seen, now)
        return _waits(site, spec, memo, seen, now)


def _seen(site: Site) -> Seen:
    found = site.ours("DPU")
    dpu = next((one for one in found if not one.deleting), found[0] if found else None)
    name = str(dpu.spec.get("dpuNodeName") or "") if dpu is not None else ""
    if dpu is None or not name:
        return Seen(dpu, None, ())
    # A call for each phase is too many for two more reads, which matter in few phases only.
    node = site.find("DPUNode", name) if waits_for_reboot(dpu) and site.dialect.has("DPUNode") else None
    maintenance: tuple[Object, ...] = ()
    if may_be_held(dpu) and site.dialect.has("DPUNodeMaintenance"):
        one = site.find("DPUNodeMaintenance", f"{name}-hold")
        maintenance = (one,) if one is not None else ()
    return Seen(dpu, node, maintenance)


def _timed(memo: Json, now: Progress) -> Json:
    """Return the memo with the time at which the present phase was first seen, and the highest percent so far."""
    percent = max(now.percent, int(memo.get("percent", 0)))
    if memo.get("phase") == now.phase and "since" in memo:
        return {**memo, "percent": percent}
    return {**memo, "phase": now.phase, "since": clock.now().isoformat(), "percent": percent}


def _waits(site: Site, spec: Spec, memo: Json, seen: Seen, now: Progress) -> Answer:
    config: Config = spec.config
    if _is_late(spec, memo, now):
        what = f"phase {now.phase}" if now.phase else "no DPU"
        limit = config.limit(now.phase)
        message = f"DPF was in {what} for {_lasted(memo):.0f} s; the limit is {limit:.0f} s. {now.sentence}"
        return _failed(site, spec, seen, now, code="phase_limit", message=message)
    return _waiting(spec, memo, now)


def _lasted(memo: Json) -> float:
    """Return for how many seconds the present phase has been seen."""
    return (clock.now() - dt.datetime.fromisoformat(memo["since"])).total_seconds()


def _is_late(spec: Spec, memo: Json, now: Progress) -> bool:
    return _lasted(memo) > float(spec.config.limit(now.phase))


def _waiting(spec: Spec, memo: Json, now: Progress) -> Wait:
    seldom = min(SELDOM, spec.config.limit(now.phase) - _lasted(memo) + 1.0)
    return Wait(after=_LOOK, watched=seldom, memo=memo, percent=memo["percent"], sentence=now.sentence)


def _release_hold(site: Site, seen: Seen) -> None:
    """Tell DPF that the host is held, wherever it waits for that. The step `hold` has held the host."""
    for kind, one in (("DPU", seen.dpu), *(("DPUNodeMaintenance", each) for each in seen.maintenance)):
        if one is not None and held(one):
            site.cluster.annotate(site.dialect.type(kind), one, {HOLD: "false"})


def _reboot(site: Site, spec: Spec, memo: Json, seen: Seen, now: Progress) -> Answer:
    """Reboot the host once for all cards in it that wait, and then let DPF go on."""
    sentence = f"Card {spec.parents[CARD].resource.name} needs a reboot of its host to use its new image."
    # Each installation needs a reboot of its own, also when a failed one is begun anew.
    times = int(memo.get("reimaged", 0)) + 1
    wanted = Maintenance(relation=HOST, action=spec.config.reboot, holders="wait", sentence=sentence, times=times)
    if not spec.parents[CARD].resource.part_of:
        if memo.get("asked") != times or spec.resolution is None:
            name = spec.parents[CARD].resource.facts.get("node", "")
            what = f"Power-cycle host {name}, in which card {spec.parents[CARD].resource.name} is; then answer yes."
            return Hold(who="operator", what=what, memo={**memo, "asked": times})
        if not spec.resolution.yes:
            message = f"The host was not rebooted: {spec.resolution.text}".rstrip(": ")
            return Failed(scope=Scope.OPERATOR, code="not_rebooted", message=message)
    elif wanted.name not in spec.granted:
        return Need(maintenance=wanted)
    if seen.node is not None and REBOOT in seen.node.annotations:
        site.cluster.annotate(site.dialect.type("DPUNode"), seen.node, {REBOOT: None})
    return _waits(site, spec, memo, seen, now)


def _again(site: Site, spec: Spec, memo: Json, seen: Seen, now: Progress) -> Answer:
    """Delete a DPU whose installation failed, so that DPF begins anew, at most as often as the config says.

    `Error` is final in DPF. An image or a flavor that failed fails again, so nothing is begun anew with it.
    """
    assert seen.dpu is not None
    done = int(memo.get("reimaged", 0))
    if memo.get("failed") != seen.dpu.uid:
        if done >= spec.config.reimage or _blamed(site, spec, seen.dpu, now) is Blame.IMAGE:
            times = f" after {done + 1} attempts" if done else ""
            message = f"DPF could not install the card{times}. {now.sentence}"
            return _failed(site, spec, seen, now, code="dpu_error", message=message)
        # The uid is committed before the DPU is deleted, so that each failed DPU is counted and deleted once.
        memo = {**memo, "failed": seen.dpu.uid, "reimaged": done + 1}
        return Wait(after=0.0, memo=memo, percent=memo["percent"], sentence=now.sentence)
    site.cluster.delete(site.dialect.type("DPU"), seen.dpu.name, seen.dpu.namespace, uid=seen.dpu.uid)
    return _waits(site, spec, memo, seen, now)


def _failed(site: Site, spec: Spec, seen: Seen, now: Progress, *, code: str, message: str) -> Failed:
    """Return the failure of an installation: of the image or flavor, of the card, or of neither."""
    found = _blamed(site, spec, seen.dpu, now) if seen.dpu is not None else Blame.OTHER
    if found is Blame.IMAGE:
        cure = "The image or the flavor is at fault, not the card: correct `image` or `flavor` of the blueprint."
        return Failed(scope=Scope.BLUEPRINT, code=f"{code}_image", message=f"{message} {cure}")
    return Failed(scope=Scope.OFFER, code=code, message=message, quarantines_carrier=found is Blame.CARD)


def _blamed(site: Site, spec: Spec, dpu: Object, now: Progress) -> Blame:
    image, flavor = Image.named_in(dpu.spec), str(dpu.spec.get("dpuFlavor") or "")
    with suppress(RequestForbidden):  # the role is of an older version, which did not read images
        known = site.find(image.kind, image.name) if image is not None else None
        if image is not None and (known is None or known.phase in ("Error", "Deleting")):
            return Blame.IMAGE
    return blame(dpu, now.phase, tuple(filter(None, (image.name if image else "", flavor))))
