"""The steps in which a card is installed, and those that end a DPU: by its BMC, or else by rshim (`streaming`).

The installation is a task of the BMC, which goes on whoever watches it. It is requested once: the id of its task is
stored before it is read. If the answer is lost, or the worker dies before it has stored the id, the task is looked for
by the path of the file, which nobody else knows, and the installation is never requested again. The step cannot be
interrupted, so neither a release nor a destruction nor a reboot of the host interrupts an installation.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import TYPE_CHECKING

from blueprints.answers import Absent, Answer, Failed, Json, Ready, Scope, Wait
from blueprints.bluefield.access import bmc_told, has_bmc
from blueprints.bluefield.messages import meaning
from blueprints.bmc.errors import BmcAnswerInvalid, BmcAnswerLost, BmcBusy, BmcRefused, BmcUnreachable
from blueprints.bmc.values import BmcTask, PowerAction, PowerState
from blueprints.dpu.bluefield import https, scp, streaming
from blueprints.dpu.bluefield.config import Config
from blueprints.dpu.bluefield.preparing import (
    CARD,
    PATH,
    by_rshim,
    by_scp,
    card_of,
    protocols_of,
    requirement,
    sentence_of,
    session,
    vacate_host,
)
from blueprints.dpu.bluefield.publishing import address_of, is_served, webroot_of
from blueprints.specs import Spec
from drydock.core import clock

if TYPE_CHECKING:
    from blueprints.bluefield.session import CardSession

_LOOK, _LATER = 5.0, 60.0
_LOST = 600.0
"""Seconds in which the BMC must list the task after a lost answer, or know it again."""
_NOT_LISTED = "lists no task for the installation, and its answer to the request was lost"
_RSHIM, _OFF = 120.0, 300.0
_STARTS = (PowerAction.ON, PowerAction.RESET, PowerAction.CYCLE)
RSHIM = "bmc_rshim"
"""Fact: whether the BMC had the rshim before the build; None if that is unknown. Its presence says that the build may
have changed the card."""
_AWAY = (BmcUnreachable, BmcBusy, BmcAnswerInvalid)
"""Errors of a BMC that restarts with its new firmware."""


@bmc_told
def note_rshim(spec: Spec, memo: Json) -> Answer:
    """Record who has the rshim of the card, before that is changed. The end of the DPU restores it.

    Nothing is installed on a card that could not be switched off afterwards.
    """
    if not has_bmc(card_of(spec)):
        return Ready(facts={RSHIM: None})
    with session(spec) as bmc:
        if spec.config.park == "power_off" and not _stops(bmc):
            message = f"{_cannot_stop(spec)} Set `park` to leave if its system may go on running, or update the BMC."
            return Failed(scope=Scope.OFFER, code="cannot_park", message=message)
        return Ready(facts={RSHIM: bmc.bmc_rshim()})


@bmc_told
def take_rshim(spec: Spec, memo: Json) -> Answer:
    """Switch the card on, and let its BMC have the rshim or, if the image comes from the host, leave it to the host.

    Only one side can have it. Firmware that does not say who has it decides that by itself.
    """
    if not has_bmc(card_of(spec)):
        return Ready()
    with session(spec) as bmc:
        if bmc.power() is PowerState.OFF:
            offered = bmc.power_actions()  # newer firmware has no On, and starts a card by a reset
            bmc.switch(next((one for one in _STARTS if one in offered), PowerAction.ON))
        return _rshim(bmc, spec, memo, not by_rshim(spec)) or Ready()


def _rshim(bmc: CardSession, spec: Spec, memo: Json, wanted: bool) -> Answer | None:
    """Let the BMC take or leave the rshim, and wait until it has. None once it has, or if the BMC does not say.

    To take the rshim needs a while, so an interrupted build may have asked a BMC that does not have it yet. The BMC is
    therefore asked to leave it in any case.
    """
    has = bmc.bmc_rshim()
    if has is None or (has is wanted and (wanted or memo)):
        return None
    if not memo:
        bmc.set_bmc_rshim(wanted)
    began = memo.get("began") or clock.now().isoformat()
    waited = _since(began)
    if waited > _RSHIM:
        message = f"The BMC did not {'get' if wanted else 'leave'} the rshim of the card within {waited:.0f} s."
        return Failed(scope=Scope.OFFER if wanted else Scope.STEP, code="rshim", message=message)
    sentence = f"The BMC {'takes' if wanted else 'leaves'} the rshim of the card."
    return Wait(after=_LOOK, memo={"began": began}, sentence=sentence)


@bmc_told
def check_protocol(spec: Spec, memo: Json) -> Answer:
    """Check that the BMC fetches images by the protocol by which the file is served, and from where it is."""
    if by_rshim(spec):
        return Ready()
    if by_scp(spec):
        scp.server_of(spec)
        return Ready()
    protocol, _ = address_of(spec)
    known, wanted = protocols_of(card_of(spec)), spec.config.webroot.get("tls")
    if known and protocol not in known:
        message = f"The BMC of card {spec.resource.facts['card']} fetches images by {', '.join(known)}, not {protocol}."
        advice = requirement(tls=protocol == "HTTP")
        return Failed(scope=Scope.OFFER, code="protocol", message=f"{message} {sentence_of(advice)}.")
    if wanted is not None and wanted is not (protocol == "HTTPS"):
        name = webroot_of(spec).resource.name
        message = f"Web root {name} serves {protocol}, and `webroot` requires tls: {str(wanted).lower()}."
        return Failed(scope=Scope.OFFER, code="protocol", message=message)
    return Ready(facts=https.to_trust(spec) if protocol == "HTTPS" else {})


@bmc_told
def flash(spec: Spec, memo: Json) -> Answer:
    """Request the installation once, and follow it until it ends."""
    if by_rshim(spec):
        return streaming.stream(spec, memo)
    if "task" in memo:
        return _followed(spec, memo)
    secret = spec.resource.secrets[PATH]
    if not is_served(spec):
        message = f"The lease on the {'host' if by_scp(spec) else 'web root'} that has the image is gone."
        return Failed(scope=Scope.OFFER, code="webroot_gone", message=message)
    try:
        with session(spec) as bmc:
            bmc.hide(secret)
            if "before" not in memo:
                before = list(bmc.tasks())
                return Wait(after=0.0, memo={**memo, "before": before}, percent=10, sentence="The image is ready.")
            task = _started_flash(bmc, spec)
    except BmcAnswerLost:
        return _lost(memo)
    except BmcRefused as error:
        return _ended(spec, memo, BmcTask(id="", state="failed", message=error.message))
    now = clock.now().isoformat()
    if task.state == "failed":
        return _ended(spec, memo, task)
    sentence = "The BMC installs the image."
    return Wait(after=_LOOK, memo={**memo, "task": task.id, "began": now}, percent=12, sentence=sentence)


def _started_flash(bmc: CardSession, spec: Spec) -> BmcTask:
    if by_scp(spec):
        return bmc.start_flash(spec.resource.secrets[scp.URI], "SCP", spec.resource.secrets[scp.USER])
    protocol, address = address_of(spec)
    return bmc.start_flash(address, protocol)


def find_flash(spec: Spec, memo: Json) -> Answer:
    """Go on after a lost answer. An installation that may have begun is looked for, and not requested again."""
    if by_rshim(spec) or "task" in memo or "before" not in memo:
        return Absent()  # nothing but reads, or the start of a job, which starts once
    return _lost(memo)


def _lost(memo: Json) -> Wait:
    known = {**memo, "task": "", "began": clock.now().isoformat()}
    return Wait(after=_LOOK, memo=known, percent=12, sentence="The answer of the BMC was lost. Its task is looked for.")


def _followed(spec: Spec, memo: Json) -> Answer:
    config: Config = spec.config
    waited = _since(memo["began"])
    try:
        with session(spec) as bmc:
            bmc.hide(spec.resource.secrets[PATH])
            task = _task(bmc, spec, memo)
    except _AWAY as error:
        if waited > config.flash_limit:
            return _too_long(waited, str(error))
        return Wait(after=_LOOK, memo=memo, percent=memo.get("percent", 12), sentence=_sentence(str(error)))
    if task is None or task.state == "unknown":
        return _unknown(memo, config)
    memo = {**memo, "task": task.id, "unknown": None}
    if task.state != "running":
        return _ended(spec, memo, task)
    if waited > config.flash_limit:
        return _too_long(waited, task.message)
    percent = max(int(memo.get("percent", 12)), 12 + int((task.percent or 0) * 0.6))
    return Wait(after=_LOOK, memo={**memo, "percent": percent}, percent=percent, sentence=_sentence(task.message))


def _unknown(memo: Json, config: Config) -> Answer:
    """Wait for the task, which the BMC does not show. An installation may go on meanwhile, so none is requested."""
    since = (memo.get("unknown") or clock.now().isoformat()) if memo["task"] else memo["began"]
    if _since(since) > min(_LOST, config.flash_limit):
        what = "does not know the task of the installation any more" if memo["task"] else _NOT_LISTED
        message = f"The BMC {what}. The installation was not requested again. Look at the card before it is used."
        return Failed(scope=Scope.OFFER, code="flash_unknown", message=message, quarantines_carrier=True)
    sentence = "The BMC does not know the task of the installation." if memo["task"] else "The BMC lists no task yet."
    percent = int(memo.get("percent", 12))
    return Wait(after=_LOOK, memo={**memo, "unknown": since}, percent=percent, sentence=_sentence(sentence))


def _task(bmc: CardSession, spec: Spec, memo: Json) -> BmcTask | None:
    if not memo["task"]:
        return bmc.find_flash(spec.resource.secrets[PATH], memo["before"])
    return bmc.task(memo["task"])


def _ended(spec: Spec, memo: Json, task: BmcTask) -> Answer:
    config: Config = spec.config
    if task.state == "done":
        return Ready(facts={"flashed": config.image, "task": task.id}, log=f"The BMC has installed {config.image}.")
    found = meaning(task.message)
    if found.outcome == "identical":
        return Ready(facts={"flashed": config.image, "task": task.id}, log=found.sentence)
    if found.outcome == "later":
        since = memo.get("since") or clock.now().isoformat()
        if _since(since) <= config.flash_limit:
            # This request was refused, so another one is made later, in place of it.
            return Wait(after=_LATER, memo={"since": since}, percent=10, sentence=found.sentence)
        return Failed(scope=Scope.OFFER, code="bmc_copies", message=f"{found.sentence} This did not end in time.")
    return Failed(scope=found.scope, code=found.code, message=found.sentence[:1500])


def _too_long(waited: float, said: str) -> Failed:
    message = f"The installation has not ended within {waited:.0f} s. {said}".strip()[:1500]
    return Failed(scope=Scope.OFFER, code="flash_limit", message=message)


def _sentence(said: str) -> str:
    return f"The BMC installs the image. {said}".strip()[:500]


def _since(began: str) -> float:
    return (clock.now() - dt.datetime.fromisoformat(began)).total_seconds()


@bmc_told
def wait_until_running(spec: Spec, memo: Json) -> Answer:
    """Wait until the BMC reports that the new operating system runs. Firmware that does not report it is not asked.

    Then remove the certificate of the web root from the BMC.
    """
    return _started(spec, memo, {})


@bmc_told
def verify_versions(spec: Spec, memo: Json) -> Answer:
    """Wait until the operating system runs after the restart of the host, with the versions of the config."""
    return _started(spec, memo, spec.config.versions)


def _started(spec: Spec, memo: Json, wanted: Mapping[str, str]) -> Answer:
    config: Config = spec.config
    if not has_bmc(card_of(spec)):
        return Ready(attributes=installed(config))
    began = memo.get("began") or clock.now().isoformat()
    try:
        with session(spec) as bmc:
            said = _missing(bmc, wanted)
            if not said:
                return Ready(attributes=installed(config), facts=https.forget_webroot(bmc, spec))
    except _AWAY as error:
        said = str(error)
    waited = _since(began)
    if waited > config.boot_limit:
        message = f"The card was not ready within {waited:.0f} s. {said}"[:1500]
        return Failed(scope=Scope.OFFER, code="not_running", message=message)
    return Wait(after=_LOOK, memo={"began": began}, percent=75, sentence=f"The card starts. {said}"[:500])


def _missing(bmc: CardSession, wanted: Mapping[str, str]) -> str:
    """Return a sentence about what a started card lacks; empty if it lacks nothing."""
    if bmc.os_runs() is False:
        return "Its operating system does not run yet."
    versions = bmc.versions() if wanted else {}
    wrong = [f"{name} has version {versions.get(name) or 'none'}, not {one}" for name, one in wanted.items()
             if versions.get(name) != one]  # fmt: skip
    return f"{'; '.join(wrong)}." if wrong else ""


def installed(config: Config) -> Json:
    """Return the attributes of a DPU that its config decides."""
    found = {"image": config.image, "doca": config.doca, "flavor": config.flavor, "mode": "dpu"}
    return {name: value for name, value in found.items() if value}


def _changed(spec: Spec) -> bool:
    """Return whether the build may have changed the card, and the card is still leased."""
    return RSHIM in spec.resource.facts and (CARD in spec.parents or CARD in spec.resource.parents)


@bmc_told
def wait_for_flash(spec: Spec, memo: Json) -> Answer:
    """Before a destruction, wait for an installation that may still run.

    After the same limit, the card is quarantined, and stays with the DPU: the engine goes on trying.
    """
    config: Config = spec.config
    if not _changed(spec):
        return Ready()
    if by_rshim(spec):
        return streaming.wait_for_stream(spec, memo)
    began = memo.get("began") or clock.now().isoformat()
    try:
        with session(spec) as bmc:
            bmc.hide(spec.resource.secrets[PATH])
            runs = bmc.flashes(spec.resource.secrets[PATH])
    except _AWAY as error:
        said = str(error)
    else:
        if not runs:
            return Ready()
        said = "The BMC still installs an image on the card."
    if (waited := _since(began)) > config.flash_limit:
        message = f"The card could not be handed back within {waited:.0f} s. {said}"[:1500]
        return Failed(scope=Scope.OPERATOR, code="not_ended", message=message, quarantines_carrier=True)
    return Wait(after=_LOOK, memo={"began": began}, sentence=said[:500])


@bmc_told
def leave_rshim(spec: Spec, memo: Json) -> Answer:
    """Give the rshim back to the one who had it: the host, or the BMC if the image came from the host.

    Also remove the certificate of the web root from the BMC, which is still there if the build has failed.
    """
    if not _changed(spec):
        return Ready()
    before = spec.resource.facts[RSHIM]
    if not has_bmc(card_of(spec)):
        return streaming.give_back(spec, memo)
    has_it = before is not by_rshim(spec)
    if has_it and not https.is_trusted(spec):
        return Ready()
    with session(spec) as bmc:
        if not has_it and (answer := _rshim(bmc, spec, memo, before)):
            return answer
        return Ready(facts=https.forget_webroot(bmc, spec))


def lease_host(spec: Spec, memo: Json) -> Answer:
    """Lease the host of a card that was installed by rshim, if its end needs it."""
    return streaming.have_host_again(spec, memo) if _changed(spec) else Ready()


def vacate(spec: Spec, memo: Json) -> Answer:
    """Let nobody else be on the host of the card, because its network goes away with the system of the card."""
    if not _changed(spec):
        return Ready()
    return vacate_host(spec, f"Card {card_of(spec).name} is switched off.")


def _stops(bmc: CardSession) -> list[PowerAction]:
    """Return what the BMC offers to switch its card off, by force first."""
    offered = bmc.power_actions()
    return [one for one in (PowerAction.OFF, PowerAction.SHUTDOWN) if one in offered]


def _cannot_stop(spec: Spec) -> str:
    return f"The BMC of card {spec.resource.facts['card']} offers no way to switch it off."


@bmc_told
def park(spec: Spec, memo: Json) -> Answer:
    """Switch the operating system of the card off, so that nothing of a former lease runs."""
    if not _changed(spec) or spec.config.park != "power_off":
        return Ready()
    if not has_bmc(card_of(spec)):
        return streaming.stop(spec, memo)
    with session(spec) as bmc:
        if bmc.power() is PowerState.OFF:
            return Ready()
        stops = _stops(bmc)
        if not stops:
            message = f"{_cannot_stop(spec)} It is quarantined, because its operating system goes on running."
            return Failed(scope=Scope.OPERATOR, code="cannot_park", message=message, quarantines_carrier=True)
        if memo.get("asked") and _since(memo["asked"]) > _OFF:
            message = "The BMC does not switch off the operating system of the card."
            return Failed(scope=Scope.STEP, code="not_off", message=message)
        bmc.switch(stops[0])
    asked = memo.get("asked") or clock.now().isoformat()
    return Wait(after=_LOOK, memo={"asked": asked}, sentence="The operating system of the card is switched off.")
