"""The steps that park a card after its DPU: DPF deletes a DPU, and lets what was installed run on.

They are part of the destruction of the DPU, which holds the card until it is over. So a card that could not be parked
serves nobody. Each step can be repeated, and the fact `parked` keeps a card from being parked twice.
"""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

from blueprints.answers import Answer, Failed, Health, Hold, Json, Need, NeededLease, Ready, Scope, Wait
from blueprints.bmc.errors import TRANSIENT, BmcBusy, BmcError, BmcRefused
from blueprints.contract import Act, Plan, Step
from blueprints.dpf import Site, bmc, kube_told, opened
from blueprints.dpu.dpf import actions, provisioning
from blueprints.dpu.dpf.config import Config
from blueprints.specs import BlueprintView, Problem, ResourceView, Spec
from drydock.core import clock

PARKED, FAILED = "parked", "park_failed"
"""Facts of a DPU that is being destroyed: how its card was parked, and why that failed before."""
_IMAGE = "park_image"
_PAUSE = 15.0
_LONG = 7 * 86_400.0


def plan() -> Plan:
    """Return the steps that park the card as the config says. They follow after the DPU has been removed."""
    return (
        Step(name="park_vacate", act=_unparked(vacate), deadline=_LONG, applies=_switches),
        Step(name="park", act=park, deadline=_LONG),
        Step(name="park_image", act=have_image, deadline=_LONG, applies=_reimages),
        Step(name="park_hold", act=_unparked(actions.hold_host), deadline=_LONG, applies=_reimages),
        Step(name="park_set", act=_unparked(create_set), interruptible=False, applies=_reimages),
        Step(name="park_install", act=_unparked(install), deadline=_LONG, interruptible=False, applies=_reimages),
        Step(name="park_remove", act=actions.delete_sets, deadline=actions.HANGS, applies=_reimages),
        Step(name="park_removed", act=actions.wait_until_removed, deadline=actions.HANGS, applies=_reimages),
        Step(name="parked", act=confirm),
    )


def _reimages(config: Config) -> bool:
    return config.park == "reimage"


def _switches(config: Config) -> bool:
    return config.park in bmc.BY_BMC


def _card(spec: Spec) -> ResourceView | None:
    """Return the card that must be parked; None if DPF cannot have touched one, or if it is parked."""
    touched = "flavor_object" in spec.resource.facts  # stored by the step before the one that lets DPF begin
    lease = spec.parents.get(actions.CARD)
    return lease.resource if touched and lease is not None and not spec.resource.facts.get(PARKED) else None


def _unparked(act: Act) -> Act:
    """Wrap an act so that it does nothing for a card that is parked, or needs not to be."""

    def called(spec: Spec, memo: Json) -> Answer:
        return act(spec, memo) if _card(spec) is not None else Ready()

    return called


def vacate(spec: Spec, memo: Json) -> Answer:
    """Let nobody else be on the host of the card, because its network goes away with the system of the card."""
    return actions.vacate_host(spec, f"Card {spec.parents[actions.CARD].resource.name} is parked.")


def park(spec: Spec, memo: Json) -> Answer:
    """Switch the card off or wipe it by its BMC, or say what still runs on it. Leaves `reimage` to the other steps."""
    card, config = _card(spec), spec.config
    if card is None or config.park == "reimage":
        return Ready()
    if config.park == "leave":
        reason = f"Card {card.name} still runs the image {config.image} of DPU {spec.resource.name}, which is gone."
        hint = "Set `park` of the blueprint, so that cards are parked."
        return Ready(carrier_health=Health(state="degraded", reason=f"{reason} {hint}"), facts={PARKED: "leave"})
    access = bmc.known(card)
    if access is None:
        cure = "Set bmc_credential, and bmc_ca or bmcs, in the card's blueprint; or set `park` to leave or reimage."
        return _failure(spec, f"Card {card.name} cannot be parked by {config.park}: its BMC is not known. {cure}")
    try:
        with bmc.opened(card, access, spec.deadline * 0.9) as session:
            if said := _other_card(card, session.state()[0], access.address):
                return _failure(spec, said)
            answer = session.wipe(memo) if config.park == "wipe" else session.switch_off(memo)
    except BmcError as error:
        return _later(spec, card, memo, error)
    if isinstance(answer, Ready):
        return replace(answer, facts={PARKED: config.park, FAILED: ""})
    return _in_time(spec, card, memo, answer)


def _other_card(card: ResourceView, serial: str, address: str) -> str:
    """Return why nothing may be done by a BMC that is not that of the card; empty if it is."""
    wanted = str(card.attributes.get("serial") or "")
    if not wanted or wanted.strip().casefold() == serial.strip().casefold():
        return ""
    return (
        f"The BMC at {address} belongs to card {serial or 'without a serial number'}, not to {wanted}. Nothing was "
        "done by it. Correct `bmcs` of the card's blueprint, or the address in its DPUDevice."
    )


def _later(spec: Spec, card: ResourceView, memo: Json, error: BmcError) -> Answer:
    """Try again later after an error that may pass, until park_timeout."""
    if not isinstance(error, TRANSIENT):
        return _failure(spec, f"Card {card.name} cannot be parked: {error}")
    pause = min(error.retry_after or _PAUSE, 600.0) if isinstance(error, BmcBusy) else _PAUSE
    # What the BMC refuses now is asked for anew. An answer that was lost is not: the memo says what was asked.
    kept = {} if isinstance(error, BmcRefused) else memo
    sentence = f"Card {card.name} is not parked yet: {error}"
    return _in_time(spec, card, memo, Wait(after=pause, memo=kept, sentence=sentence[:500]))


def _in_time(spec: Spec, card: ResourceView, memo: Json, answer: Answer) -> Answer:
    """Return the Wait of a card that is being parked, or the failure if that lasts too long."""
    assert isinstance(answer, Wait)
    since = str(memo.get("since") or clock.now().isoformat())
    lasted = (clock.now() - dt.datetime.fromisoformat(since)).total_seconds()
    if lasted > spec.config.park_timeout:
        return _failure(spec, f"Card {card.name} could not be parked within {lasted:.0f} s. {answer.sentence}")
    return replace(answer, memo={**answer.memo, "since": since})


def _failure(spec: Spec, message: str) -> Failed:
    """Return the failure of parking, after which the card is in quarantine. The engine tries it again."""
    return Failed(
        scope=Scope.OPERATOR, code=FAILED, message=message, quarantines_carrier=True, facts={FAILED: message[:500]}
    )


def problems(blueprint: BlueprintView) -> list[Problem]:
    """Return what is doubtful about the way of parking. Which cards have a BMC is checked with their own blueprint."""
    config: Config = blueprint.config
    if config.park_image and config.park != "reimage":
        return [Problem(message="park_image is used with `park: reimage` only.", field="park_image", fatal=False)]
    if config.root and config.park == "leave":
        message = (
            "With `root: true` and `park: leave`, systems of former owners run on idle cards. Set `park` to wipe, "
            "reimage or power_off."
        )
        return [Problem(message=message, field="park", fatal=False)]
    return []


def have_image(spec: Spec, memo: Json) -> Answer:
    """Lease the image that the card is parked with. After a failure, ask before the card is installed again."""
    card, config = _card(spec), spec.config
    if card is None:
        return Ready()
    if "node" not in spec.resource.facts:
        return Ready(facts={PARKED: "unused"}, log="Nobody has used the DPU, so its card is not installed again.")
    if failed := spec.resource.facts.get(FAILED):
        if spec.resolution is None:
            what = f"{failed} Answer yes to install the card again, or no to leave it as it is, in quarantine."
            return Hold(who="operator", what=what)
        if not spec.resolution.yes:
            return Ready(facts={PARKED: "left"})
    if _IMAGE not in spec.parents:
        url = config.park_image or config.image
        needed = NeededLease(name=_IMAGE, type=actions.IMAGE_TYPE, requirements={"url": url}, lifetime="phase")
        return Need(leases=(needed,))
    return Ready(facts={FAILED: ""})


@kube_told
def create_set(spec: Spec, memo: Json) -> Answer:
    """Create the DPUSet that installs the card once more."""
    with opened(spec) as site:
        return actions.set_of_card(site, spec, _name(site, spec), actions.object_of(spec.parents[_IMAGE]))


def install(spec: Spec, memo: Json) -> Answer:
    """Follow the installation. A card on which it fails is in quarantine, and is not installed again unasked."""
    answer = provisioning.provision(spec, memo)
    if isinstance(answer, Ready):
        return replace(answer, facts={PARKED: "reimage"})
    if isinstance(answer, Failed) and answer.scope is not Scope.STEP:
        said = f"Card {spec.parents[actions.CARD].resource.name} could not be parked: {answer.message}"
        return replace(answer, message=said, facts={FAILED: said[:500]}, quarantines_carrier=True)
    return answer


def confirm(spec: Spec, memo: Json) -> Answer:
    """Check that the card is parked, also if the config has changed between the steps."""
    if _card(spec) is None:
        return Ready()
    return Failed(scope=Scope.OPERATOR, code=FAILED, message="The card is not parked yet, as `park` was changed.")


def _name(site: Site, spec: Spec) -> str:
    return site.name("DPUSet", actions.park_key(spec.resource.key))


def wake(spec: Spec, memo: Json) -> Answer:
    """Start a card that was parked by switching it off. DPF can install only cards that run.

    A BMC that does not answer does not end the build: the card may be on.
    """
    card = spec.parents[actions.CARD].resource
    access = bmc.known(card)
    if access is None:
        return Ready()
    try:
        with bmc.opened(card, access, spec.deadline * 0.9) as session:
            if said := _other_card(card, session.state()[0], access.address):
                return Ready(log=said)
            return session.switch_on(memo)
    except BmcError as error:
        return Ready(log=f"It is not known whether the card is on: {error}")
