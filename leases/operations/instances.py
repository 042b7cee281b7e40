"""Instances: leases of whole cloud machines, requested and shown in the words that clouds use."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Collection, Mapping
from typing import Annotated, Any, Literal

from django.db.models import Q, QuerySet
from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError

from drydock.core.errors import InvalidRequest, NotFound
from drydock_client.values import InstanceInfo
from leases import lifecycle
from leases.models import Failure, Lease, Resource
from leases.operations import infos, leases, machines
from leases.operations.callers import Caller, on_behalf, own_leases
from leases.validation.fields import Key, Mib, Moment, PublicKey, Span, Text, Word
from leases.validation.input_checks import checked
from leases.validation.requests import invalid

Words = Annotated[tuple[Word, ...], Field(max_length=100)]

_MARKETS = {"on_demand": ["on_demand"], "spot": ["spot"], "any": ["on_demand", "spot"]}


class InstanceRequest(BaseModel):
    """A request for one whole cloud machine. If several offers meet the request, the cheapest is preferred."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    instance_type: Annotated[Words, Field(description="Allowed instance types, by the cloud's names.")] = ()
    location: Annotated[Words, Field(description="Allowed regions.")] = ()
    zone: Annotated[Words, Field(description="Allowed zones.")] = ()
    continent: Annotated[Words, Field(description="Allowed continents: AF, AS, EU, NA, OC, SA.")] = ()
    market: Annotated[
        Literal["on_demand", "spot", "any"],
        Field(description="Market: spot machines are cheaper, but the provider may reclaim them."),
    ] = "on_demand"
    max_price: Annotated[float | None, Field(gt=0, lt=1e9, description="Maximum price in US dollars per hour.")] = None
    image: Annotated[Text, Field(description="Image, by the cloud's id. Default: the image of the blueprint.")] = ""
    arch: Annotated[Text, Field(description="Architecture: x86_64 or arm64.")] = ""
    vcpus: Annotated[int, Strict(), Field(ge=0, le=100_000, description="Minimum number of vCPUs.")] = 0
    ram_mib: Annotated[Mib, Field(description='Minimum memory in MiB, or with a unit such as "64GiB".')] = 0
    disk_gib: Annotated[int, Strict(), Field(ge=0, le=1 << 20, description="Size of the boot disk.")] = 0
    gpu: Annotated[Text, Field(description="GPU model, such as a100.")] = ""
    gpus: Annotated[int, Strict(), Field(ge=0, le=1 << 20, description="Minimum number of GPUs.")] = 0
    confidential: Annotated[
        Words, Field(description="Required confidential computing technologies: tdx, sev_snp, sev.")
    ] = ()
    user_data: Annotated[
        dict[str, Any] | Annotated[str, Field(max_length=16_384)],
        Field(description="A cloud-config, as YAML text or JSON. Do not put secrets in it."),
    ] = ""
    ports: Annotated[
        tuple[Annotated[int, Strict(), Field(ge=1, le=65535)], ...],
        Field(max_length=20, description="TCP ports that are open to other networks."),
    ] = ()
    public_keys: Annotated[tuple[PublicKey, ...], Field(max_length=100)] = ()
    blueprints: Annotated[Words, Field(description="Allowed backends, by name.")] = ()
    choose: Annotated[
        Literal["", "order", "price", "fastest"], Field(description="How to choose between backends.")
    ] = ""
    name: Text = ""
    tags: Annotated[dict[Word, Text], Field(max_length=100, description="Stored as labels of the lease.")] = {}
    ttl: Annotated[Span, Field(description="Duration, counted from when the instance starts running.")] = None
    until: Annotated[Moment, Field(description="Latest end of the instance.")] = None
    wait_limit: Annotated[Span, Field(description="Give up if not granted within this time.")] = None
    idempotency_key: Key | None = None

    def lease(self) -> dict[str, Any]:
        """Return this request as a lease request.

        The lease is exclusive and its requirements name a market, so only cloud machines match.
        """
        wanted: dict[str, Any] = {
            "market": _MARKETS[self.market], "instance_type": self.instance_type, "region": self.location,
            "zone": self.zone, "continent": self.continent, "max_price": self.max_price, "image": self.image,
            "arch": self.arch, "min_vcpus": self.vcpus, "min_ram_mib": self.ram_mib, "gpu": self.gpu,
            "min_gpus": self.gpus, "ports": self.ports, "user_data": self.user_data,
        }  # fmt: skip
        given: dict[str, Any] = {
            "disk_mib": self.disk_gib * 1024, "traits": self.confidential, "public_keys": self.public_keys,
            "allowed_blueprints": self.blueprints, "choose": self.choose, "name": self.name, "labels": self.tags,
            "ttl": self.ttl, "until": self.until, "wait_limit": self.wait_limit,
            "idempotency_key": self.idempotency_key,
        }  # fmt: skip
        return {
            "type": "host", "exclusive": True, "requirements": _said(wanted), **_said(given),
        }  # fmt: skip


def _said(given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given fields without the empty ones."""
    return {name: list(one) if isinstance(one, tuple) else one for name, one in given.items() if one}


def read_request(given: Mapping[str, Any] | InstanceRequest) -> InstanceRequest:
    """Return the request after checking it. Raises InvalidRequest with the field."""
    if isinstance(given, InstanceRequest):
        return given
    if not isinstance(given, Mapping):
        raise InvalidRequest("The request must be a mapping of names to values.")
    try:
        return InstanceRequest.model_validate(dict(given))
    except ValidationError as error:
        raise invalid(error) from None


INSTANCE = Q(type="host", exclusive=True, for_resource=None, for_lease=None, requirements__has_key="market")
"""Selects leases that are instances: they hold a whole machine, and name a market, which only cloud machines have."""

_ACTS: dict[str, Callable[[Caller, int], Any]] = {
    "stop": lambda who, pk: machines.stop(who, pk),
    "start": lambda who, pk: machines.start(who, pk),
    "reboot": lambda who, pk: machines.reboot(who, pk),
}


@checked
def create(who: Caller, given: Mapping[str, Any] | InstanceRequest, *, owner: Any = None) -> InstanceInfo:
    """Request an instance. It is pending unless an idle machine meets the request.

    Raises InvalidRequest with the field, Conflict if the idempotency key was used for a different request, NotAllowed.
    """
    asked = read_request(given)
    return get(who, leases.request(who, asked.lease(), owner=owner, endless=True))


@checked
def get(who: Caller, lease_id: int) -> InstanceInfo:
    """Return one instance. Raises NotFound, also for a lease that is not an instance."""
    found = _one(who, lease_id)
    infos.with_waits([found], who)
    return info(found)


@checked
def list_(
    who: Caller, *, owner: Any = None, states: Collection[str] = (), location: str = "", instance_type: str = "",
    tag: str = "", name: str = "", all_: bool = False, limit: int = 200, before: int | None = None,
) -> list[InstanceInfo]:  # fmt: skip
    """Return instances, newest first. Ended instances are included if `all_` is true or `states` contains their state.

    `tag` is `key` or `key=value`. For paging, `before` returns only instances with a lower id.
    """
    found = _instances(who)
    if owner is not None:
        found = found.filter(owner_id=on_behalf(who, owner).id)
    key, equal, value = tag.partition("=")
    tagged = Q() if not tag else Q(labels__contains={key: value}) if equal else Q(labels__has_key=key)
    chosen = {
        "name": name or None, "id__lt": before, "resource__attributes__region": location or None,
        "resource__attributes__instance_type": instance_type or None,
    }  # fmt: skip
    found = _of(found, states, all_).filter(tagged, **{at: one for at, one in chosen.items() if one is not None})
    rows = list(found.order_by("-id")[: max(1, min(limit, 1000))])
    infos.with_waits(rows, who)
    return [info(row) for row in rows]


def _of(found: QuerySet[Any], states: Collection[str], all_: bool) -> QuerySet[Any]:
    for word in states:
        if word not in lifecycle.STATES:
            raise InvalidRequest(
                f"State {word!r} does not exist.", field="state", hint=f"Choose one of: {', '.join(lifecycle.STATES)}."
            )
    if not states and all_:
        return found
    wanted = states or [word for word in lifecycle.STATES if word not in lifecycle.OVER]
    narrowed = found if set(wanted) & set(lifecycle.OVER) else found.filter(lifecycle.not_over())
    return narrowed.filter(instance_state__in=wanted)


@checked
def end(who: Caller, lease_id: int) -> InstanceInfo:
    """Release an instance. Releasing it again has no effect. Raises NotFound.

    If the blueprint keeps idle machines, the machine is kept for the next lease (`released`); otherwise it is
    destroyed.
    """
    _one(who, lease_id)
    leases.release(who, lease_id)
    return get(who, lease_id)


@checked
def change(who: Caller, lease_id: int, act: str) -> InstanceInfo:
    """Stop, start or reboot an instance (`stop`, `start`, `reboot`).

    Raises NotFound, InvalidRequest, NotSupported with the capability, and Conflict while the instance is not
    running or is busy.
    """
    if act not in _ACTS:
        raise InvalidRequest(
            f"{act!r} is not an action on an instance.", field="act", hint=f"Choose one of: {', '.join(_ACTS)}."
        )
    _one(who, lease_id)
    _ACTS[act](who, lease_id)
    return get(who, lease_id)


def _instances(who: Caller) -> QuerySet[Any]:
    found = own_leases(who).filter(INSTANCE).select_related("owner", "resource__blueprint", "resource__failure")
    return lifecycle.with_state(found).defer("secrets", "resource__secrets")


def _one(who: Caller, lease_id: int) -> Any:
    found = _instances(who).filter(pk=lease_id).first()
    if found is None:
        raise NotFound(f"Instance {lease_id} does not exist or is not yours.", field="instance")
    return found


def info(row: Any) -> InstanceInfo:
    """Return a row of `_instances` as an instance."""
    there = row.resource or Resource()
    said, facts = there.attributes, there.facts
    seen = facts.get("seen") or {}
    state, failure = row.instance_state, _failure(row)
    return InstanceInfo(
        id=row.pk, name=row.name, owner="" if row.owner is None else row.owner.get_username(), state=state,
        message=_message(row, failure), kind=there.blueprint.kind if row.resource else "",
        blueprint=there.blueprint.name if row.resource else "", location=_text(said, "region"),
        zone=_text(said, "zone"), instance_type=_text(said, "instance_type"), market=_text(said, "market"),
        price=there.price, image=_text(said, "image"), provider_id=_text(facts, "instance_id"),
        public_address=_text(seen, "public_address"), private_address=_text(seen, "private_address"),
        **_access(row, facts), tags=row.labels, created_at=row.created_at, active_at=row.active_at,
        ended_at=row.ended_at, until=row.until, resource=row.resource_id, replaced_by=row.replaced_by_id,
        hourly_cost=0.0 if state in lifecycle.OVER or row.resource is None else there.price,
        kept_until=_kept_until(there) if state == lifecycle.RELEASED else None, failure=infos.failure(failure),
    )  # fmt: skip


def _failure(row: Any) -> Failure | None:
    """Return the last failed action on the machine of a lease, or None if there is none.

    A failure from the time of another lease is not returned.
    """
    found: Failure | None = getattr(row.resource, "failure", None)
    theirs = found is not None and row.instance_state not in lifecycle.OVER and found.lease_id in (None, row.pk)
    return found if theirs else None


def _kept_until(there: Resource) -> dt.datetime | None:
    """Return the time at which an idle machine will be destroyed, or None if its blueprint sets no such time."""
    timeout = there.blueprint.idle_timeout
    ends = [there.dies_at, there.idle_since + timeout if there.idle_since and timeout is not None else None]
    return min((one for one in ends if one is not None), default=None)


def _message(row: Any, failure: Failure | None) -> str:
    """Return a sentence about the state of an instance, with the provider's message if an action failed."""
    there, said = row.resource, infos.said(row).message
    if row.instance_state == lifecycle.RELEASED:
        until = _kept_until(there)
        said = (
            f"Released. The machine is kept {f'until {until:%Y-%m-%d %H:%M} UTC' if until else 'without a time limit'}."
        )
    elif row.instance_state == lifecycle.REASSIGNED:
        said = "The machine serves another lease."
    elif row.instance_state == lifecycle.TERMINATING and row.state in leases.OVER:
        said = f"The machine is being destroyed. {said or there.message}".strip()
    if failure is None:
        return said
    times = "" if failure.attempts == 1 else f" {failure.attempts} times"
    return f"{said} {failure.act} failed{times}: {failure.message}".strip()


def of_lease(row: Lease) -> InstanceInfo | None:
    """Return a lease as an instance, or None if it was not requested as a whole cloud machine."""
    host = row.type == "host" and row.exclusive and "market" in row.requirements
    if not host or row.for_resource_id is not None or row.for_lease_id is not None:
        return None
    found = Lease.objects.filter(pk=row.pk).select_related("owner", "resource__blueprint", "resource__failure")
    return info(lifecycle.with_state(found).defer("secrets", "resource__secrets").get())


def _text(facts: Mapping[str, Any], name: str) -> str:
    return str(facts.get(name) or "")


def _access(row: Lease, facts: Mapping[str, Any]) -> dict[str, Any]:
    """Return the facts for reaching the account of a lease. They are empty unless the lease is active."""
    active = row.state == "active"
    return {
        "ssh_user": _text(row.facts, "user") or _text(facts, "user") if active else "",
        "ssh_host": _text(facts, "address") if active else "",
        "ssh_port": facts.get("port") if active else None,
        "ssh_host_keys": tuple(facts.get("host_keys") or ()) if active else (),
    }
