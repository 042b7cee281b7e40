"""Actions of the steps of the fake kind: each is one call to the provider, and may be repeated."""

from __future__ import annotations

import datetime as dt
import functools
import hashlib
import json
from dataclasses import replace

from blueprints.answers import Absent, Answer, Failed, Health, Json, Need, Ready, Scope, Wait
from blueprints.contract import Act
from blueprints.fake import drafts
from blueprints.fake.config import Registration
from blueprints.fake.faults import carrier_of
from blueprints.fake.provider import Instance, Provider
from blueprints.identities import real
from blueprints.records.erasures import Erasure
from blueprints.specs import LeaseView, Spec
from drydock.core import clock

UNREACHABLE = "unreachable"


def reached(act: Act) -> Act:
    """Wrap an action so that it fails while the instance is cut off."""

    @functools.wraps(act)
    def answered(spec: Spec, memo: Json) -> Answer:
        if "cut_off" in _provider(spec).settings(spec.resource.key):
            return Failed(scope=Scope.STEP, message="The instance does not answer.", code=UNREACHABLE)
        return act(spec, memo)

    return answered


def reserve(spec: Spec, memo: Json) -> Answer:
    """Reserve a place for the instance, once it has its carrier."""
    carrier = carrier_of(spec.config)
    if carrier is not None and carrier.name not in spec.parents:
        return Need(leases=(carrier,))
    _provider(spec).reserve(spec.resource.key, tags=spec.tags)
    return Ready()


def create(spec: Spec, memo: Json) -> Answer:
    """Create the instance under its key."""
    view = spec.resource
    made = _provider(spec).create(
        view.key, token=spec.key, tags=spec.tags, offer=view.offer, generation=view.blueprint.generation
    )
    return Ready(facts=_facts(made), log=f"created {made.key}")


def find_created(spec: Spec, memo: Json) -> Answer:
    """Look for an instance whose create was not answered."""
    found = _provider(spec).look(spec.resource.key)
    return Ready(facts=_facts(found)) if found and found.created else Absent()


def flash(spec: Spec, memo: Json) -> Answer:
    """Carry out a step that must not be interrupted. An update that disturbs no lease has nothing to flash."""
    polls = spec.config.flash_polls
    if not polls or not spec.disruptive:
        return Ready()
    return _progress(
        spec, memo, _provider(spec).progress("flash", spec.resource.key, polls=polls, state="starting"), polls
    )


def boot(spec: Spec, memo: Json) -> Answer:
    """Wait until the instance runs."""
    polls = spec.config.boot_polls
    return _progress(
        spec, memo, _provider(spec).progress("boot", spec.resource.key, polls=polls, state="running"), polls
    )


def verify(spec: Spec, memo: Json) -> Answer:
    """Check the instance before the resource is leased."""
    found = _provider(spec).look(spec.resource.key)
    if found is None or found.state != "running":
        return _lost(found)
    if refused := _refused(spec):
        return refused
    secrets = _password(spec.resource.key) if spec.config.secrets else {}
    return Ready(facts=_facts(found), secrets=secrets, identities=real(spec.config.identities), health=_health(spec))


@reached
def check_health(spec: Spec, memo: Json) -> Answer:
    """Check the instance."""
    found = _provider(spec).check(spec.resource.key)
    if found is None or found.state != "running":
        return Failed(scope=Scope.STEP, message=_state(found), code="dead")
    if refused := _refused(spec):
        return refused
    well = tuple(replace(part, state="ok") for part in spec.resource.parts if part.state != "missing")
    return Ready(facts={"power": found.power, "checks": found.checks}, parts=well or None, health=_health(spec))


def switch_off(spec: Spec, memo: Json) -> Answer:
    """Switch the instance off, for `off` and for the first half of `cycle`."""
    return _switched(spec, "off") if spec.wanted["power"] in ("off", "cycle") else Ready()


def switch_on(spec: Spec, memo: Json) -> Answer:
    """Switch the instance on, for `on` and for the second half of `cycle`."""
    return _switched(spec, "on") if spec.wanted["power"] in ("on", "cycle") else Ready()


@reached
def restart(spec: Spec, memo: Json) -> Answer:
    """Bring the instance to the blueprint's config. If it was flashed, it starts without what leases had on it."""
    view = spec.resource
    found = _provider(spec).update(view.key, view.blueprint.generation, flashed=spec.disruptive)
    return replace(_applied(spec), facts=_facts(found)) if found else _lost(found)


def _applied(spec: Spec) -> Ready:
    """Return the state from the registration, merged over the config.

    A resource that was built can only change its traits.
    """
    given = spec.resource.registration
    if not given:
        return Ready(traits=frozenset(spec.config.traits))
    draft = drafts.registered(spec.config, Registration.model_validate(given))
    return Ready(attributes=draft.attributes, traits=draft.traits, capacity=draft.capacity)


def delete(spec: Spec, memo: Json) -> Answer:
    """Start the deletion of the instance."""
    _provider(spec).delete(spec.resource.key, polls=spec.config.destroy_polls)
    return Ready()


def confirm(spec: Spec, memo: Json) -> Answer:
    """Wait until the instance no longer exists."""
    if _provider(spec).gone(spec.resource.key, polls=spec.config.destroy_polls):
        return Ready(log=f"{spec.resource.key} is gone")
    return Wait(after=spec.config.poll_seconds, memo=memo, sentence="The provider is deleting it.")


@reached
def make_account(spec: Spec, memo: Json) -> Answer:
    """Create an account for the lease."""
    lease = _lease(spec)
    _provider(spec).leave(spec.resource.key, lease.key, "account")
    return _account(lease)


def find_account(spec: Spec, memo: Json) -> Answer:
    """Look for an account whose creation was not answered."""
    lease = _lease(spec)
    there = _provider(spec).has(spec.resource.key, lease.key, "account")
    return _account(lease) if there else Absent()


@reached
def open_access(spec: Spec, memo: Json) -> Answer:
    """Give the owner access."""
    _provider(spec).leave(spec.resource.key, _lease(spec).key, "access")
    return Ready()


@reached
def close_access(spec: Spec, memo: Json) -> Answer:
    """Remove the owner's access."""
    _provider(spec).wipe(spec.resource.key, _lease(spec).key, "access")
    return Ready()


@reached
def remove_account(spec: Spec, memo: Json) -> Answer:
    """Remove the lease's account."""
    _provider(spec).wipe(spec.resource.key, _lease(spec).key, "account")
    return Ready()


@reached
def wipe(spec: Spec, memo: Json) -> Answer:
    """Remove everything that the lease left, after the polls of the config, and report the disks as erased."""
    done, polls = int(memo.get("polls", 0)), spec.config.clean_polls
    began = str(memo.get("began") or clock.now().isoformat())
    if done < polls:
        return Wait(
            after=spec.config.poll_seconds, memo={"polls": done + 1, "began": began}, percent=100 * done // polls,
            sentence=f"Wiped {done} of {polls} parts.",
        )  # fmt: skip
    _provider(spec).wipe(spec.resource.key, _lease(spec).key)
    return Ready(erasures=_erasures(spec, dt.datetime.fromisoformat(began)))


_DISK_BYTES = 1 << 40


def _erasures(spec: Spec, began: dt.datetime) -> tuple[Erasure, ...]:
    ended = clock.now()
    return tuple(
        Erasure(
            disk=f"disk{number}", serial=f"{spec.resource.key}-{number}", model="Fake disk", size_bytes=_DISK_BYTES,
            method="overwrite", bytes=_DISK_BYTES, started_at=began, ended_at=ended, verified=True,
        )
        for number in range(spec.config.disks)
    )  # fmt: skip


def _provider(spec: Spec) -> Provider:
    return Provider(spec.config.provider)


def _lease(spec: Spec) -> LeaseView:
    if spec.lease is None:
        raise ValueError(f"phase {spec.phase} has no lease")
    return spec.lease


def _progress(spec: Spec, memo: Json, found: Instance | None, polls: int) -> Answer:
    if found is None or found.state == "dead":
        return _lost(found)
    if not found.polls:
        return Ready()
    percent = 100 * found.polls // (polls + 1)
    seldom = spec.config.watched_seconds if spec.config.watch else None
    return Wait(
        after=spec.config.poll_seconds, watched=seldom, memo=memo, percent=percent, sentence=_state(found)
    )  # fmt: skip


def _switched(spec: Spec, power: str) -> Answer:
    cycle = power == "off" and spec.wanted["power"] == "cycle"
    found = _provider(spec).switch(spec.resource.key, power, cycle=cycle)
    return Ready(facts={"power": found.power}) if found else _lost(found)


def _account(lease: LeaseView) -> Answer:
    return Ready(facts={"user": f"fake-{lease.id}"}, secrets=_password(lease.key))


def _refused(spec: Spec) -> Failed | None:
    """Return a failure if the instance asks for a password and the credential has another one."""
    expected = _provider(spec).settings(spec.resource.key).get("password")
    given = spec.resource.credential_or(spec.config.credential).get("password")
    if expected is None or given == expected:
        return None
    return Failed(scope=Scope.OPERATOR, message="The instance refuses the password.", code="password")


def _health(spec: Spec) -> Health | None:
    """Return the health that the provider reports for the instance, or None if it reports none."""
    said = _provider(spec).settings(spec.resource.key).get("health")
    return Health(**json.loads(said)) if said else None


def _lost(found: Instance | None) -> Failed:
    return Failed(scope=Scope.OFFER, message=_state(found), code="lost")


def _state(found: Instance | None) -> str:
    return f"The instance is {found.state}." if found else "The instance does not exist."


def _facts(found: Instance) -> Json:
    digest = hashlib.sha256(found.key.encode()).digest()
    address = ".".join(str(byte) for byte in (10, *digest[:3]))
    return {"instance": f"i-{digest.hex()[:12]}", "address": address, "generation": found.generation}


def _password(key: str) -> Json:
    return {"password": hashlib.sha256(f"password of {key}".encode()).hexdigest()[:24]}
