"""What the steps of a cloud host do: one short call each, on whatever cloud."""

from __future__ import annotations

import datetime as dt
import functools
import secrets
from collections.abc import Callable
from dataclasses import replace
from typing import TypeAlias

from blueprints.answers import Absent, Answer, Failed, Json, Ready, Scope, Unknown, Wait
from blueprints.cloud.client import Client, Console, StopsStarts
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.order import counted, instance, order
from blueprints.cloud.values import Instance, Lifecycle, Market, Underway
from blueprints.contract import Act
from blueprints.specs import ResourceView, Spec
from drydock.core import clock
from interfaces.keys import new_key_pair

Calls: TypeAlias = Callable[[Client, Spec, Json], Answer]
ClientOf: TypeAlias = Callable[[ResourceView], Client]
"""How a kind comes by the client of a resource's account."""

_OVER = (Lifecycle.TERMINATED, Lifecycle.FAILED, Lifecycle.TERMINATING)


def called(client_of: ClientOf, calls: Calls) -> Act:
    """An act of a function that calls a cloud: what the cloud says no to becomes its answer."""

    @functools.wraps(calls)
    def act(spec: Spec, memo: Json) -> Answer:
        try:
            return calls(client_of(spec.resource), spec, memo)
        except CloudError as error:
            return _refusal(error, spec, memo)

    return act


def _refusal(error: CloudError, spec: Spec, memo: Json) -> Answer:
    answer = error.answer(counted(spec.resource) if error.reach else "")
    return replace(answer, memo=memo) if isinstance(answer, Wait) else answer


def decide(spec: Spec, memo: Json) -> Answer:
    """Whatever is left to chance or to the clock, once: the control account's key, the host's key, the attempt's name
    and, where the machine has a longest life, its end. Kept before anything is made."""
    if "attempt" in spec.resource.facts:
        return Ready()
    config = spec.resource.blueprint.config
    control = new_key_pair("drydock")
    host = new_key_pair("drydock-host") if config.host_key == "injected" else None
    ends_at = clock.now() + dt.timedelta(seconds=config.longest_seconds) if config.longest_seconds else None
    watched = config.interruption and spec.resource.attributes.get("market") == Market.SPOT
    return Ready(
        facts={
            "attempt": secrets.token_hex(8), "public_key": control.public,
            **({"host_keys": [host.public]} if host else {}),
            "user": config.user, "port": config.ssh_port, "ends_at": ends_at.isoformat() if ends_at else "",
            **({"interruption": "watched"} if watched else {}),
        },
        secrets={"private_key": control.private, **({"host_private": host.private} if host else {})},
        dies_at=ends_at,
    )  # fmt: skip


def choose_image(client: Client, spec: Spec, memo: Json) -> Answer:
    """The newest image that the config's words choose, or the one that the lease requires."""
    said, config = spec.resource.attributes, spec.resource.blueprint.config
    wanted = {"id": said["image"]} if said.get("image") else config.image.wanted()
    found = client.image(said.get("region", ""), wanted, said.get("arch", "x86_64"))
    told = f"image {found.id} {found.name}".strip()
    return Ready(facts={"image": found.id}, attributes={"image": found.id}, log=told)


def prepare(client: Client, spec: Spec, memo: Json) -> Answer:
    """What the instance stands on: firewall, network card, address."""
    made = client.prepare(order(spec))
    return _wait(made) if isinstance(made, Underway) else Ready(facts={"stands_on": dict(made)})


def create(client: Client, spec: Spec, memo: Json) -> Answer:
    """Ask for the instance once; where the provider works on it, ask what has become of it."""
    wanted = order(spec)
    try:
        if "handle" in memo:
            return _made(client.created(wanted, memo["handle"]))
        return _made(client.create(wanted, spec.resource.facts.get("stands_on", {})))
    except CloudError as error:
        if error.meaning not in _REFUSALS:
            raise
        answer = _refusal(error, spec, memo)
        if isinstance(answer, Failed) and error.meaning is Meaning.INVALID:
            # Wrong for this type, as far as one refusal tells: others may do.
            answer = replace(answer, scope=Scope.OFFER, blames_request=True, remember=_WRONG)
        return replace(answer, facts={"refused": True}) if isinstance(answer, Failed) else answer


_WRONG = 3600.0
"""Seconds for which an offer that was refused as invalid is not tried again."""
_REFUSALS = (
    Meaning.NO_CAPACITY, Meaning.QUOTA, Meaning.NOT_OFFERED, Meaning.POLICY, Meaning.CREDENTIALS, Meaning.INVALID,
)  # fmt: skip
"""After one of these nothing of the create appears later: who ends it need not wait and look."""


def find(client: Client, spec: Spec, memo: Json) -> Answer:
    """Whether a create whose answer was lost has made it. Reads may lag behind, so an absence counts only after a
    while."""
    if (found := client.find(order(spec))) is not None:
        return _made(found)
    since = memo.get("looking_since") or clock.now().isoformat()
    if clock.now() - dt.datetime.fromisoformat(since) < dt.timedelta(seconds=client.find_after):
        return Unknown(
            message="The answer to the create was lost; it is looked for.", memo=memo | {"looking_since": since}
        )
    return Absent()


def _made(made: Instance | Underway) -> Answer:
    if isinstance(made, Underway):
        return _wait(made)
    if made.state is Lifecycle.FAILED:
        return Failed(scope=Scope.OFFER, code="failed", message=made.reason or "The provider gave up on it.")
    facts = {"instance_id": made.id, "made_at": clock.now().isoformat()}
    return Ready(facts=facts, log=f"instance {made.id}")


def _wait(work: Underway) -> Wait:
    return Wait(after=work.after, memo={"handle": dict(work.handle)}, percent=work.percent, sentence=work.sentence)


_LOOKS = 3
"""So many listings that do not tell of it, and it is read by itself."""


def boot(client: Client, spec: Spec, memo: Json) -> Answer:
    """Until it runs and has an address. The listing of its place tells, and wakes this step; where that says nothing
    for long, it is read by itself."""
    seen, looks = spec.resource.facts.get("seen", {}), memo.get("looks", 0)
    if looks >= _LOOKS and seen.get("state") != Lifecycle.RUNNING:
        looks, found = 0, _read(client, spec)
        seen = seen_of(client.ended(instance(spec.resource)) if found is None else found)
    if seen.get("state") in _OVER:
        return Failed(
            scope=Scope.OFFER, code=seen["state"], message=seen.get("reason") or f"It is {seen['state']} before it ran."
        )
    address = address_of(spec.resource, seen)
    if seen.get("state") == Lifecycle.RUNNING and address:
        facts = {"address": address, "parts": list(seen.get("parts", ()))}
        return Ready(facts=facts, log=f"running at {address}")
    state = seen.get("state", "asked for")
    return Wait(after=2 * client.status_every, memo={"looks": looks + 1}, sentence=f"The machine is {state}.")


def _read(client: Client, spec: Spec) -> Instance | None:
    """The instance as it is. One made a moment ago that reads do not know yet is asked for again, under its token:
    that makes no second one, and tells of the first."""
    there = instance(spec.resource)
    found = client.instance(there.location, there.zone, there.key, there.id)
    if found is None and _unproven(client, spec):
        again = client.create(order(spec), spec.resource.facts.get("stands_on", {}))
        return again if isinstance(again, Instance) else replace(there, state=Lifecycle.PENDING)
    return found


def _unproven(client: Client, spec: Spec) -> bool:
    """Whether it was made so lately that not to find it proves nothing."""
    made_at = spec.resource.facts.get("made_at")
    if not client.unseen_for or not made_at:
        return False
    return clock.now() - dt.datetime.fromisoformat(made_at) < dt.timedelta(seconds=client.unseen_for)


def seen_of(found: Instance) -> Json:
    """What a listing tells of an instance, as the resource keeps it."""
    return {
        "instance_id": found.id, "location": found.location, "zone": found.zone, "state": found.state.value,
        "public_address": found.public_address, "private_address": found.private_address, "type": found.type,
        "reason": found.reason, "parts": list(found.parts), **({"leaving": found.leaving} if found.leaving else {}),
    }  # fmt: skip


def address_of(resource: ResourceView, seen: Json) -> str:
    """Where it is reached: at its public address unless the blueprint keeps it private."""
    name = "public_address" if resource.blueprint.config.public_address else "private_address"
    return str(seen.get(name) or "")


def look(spec: Spec, memo: Json) -> Answer:
    """What the last listing told of it."""
    seen = spec.resource.facts.get("seen", {})
    state = seen.get("state", Lifecycle.RUNNING)
    if state in (*_OVER, Lifecycle.STOPPED, Lifecycle.STOPPING):
        return Failed(scope=Scope.STEP, code=state, message=f"It is {state}. {seen.get('reason', '')}".strip())
    address = address_of(spec.resource, seen) or spec.resource.facts.get("address", "")
    return Ready(facts={"power": "on", "address": address})


def terminate(client: Client, spec: Spec, memo: Json) -> Answer:
    """Ask for its end until a read shows that it is gone. One whose create was never answered may still appear."""
    there = instance(spec.resource)
    found = client.instance(there.location, there.zone, there.key, there.id)
    since = memo.get("since") or clock.now().isoformat()
    if found is None and there.id and _unproven(client, spec):
        client.terminate(there)
        return _still(since, "The machine is being terminated; its provider does not tell of it yet.")
    if found is None or found.state is Lifecycle.TERMINATED:
        return (
            Ready() if there.id or _nothing_asked(spec) or _waited(client, since) else _still(since, "It may appear.")
        )
    if found.state is not Lifecycle.TERMINATING:
        client.terminate(found)
    return _still(since, "The machine is being terminated.")


def sweep(client: Client, spec: Spec, memo: Json) -> Answer:
    """Whatever else was made under its key. What it was to stand on may still appear, where that was never answered."""
    there, untagged = instance(spec.resource), list[str]()
    left = client.sweep(
        there.location, there.zone, there.key, spec.tags, known=_known(spec), report=untagged.append
    )  # fmt: skip
    since, log = memo.get("since") or clock.now().isoformat(), " ".join(untagged)
    if left:
        return replace(_still(since, f"Still there: {', '.join(left)}."[:500]), log=log)
    if _unprepared(spec) and not _waited(client, since):
        return replace(_still(since, "What it was to stand on may appear."), log=log)
    return Ready(log=log)


def _known(spec: Spec) -> list[str]:
    """The ids of what was made for it, by which it is found without its tags."""
    facts = spec.resource.facts
    return [*map(str, facts.get("stands_on", {}).values()), *facts.get("parts", ())]


def _unprepared(spec: Spec) -> bool:
    """Its network may have been asked for, and no answer was kept."""
    return "image" in spec.resource.facts and "stands_on" not in spec.resource.facts


def _nothing_asked(spec: Spec) -> bool:
    """Nothing was asked for, or it was refused for certain."""
    return "stands_on" not in spec.resource.facts or bool(spec.resource.facts.get("refused"))


def _waited(client: Client, since: str) -> bool:
    return clock.now() - dt.datetime.fromisoformat(since) >= dt.timedelta(seconds=client.find_after)


def _still(since: str, sentence: str) -> Wait:
    return Wait(after=3.0, memo={"since": since}, sentence=sentence)


def switch(wanted: tuple[str, ...], to: Lifecycle) -> Calls:
    """Stop or start it, where that is what the phase wants, and wait until it has happened."""

    def act(client: Client, spec: Spec, memo: Json) -> Answer:
        if spec.wanted.get("power") not in wanted:
            return Ready()
        if not isinstance(client, StopsStarts):
            return Failed(
                scope=Scope.OPERATOR, code="not_supported", message=f"{client.provider} cannot stop and start machines."
            )
        there = instance(spec.resource)
        found = client.instance(there.location, there.zone, there.key, there.id)
        if found is None:
            return Failed(scope=Scope.STEP, code="gone", message="The machine is gone.")
        if found.state is to:
            return Ready(facts=_where(spec.resource, found) if to is Lifecycle.RUNNING else {})
        if not memo.get("asked"):
            client.start(found) if to is Lifecycle.RUNNING else client.stop(found)
        return Wait(after=3.0, memo={"asked": True}, sentence=f"The machine is {found.state}.")

    return act


def _where(resource: ResourceView, found: Instance) -> Json:
    address = address_of(resource, seen_of(found))
    return {"address": address} if address else {}


def console(client: Client, resource: ResourceView) -> str:
    """The last lines of what it wrote on its console, where that can be read."""
    if not isinstance(client, Console) or not resource.facts.get("instance_id"):
        return ""
    try:
        return client.console(instance(resource))[-15_000:]
    except CloudError as error:
        return f"(its console could not be read: {error.message})"


def with_console(client_of: ClientOf, act: Act, seconds: float) -> Act:
    """An act after whose failure, or when it has waited for long, the guest's console is kept with the resource."""

    @functools.wraps(act)
    def watched(spec: Spec, memo: Json) -> Answer:
        since = memo.get("since") or clock.now().isoformat()
        answer = act(spec, memo)
        waited = clock.now() - dt.datetime.fromisoformat(since)
        late = isinstance(answer, Wait) and waited > dt.timedelta(seconds=0.8 * seconds) and not memo.get("shown")
        shown = console(client_of(spec.resource), spec.resource) if late or isinstance(answer, Failed) else ""
        match answer:
            case Failed():
                return replace(answer, log=shown or answer.log)
            case Wait():
                memo = {**answer.memo, "since": since, "shown": late or bool(memo.get("shown"))}
                return replace(answer, log=shown or answer.log, memo=memo)
        return answer

    return watched
