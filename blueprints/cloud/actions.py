"""The actions behind the steps of a cloud host, on any cloud. Each makes one short call."""

from __future__ import annotations

import datetime as dt
import functools
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from blueprints.answers import Absent, Answer, Failed, Json, Ready, Scope, Unknown, Wait
from blueprints.cloud import inventory
from blueprints.cloud.client import Client, Console, Firewall, StopsStarts
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.inventory import account, is_ours, same_account
from blueprints.cloud.launch_spec import counted, instance, order
from blueprints.cloud.values import Instance, Lifecycle, Market, Rule, Underway
from blueprints.contract import Act
from blueprints.hosts import lease_of
from blueprints.specs import ResourceView, Spec
from drydock.core import clock
from interfaces.keys import new_key_pair

Calls: TypeAlias = Callable[[Client, Spec, Json], Answer]
ClientOf: TypeAlias = Callable[[ResourceView], Client]
"""Returns the client of the account that a resource belongs to."""
_OVER = (Lifecycle.TERMINATED, Lifecycle.FAILED, Lifecycle.TERMINATING)


def called(client_of: ClientOf, calls: Calls) -> Act:
    """Return an action that calls a cloud and converts a CloudError to the step's answer."""

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
    """Choose all random and time-dependent values once, before anything is created.

    These are the control account's key, the host's key, the name of the attempt and, if machines have a longest
    lifetime, the machine's end.
    """
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
    """Choose the newest image that the config selects, or the image that the lease requires. Record the account."""
    said, config = spec.resource.attributes, spec.resource.blueprint.config
    wanted = {"id": said["image"]} if said.get("image") else config.image.wanted()
    found = client.image(said.get("region", ""), wanted, said.get("arch", "x86_64"))
    told = f"image {found.id} {found.name}".strip()
    return Ready(facts={"image": found.id, **account(client)}, attributes={"image": found.id}, log=told)


def prepare(client: Client, spec: Spec, memo: Json) -> Answer:
    """Create the objects that the instance needs: firewall, network card, address."""
    made = client.prepare(order(spec))
    return _wait(made) if isinstance(made, Underway) else Ready(facts={"stands_on": dict(made)})


def create(client: Client, spec: Spec, memo: Json) -> Answer:
    """Request the instance once. While the provider is working on it, poll the create."""
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
"""After one of these errors, the provider creates nothing, so `destroy` need not wait for objects to appear."""


def find(client: Client, spec: Spec, memo: Json) -> Answer:
    """Look for the instance of a create whose answer was lost.

    Reads may lag behind, so a missing instance counts as absent only after `find_after` seconds.
    """
    if (found := client.find(order(spec))) is not None:
        return _made(found)
    since = memo.get("looking_since") or clock.now().isoformat()
    if clock.now() - dt.datetime.fromisoformat(since) < dt.timedelta(seconds=client.find_after):
        return Unknown(
            message="The answer to the create request was lost; Drydock is looking for the machine.",
            memo=memo | {"looking_since": since},
        )
    return Absent()


def _made(made: Instance | Underway) -> Answer:
    if isinstance(made, Underway):
        return _wait(made)
    if made.state is Lifecycle.FAILED:
        return Failed(
            scope=Scope.OFFER, code="failed", message=made.reason or "The provider failed to create the machine."
        )
    facts = {"instance_id": made.id, "made_at": clock.now().isoformat()}
    return Ready(facts=facts, log=f"instance {made.id}")


def _wait(work: Underway) -> Wait:
    return Wait(after=work.after, memo={"handle": dict(work.handle)}, percent=work.percent, sentence=work.sentence)


_LISTINGS = 3
"""Number of listings without a report, after which the instance is read by its id."""


def boot(client: Client, spec: Spec, memo: Json) -> Answer:
    """Wait until the instance is running and has an address.

    A listing of its location that shows this wakes the step. If several listings do not show it, the instance is read
    by its id.
    """
    seen, looks = spec.resource.facts.get("seen", {}), memo.get("looks", 0)
    if looks >= _LISTINGS and seen.get("state") != Lifecycle.RUNNING:
        looks, found = 0, _read(client, spec)
        seen = inventory.seen_of(client.ended(instance(spec.resource)) if found is None else found)
    if seen.get("state") in _OVER:
        return Failed(
            scope=Scope.OFFER,
            code=seen["state"],
            message=seen.get("reason") or f"The machine was {seen['state']} before it was running.",
        )
    address = address_of(spec.resource, seen)
    if seen.get("state") == Lifecycle.RUNNING and address:
        facts = {"address": address, "parts": list(seen.get("parts", ()))}
        return Ready(facts=facts, log=f"running at {address}")
    state = seen.get("state", "requested")
    return Wait(after=2 * client.status_every, memo={"looks": looks + 1}, sentence=f"The machine is {state}.")


def _read(client: Client, spec: Spec) -> Instance | None:
    """Return the current state of the instance.

    If it was created a moment ago and reads do not show it yet, the create is repeated under its token, which returns
    the existing instance instead of creating another.
    """
    there = instance(spec.resource)
    found = client.instance(there.location, there.zone, there.key, there.id)
    if found is None and _unproven(client, spec):
        again = client.create(order(spec), spec.resource.facts.get("stands_on", {}))
        return again if isinstance(again, Instance) else replace(there, state=Lifecycle.PENDING)
    return found


def _unproven(client: Client, spec: Spec) -> bool:
    """Return whether the instance was created so recently that not finding it proves nothing."""
    made_at = spec.resource.facts.get("made_at")
    if not client.unseen_for or not made_at:
        return False
    return clock.now() - dt.datetime.fromisoformat(made_at) < dt.timedelta(seconds=client.unseen_for)


def address_of(resource: ResourceView, seen: Json) -> str:
    """Return the address to connect to: the public address unless the blueprint keeps the machine private."""
    name = "public_address" if resource.blueprint.config.public_address else "private_address"
    return str(seen.get(name) or "")


def check_listing(spec: Spec, memo: Json) -> Answer:
    """Check the state that the last listing reported."""
    seen = spec.resource.facts.get("seen", {})
    state = seen.get("state", Lifecycle.RUNNING)
    if state in (*_OVER, Lifecycle.STOPPED, Lifecycle.STOPPING):
        return Failed(scope=Scope.STEP, code=state, message=f"The machine is {state}. {seen.get('reason', '')}".strip())
    address = address_of(spec.resource, seen) or spec.resource.facts.get("address", "")
    return Ready(facts={"power": "on", "address": address})


def terminate(client: Client, spec: Spec, memo: Json) -> Answer:
    """Terminate the instance, and wait until a read shows that it is gone.

    An instance whose create was never answered may still appear.
    """
    there = instance(spec.resource)
    found = client.instance(there.location, there.zone, there.key, there.id)
    since = memo.get("since") or clock.now().isoformat()
    if found is None:
        same_account(client, spec.resource)
    elif not there.id and not is_ours(found, spec):
        return _foreign(found, spec)
    if found is None and there.id and _unproven(client, spec):
        client.terminate(there)
        return _still(since, "The machine is being terminated. The provider does not list the machine yet.")
    if found is None or found.state is Lifecycle.TERMINATED:
        return (
            Ready()
            if there.id or _nothing_asked(spec) or _waited(client, since)
            else _still(since, "The provider may still create the machine.")
        )
    if found.state is not Lifecycle.TERMINATING:
        client.terminate(found)
    return _still(since, "The machine is being terminated.")


def _foreign(found: Instance, spec: Spec) -> Answer:
    """Leave alone a machine that has our name but not our tags, for a create that was refused or never answered.

    Unless the create was certainly refused, that machine may be ours with its tags removed; then the action fails.
    """
    if _nothing_asked(spec):
        return Ready(
            log=f"machine {found.id or found.key} has the same name, but does not belong to this Drydock installation, "
            "so it is not changed"
        )
    message = (
        f"A machine {found.id or found.key} with the same name exists, but is not tagged as belonging to this Drydock "
        "installation. Check who owns the machine, then restore its tags or destroy the resource by force."
    )
    return Failed(scope=Scope.OPERATOR, code="not_provably_ours", message=message)


def sweep(client: Client, spec: Spec, memo: Json) -> Answer:
    """Delete everything else that was created under the resource's key.

    Objects whose creation was never answered may still appear.
    """
    there, untagged = instance(spec.resource), list[str]()
    left = client.sweep(
        there.location, there.zone, there.key, spec.tags, known=_known(spec), report=untagged.append
    )  # fmt: skip
    since, log = memo.get("since") or clock.now().isoformat(), " ".join(untagged)
    if left:
        return replace(_still(since, f"Not yet deleted: {', '.join(left)}."[:500]), log=log)
    if _unprepared(spec) and not _waited(client, since):
        return replace(_still(since, "The provider may still create objects for the machine."), log=log)
    return Ready(log=log)


def _known(spec: Spec) -> list[str]:
    """Return the ids of the objects made for the resource. They identify objects whose tags were removed."""
    facts = spec.resource.facts
    return [*map(str, facts.get("stands_on", {}).values()), *facts.get("parts", ())]


def _unprepared(spec: Spec) -> bool:
    """Return whether the network was perhaps requested, without its answer having been stored."""
    return "image" in spec.resource.facts and "stands_on" not in spec.resource.facts


def _nothing_asked(spec: Spec) -> bool:
    """Return whether the instance was never requested, or its request was certainly refused."""
    return "stands_on" not in spec.resource.facts or bool(spec.resource.facts.get("refused"))


def _waited(client: Client, since: str) -> bool:
    return clock.now() - dt.datetime.fromisoformat(since) >= dt.timedelta(seconds=client.find_after)


def _still(since: str, sentence: str) -> Wait:
    return Wait(after=3.0, memo={"since": since}, sentence=sentence)


def switch(wanted: tuple[str, ...], to: Lifecycle) -> Calls:
    """Return an action that stops or starts the machine if the phase requires it, and waits until that is done."""

    def act(client: Client, spec: Spec, memo: Json) -> Answer:
        if spec.wanted.get("power") not in wanted:
            return Ready()
        if not isinstance(client, StopsStarts):
            return Failed(
                scope=Scope.OPERATOR,
                code="not_supported",
                message=f"{client.provider} does not support stopping and starting machines.",
            )
        there = instance(spec.resource)
        found = client.instance(there.location, there.zone, there.key, there.id)
        if found is None:
            return Failed(scope=Scope.STEP, code="gone", message="The machine no longer exists.")
        if found.state is to:
            return Ready(facts=_where(spec.resource, found) if to is Lifecycle.RUNNING else {})
        if not memo.get("asked"):
            client.start(found) if to is Lifecycle.RUNNING else client.stop(found)
        return Wait(after=3.0, memo={"asked": True}, sentence=f"The machine is {found.state}.")

    return act


def _where(resource: ResourceView, found: Instance) -> Json:
    address = address_of(resource, inventory.seen_of(found))
    return {"address": address} if address else {}


def console(client: Client, resource: ResourceView) -> str:
    """Return the last 15,000 characters of the console, or an empty string if it cannot be read."""
    if not isinstance(client, Console) or not resource.facts.get("instance_id"):
        return ""
    try:
        return client.console(instance(resource))[-15_000:]
    except CloudError as error:
        return f"(the console could not be read: {error.message})"


def with_console(client_of: ClientOf, act: Act, seconds: float) -> Act:
    """Wrap an action so that the console output is stored with the resource if the action fails or takes long."""

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


def open_ports(client: Client, spec: Spec, memo: Json) -> Answer:
    """Open the ports that the lease requested."""
    wanted = _rules(spec)
    if not wanted:
        return Ready()
    if not isinstance(client, Firewall):
        message = f"{client.provider} does not support opening ports. Omit `ports` from the request."
        return Failed(scope=Scope.BLUEPRINT, code="not_supported", message=message)
    client.open_ports(instance(spec.resource), wanted)
    return Ready(log=f"open: {', '.join(str(rule.port) for rule in wanted)}")


def close_ports(client: Client, spec: Spec, memo: Json) -> Answer:
    """Close the lease's ports, except those that another lease on the machine has also requested.

    If another lease that needs one of the ports was granted in the meantime, the port is opened again.
    """
    mine = _rules(spec)
    if mine and isinstance(client, Firewall):
        there, shared = instance(spec.resource), _asked_by_others(spec)
        client.close_ports(there, [rule for rule in mine if rule.port not in shared])
        came = _asked_by_others(spec) - shared
        client.open_ports(there, again) if (again := [rule for rule in mine if rule.port in came]) else None
    return Ready()


def _rules(spec: Spec) -> Sequence[Rule]:
    """Return the lease's ports without the SSH port, whose access the blueprint decides and which we need ourselves."""
    asked = lease_of(spec).asked.requirements.ports or ()
    return [Rule(port=port) for port in sorted(set(asked)) if port != spec.config.ssh_port]


def _asked_by_others(spec: Spec) -> set[int]:
    return {port for other in lease_of(spec).others() for port in other.requirements.ports or ()}
