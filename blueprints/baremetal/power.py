"""Steps that switch a host by its BMC, and wait until it accepts our login.

A BMC that accepts a request has not carried it out: the power is read back until it is the requested one. Every step
may be repeated, because asking for a power that the machine already has changes nothing.
"""

from __future__ import annotations

from dataclasses import replace

from blueprints.accounts import actions as accounts
from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.baremetal.config import Config
from blueprints.baremetal.network import left_behind
from blueprints.baremetal.sessions import SWITCHED_OFF, bmc_told, patience, sentence_of, session, since, whole
from blueprints.bmc.contract import Bmc
from blueprints.bmc.errors import BmcError
from blueprints.bmc.values import PowerAction, PowerState
from blueprints.hostshell import NeedsOperator
from blueprints.specs import ResourceView, Spec
from drydock.core import clock

_LOOK = 1.5
"""Seconds between two reads of the power, and between two attempts to log in.

Less than the interval of the sweep, which calls a step again when it is due: otherwise only every other sweep does.
"""
_BESIDE_SSH = 5.0
"""Seconds for the BMC if the host has not answered over SSH, because the step may take 15 s in all."""
_ATTEMPTS = 3
"""Attempts to switch off an idle host, which stays on if they fail."""
_ASKED = "asked_at"
_WORDS = {PowerState.ON: "on", PowerState.OFF: "off"}


def is_meant_on(resource: ResourceView) -> bool:
    """Return whether the host should be on: by request, because it is leased, or because idle hosts stay on."""
    if resource.power_wanted:
        return resource.power_wanted == "on"
    return resource.blueprint.config.idle_power == "on" or bool(resource.lease_facts())


def bring(bmc: Bmc, spec: Spec, memo: Json, wanted: PowerState, *, at_once: bool = False) -> Answer | None:
    """Ask the BMC for a power, and read it back. Return None once it has the power, else the answer of the step.

    A host is shut down by its operating system, if the BMC can ask for it, before its power is cut. With `at_once`, the
    operating system is not asked.
    """
    config: Config = spec.config
    state = bmc.power()
    if state is wanted:
        return None
    if _ASKED not in memo:
        first = PowerAction.OFF if at_once and wanted is PowerState.OFF else _first(bmc, config, wanted)
        return _ask(bmc, memo, wanted, first)
    waited, action = since(memo[_ASKED]), PowerAction(memo["action"])
    if action is PowerAction.SHUTDOWN and waited >= config.shutdown_timeout:
        return _ask(bmc, memo, wanted, PowerAction.OFF)
    limit = config.power_timeout + (config.shutdown_timeout if action is PowerAction.SHUTDOWN else 0.0)
    if waited >= limit:
        message = f"The BMC accepted to switch the host {_WORDS[wanted]} {waited:.0f} s ago, but its power is {state}."
        return Failed(scope=Scope.STEP, code="power", message=message)
    if waited >= limit / 2 and not memo.get("again") and action is not PowerAction.SHUTDOWN:
        bmc.switch(action)
        memo = {**memo, "again": True}
    return _waits(memo, wanted, percent=min(50, int(50 * waited / limit)))


def _first(bmc: Bmc, config: Config, wanted: PowerState) -> PowerAction:
    if wanted is PowerState.ON:
        return PowerAction.ON
    soft = config.shutdown_timeout and PowerAction.SHUTDOWN in bmc.power_actions()
    return PowerAction.SHUTDOWN if soft else PowerAction.OFF


def _ask(bmc: Bmc, memo: Json, wanted: PowerState, action: PowerAction) -> Answer | None:
    bmc.switch(action)
    if bmc.power() is wanted:
        return None
    return _waits({**memo, _ASKED: clock.now().isoformat(), "action": action.value}, wanted, percent=0)


def _waits(memo: Json, wanted: PowerState, *, percent: int) -> Wait:
    sentence = f"The host is being switched {_WORDS[wanted]}."
    return Wait(after=_LOOK, memo=memo, percent=percent, sentence=sentence)


def kept_off(spec: Spec) -> Failed | None:
    """Return the failure of a step that needs a host which was switched off on request."""
    if spec.resource.power_wanted != "off":
        return None
    message = "The host was switched off on request, and is kept off until it is switched on."
    return Failed(scope=Scope.STEP, code=SWITCHED_OFF, message=message)


@bmc_told
def switch_on(spec: Spec, memo: Json) -> Answer:
    """Switch the host on as part of its enrolment, and read the power back."""
    if kept := kept_off(spec):
        return kept
    with session(spec.resource, whole(spec)) as bmc:
        was_on = not memo and bmc.power() is PowerState.ON
        waits = None if was_on else bring(bmc, spec, memo, PowerState.ON)
    if waits is None:
        return Ready(power="on", facts={} if was_on else {"switched_on_at": clock.now().isoformat()})
    if isinstance(waits, Failed) and isinstance(accounts.reach(spec, {}), Ready):
        return Ready(power="on", log=f"{waits.message} It answers over SSH, so it is on.")
    return waits


@bmc_told
def make_ready(spec: Spec, memo: Json) -> Answer:
    """Make sure that the host is on and accepts our login. Switch it on if it is off.

    A host that is on and does not answer fails at once, so that a lease is placed on another host.
    """
    if spec.phase == "activate" and (kept := kept_off(spec) or left_behind(spec)):
        return kept
    silent: Answer | None = None
    if not memo and spec.resource.power != "off":
        silent = accounts.reach(spec, {})
        if isinstance(silent, Ready):
            return silent
    try:
        with session(spec.resource, min(patience(spec), _BESIDE_SSH if silent else spec.deadline)) as bmc:
            if silent is not None and bmc.power() is PowerState.ON:
                return silent
            waits = bring(bmc, spec, memo, PowerState.ON)
    except BmcError as error:
        if not isinstance(silent, Failed):
            raise
        return replace(silent, message=f"{silent.message} Its BMC could not be asked: {sentence_of(spec, error)}")
    answer = waits or boot(spec, memo)
    return replace(answer, power="on") if isinstance(answer, Ready) else answer


def make_reachable(spec: Spec, memo: Json) -> Answer:
    """Make sure that a host that is handed back is on, unless Drydock has never reached it."""
    return make_ready(spec, memo) if "arch" in spec.resource.facts else Ready()


def boot(spec: Spec, memo: Json) -> Answer:
    """Wait until a host that is on accepts our login, for `boot_timeout` after it was switched on."""
    begun = memo.get("on_at") or memo.get(_ASKED) or clock.now().isoformat()
    answer, waited, limit = accounts.reach(spec, {}), since(begun), spec.config.boot_timeout
    if isinstance(answer, Ready):
        return Ready(log="" if waited < _LOOK else f"accepted logins after {waited:.0f} s")
    if waited >= limit:
        return answer
    sentence = "The host is on, and does not accept logins yet."
    percent = 50 + min(49, int(50 * waited / limit))
    return Wait(after=_LOOK, memo={**memo, "on_at": begun}, percent=percent, sentence=sentence)


def has_system(spec: Spec) -> bool:
    """Return whether the host has an operating system that accepts our login. During a rescue, it runs the ramdisk."""
    facts = spec.resource.facts
    return spec.config.ramdisk is None or (bool(facts.get("host_keys")) and not facts.get("rescue"))


def reach_patiently(spec: Spec, memo: Json) -> Answer:
    """Wait until a host that was switched on accepts our login. If it does not, the health checks decide what to do."""
    if spec.wanted.get("power") == "off":
        return Ready()
    if not has_system(spec):
        return Ready(log="No operating system is deployed on the host, so there is none to wait for.")
    answer = boot(spec, memo)
    if isinstance(answer, Failed):
        return Ready(log=f"The host accepts no logins: {answer.message}")
    return answer


@bmc_told
def wait_for_boot(spec: Spec, memo: Json) -> Answer:
    """Wait during enrolment until a host that was just switched on accepts our login."""
    begun = memo.get("on_at") or spec.resource.facts.get("switched_on_at")
    if begun is None or since(begun) >= spec.config.boot_timeout:
        return Ready()
    return boot(spec, {**memo, "on_at": begun})


@bmc_told
def switch_off(spec: Spec, memo: Json) -> Answer:
    """Switch the host off if the phase requires it."""
    if spec.wanted.get("power") not in ("off", "cycle"):
        return Ready()
    with session(spec.resource, whole(spec)) as bmc:
        return bring(bmc, spec, memo, PowerState.OFF) or Ready(resource_facts=_after_rescue(spec))


def _after_rescue(spec: Spec) -> Json:
    """Return the facts of a host that was restarted: one in a rescue boots from its disk again."""
    return {"rescue": None} if spec.resource.facts.get("rescue") else {}


@bmc_told
def switch_on_again(spec: Spec, memo: Json) -> Answer:
    """Switch the host on if the phase requires it."""
    if spec.wanted.get("power") not in ("on", "cycle"):
        return Ready()
    with session(spec.resource, whole(spec)) as bmc:
        return bring(bmc, spec, memo, PowerState.ON) or Ready()


@bmc_told
def reboot(spec: Spec, memo: Json) -> Answer:
    """Shut the host down and switch it on again. Reset it at once if it does not answer."""
    if "way" not in memo:
        way = "orderly" if isinstance(accounts.reach(spec, {}), Ready) else "reset"
        return Wait(after=0.0, memo={"way": way}, percent=10, sentence="The host is being rebooted.")
    with session(spec.resource, whole(spec)) as bmc:
        if memo["way"] == "reset" and bmc.power() is not PowerState.OFF:
            offered = bmc.power_actions()
            if hard := next((one for one in (PowerAction.RESET, PowerAction.CYCLE) if one in offered), None):
                bmc.switch(hard)
                return Ready(resource_facts=_after_rescue(spec), log="It did not answer, and was reset.")
        if not memo.get("down"):
            waits = bring(bmc, spec, memo, PowerState.OFF)
            return waits or Wait(
                after=0.0, memo={"way": "orderly", "down": True}, percent=50, sentence="The host is off."
            )
        return bring(bmc, spec, memo, PowerState.ON) or Ready(resource_facts=_after_rescue(spec))


def rest(spec: Spec, memo: Json) -> Answer:
    """Switch off a host on which no lease is left, if the blueprint says so. A host that cannot be switched stays on.

    If another lease was placed on the host meanwhile, the host is switched on again.
    """
    if spec.config.idle_power == "on":
        return Ready()
    wanted = PowerState.ON if spec.lease is not None and spec.lease.others() else PowerState.OFF
    if wanted is PowerState.ON and not memo:
        return Ready()
    asked = memo if memo.get("wanted", wanted.value) == wanted.value else {}
    try:
        with session(spec.resource, patience(spec)) as bmc:
            waits = bring(bmc, spec, {**asked, "wanted": wanted.value}, wanted)
    except BmcError as error:
        return _leave_on(memo, sentence_of(spec, error))
    except NeedsOperator as error:
        return _leave_on(memo, error.message)
    if isinstance(waits, Failed):
        return _leave_on(memo, waits.message)
    return waits or Ready(power="on" if wanted is PowerState.ON else "off")


def rest_if_reached(spec: Spec, memo: Json) -> Answer:
    """Switch off a host that is handed back, as `rest` does. A host that was never reached keeps its power."""
    return rest(spec, memo) if "arch" in spec.resource.facts else Ready()


def _leave_on(memo: Json, message: str) -> Answer:
    failures = memo.get("failures", 0) + 1
    if failures < _ATTEMPTS:
        return Wait(after=_LOOK, memo={**memo, "failures": failures}, sentence=f"The host stays on: {message}"[:500])
    return Ready(log=f"The host could not be switched off: {message}")
