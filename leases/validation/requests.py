"""Parses, checks and normalizes requests for leases, before anything is written."""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
from collections.abc import Collection, Mapping
from typing import Annotated, Any, Literal

from django.conf import settings
from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    PrivateAttr,
    Strict,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from blueprints import registry
from blueprints.amounts import Amounts
from drydock.core import clock
from drydock.core.errors import InvalidRequest, Problem
from leases.validation import fields
from leases.validation.errors import plain_message
from leases.validation.fields import Count, Flag, Key, Mib, Millicores, Moment, Note, PublicKey, Span, Text, Vcpus, Word
from leases.validation.input_checks import document
from leases.workloads.workload import Workload

LARGEST_GROUP = 100
"""The maximum number of leases in a group."""

_LONG = {"vcpus": "cpu_millicores", "ram": "ram_mib", "disk": "disk_mib"}

_SHORTHANDS = ("slots", "vcpus", "cpu_millicores", "ram", "ram_mib", "disk", "disk_mib", "exclusive")

_SHORT_SCHEMAS = {
    "vcpus": {
        "anyOf": [fields.VCPUS_SCHEMA, fields.NULL],
        "description": "Number of vCPUs; an alternative to `cpu_millicores`.",
    },
    "ram": {
        "anyOf": [*fields.SIZES, fields.NULL],
        "description": 'Memory in MiB, or with a unit such as "4GiB"; an alternative to `ram_mib`.',
    },
    "disk": {
        "anyOf": [*fields.SIZES, fields.NULL],
        "description": 'Disk in MiB, or with a unit such as "40GiB"; an alternative to `disk_mib`.',
    },
}


_FIRST = frozenset({
    "type", "requirements", "slots", "cpu_millicores", "ram_mib", "disk_mib", "extra", "exclusive", "traits",
    "forbidden_traits", "preferred_traits", "allowed_blueprints", "excluded_blueprints", "priority", "ttl", "until",
    "wait_limit", "heartbeat_limit", "serve_again", "choose", "name", "labels", "public_keys", "charged_group",
})  # fmt: skip
"""The fields that every fingerprint covers. Others are covered only if set, so that stored fingerprints stay valid."""


def _to_come(moment: dt.datetime | None, info: ValidationInfo) -> dt.datetime | None:
    """Return the end of a lease. Raises ValueError if it is in the past.

    The end of a request with an idempotency key is not checked here, because the request may be a replay after the
    end of the lease. Only the database can then tell whether the end is too late.
    """
    if moment is not None and moment <= clock.now() and not (info.context or {}).get("keyed"):
        raise ValueError("it is in the past")
    return moment


def _once(workload: Workload | None, info: ValidationInfo) -> Workload | None:
    if workload is not None and info.data.get("serve_again"):
        raise ValueError("a workload never starts twice, so its lease cannot be served again: omit serve_again")
    return workload


def _describe(schema: dict[str, Any]) -> None:
    """Add the short names of amounts to the JSON Schema. They are replaced before the fields are parsed."""
    schema["properties"] |= _SHORT_SCHEMAS


class LeaseRequest(BaseModel):
    """A request for one lease. Durations may be written as "2h", and sizes as "4GiB"."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_describe)

    type: Word
    requirements: dict[str, Any] = Field(default_factory=dict, description="Requirements that the kind accepts.")
    slots: Annotated[int, Strict(), Field(ge=1, le=1_000_000)] = 1
    cpu_millicores: Millicores = Field(default=0, description="1000 are one vCPU.")
    ram_mib: Mib = 0
    disk_mib: Mib = 0
    extra: dict[Word, Count] = Field(
        default_factory=dict, max_length=100, description="Amounts of additional classes of capacity."
    )
    exclusive: Flag = Field(default=False, description="Lease the whole resource, not shared with other leases.")
    traits: tuple[Word, ...] = ()
    forbidden_traits: tuple[Word, ...] = ()
    preferred_traits: tuple[Word, ...] = ()
    allowed_blueprints: tuple[Word, ...] | None = Field(default=None, description="Allowed blueprints, by name.")
    excluded_blueprints: tuple[Word, ...] = ()
    priority: Annotated[int, Strict(), Field(ge=-100, le=100)] = 0
    ttl: Span = Field(default=None, description="Duration after the lease has become active.")
    until: Annotated[Moment, AfterValidator(_to_come)] = Field(default=None, description="Latest end of the lease.")
    wait_limit: Span = Field(default=None, description="Give up if not granted within this time.")
    heartbeat_limit: Span = Field(default=None, description="The lease ends after this time without a heartbeat.")
    serve_again: Flag = Field(default=False, description="Request the same lease again if its resource is lost.")
    choose: Literal["", "order", "price", "fastest"] = Field(
        default="",
        description="Blueprint to build with if several could: the first in the operators' order, the cheapest, or "
            "the one that is ready soonest. Empty: the installation's setting.",
    )  # fmt: skip
    name: Text = ""
    labels: dict[Word, Text] = Field(default_factory=dict, max_length=100)
    note: Note = Field(default="", description="A note for the owner; can be changed later.")
    public_keys: tuple[PublicKey, ...] = Field(default=(), max_length=100)
    charged_group: Text | None = Field(default=None, description="A group of the owner whose quota is charged as well.")
    metrics: Flag = Field(
        default=False, description="Collect metrics of the lease's use of its host. Always done for a workload."
    )
    workload: Annotated[Workload | None, AfterValidator(_once)] = Field(
        default=None, description="A command that runs once when the lease is active. The lease ends with the command."
    )
    idempotency_key: Key | None = None
    _default_ttl: dt.timedelta | None = PrivateAttr(default=None)
    _limited: bool = PrivateAttr(default=False)

    @model_validator(mode="before")
    @classmethod
    def _shorthands(cls, given: Any) -> Any:
        """Replace `vcpus`, `ram` and `disk` by the amounts for which they stand, also among the requirements."""
        if not isinstance(given, dict) or not isinstance(given.get("requirements", {}), dict):
            return given
        merged = dict(given)
        wanted = dict(merged.get("requirements", {}))
        for name in _SHORTHANDS:
            if name in wanted and name not in merged:
                merged[name] = wanted.pop(name)
        merged["requirements"] = wanted
        for short, long in _LONG.items():
            if short in merged:
                if (value := merged.pop(short)) is None:
                    continue
                if long in merged:
                    raise ValueError(f"{short} and {long} mean the same; give only one of them")
                merged[long] = Vcpus(value) if short == "vcpus" else value
        return merged

    @property
    def amounts(self) -> Amounts:
        """Return the requested amounts."""
        return Amounts(
            slots=self.slots, cpu_millicores=self.cpu_millicores, ram_mib=self.ram_mib,
            disk_mib=self.disk_mib, extra=dict(sorted(self.extra.items())),
        )  # fmt: skip

    @property
    def fingerprint(self) -> str:
        """A hash by which requests with the same idempotency key are compared."""
        unsaid = {name for name in type(self).model_fields if name not in _FIRST and not getattr(self, name)}
        said = self.model_dump(mode="json", exclude={"idempotency_key", "count", *unsaid})
        if self.workload is not None:
            said["workload"]["env"] = _sealed(self.workload.env)
            for name in ("archive", "ports"):  # later fields, which stored fingerprints do not cover
                if not said["workload"][name]:
                    del said["workload"][name]
        return digest(said)

    @property
    def endless(self) -> bool:
        """True if the lease ends only when it is released."""
        return self.ttl is None and self.until is None and self.heartbeat_limit is None and self.workload is None

    def lasting(self, default: dt.timedelta | None, *, limited: bool) -> LeaseRequest:
        """Return the request with a default duration, and with whether limits on its duration apply.

        The fingerprint does not change, so that a repeated request is recognized even if the default has
        changed.
        """
        given = self.model_copy()
        given._default_ttl, given._limited = default, limited
        return given

    @property
    def lasts(self) -> dt.timedelta | None:
        """How long the lease lasts after it becomes active, as requested or by default. None if neither is set."""
        return self.ttl if self.ttl is not None else self._default_ttl

    @property
    def ttl_defaulted(self) -> bool:
        """True if `lasts` is a default."""
        return self.ttl is None and self._default_ttl is not None

    @property
    def limited(self) -> bool:
        """True if limits on the duration of leases apply."""
        return self._limited

    @property
    def watched(self) -> bool:
        """True if the lease must be watched, because it has a workload or measurements."""
        return self.metrics or self.workload is not None

    def request_class(self, further: Any) -> str:
        """Return a hash of everything that determines which resources could serve the request.

        `further` contains what is not part of the request itself.
        """
        asked = self.model_dump(
            mode="json",
            include={
                "type", "requirements", "slots", "cpu_millicores", "ram_mib", "disk_mib", "extra", "exclusive",
                "traits", "forbidden_traits", "preferred_traits", "allowed_blueprints", "excluded_blueprints",
                "ttl", "until",
            },
        )  # fmt: skip
        return digest([asked, further])[:32]


class MemberRequest(LeaseRequest):
    """A request for leases of a group: for one lease, or for `count` leases that request the same."""

    count: Annotated[int, Strict(), Field(ge=1, le=LARGEST_GROUP)] = Field(
        default=1, description="Number of leases with this request. Their names end with a number."
    )


def digest(value: Any) -> str:
    """Return the SHA-256 hash of a value, which is encoded as JSON with sorted keys, in hexadecimal."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def _sealed(env: Mapping[str, str]) -> str:
    """Return a keyed hash of secret variables. A copy of the database alone does not help to guess them."""
    key = str(settings.DRYDOCK_OWNERSHIP_KEY).encode()
    return hmac.new(key, json.dumps(env, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def read(given: Mapping[str, Any] | LeaseRequest, *, keyed: bool = False) -> LeaseRequest:
    """Return the checked request, with its requirements as normalized by its kind. Raises InvalidRequest.

    `keyed` is true for a member of a group that has an idempotency key.
    """
    request = given if isinstance(given, LeaseRequest) else parse(given, keyed=keyed)
    if request.type not in registry.resource_types():
        known = ", ".join(sorted(name for name in registry.resource_types() if not name.startswith("fake")))
        raise InvalidRequest(
            f"Resource type {request.type!r} does not exist.", field="type", hint=f"Choose one of: {known}."
        )
    return request.model_copy(update={"requirements": requirements(request.type, request.requirements)})


def members(given: Mapping[str, Any] | LeaseRequest, *, keyed: bool = False) -> list[LeaseRequest]:
    """Return the requests of a group for which one request with a `count` stands. Raises InvalidRequest.

    `keyed` is true if the group has an idempotency key.
    """
    one = given if isinstance(given, LeaseRequest) else parse(given, keyed=keyed, model=MemberRequest)
    if not isinstance(one, MemberRequest):
        return [one]
    single = one.model_copy(update={"count": 1})
    if one.count == 1 or not one.name:
        return [single] * one.count
    return [single.model_copy(update={"name": f"{one.name}-{n}"}) for n in range(1, one.count + 1)]


def parse(
    given: Mapping[str, Any], *, keyed: bool = False, model: type[LeaseRequest] = LeaseRequest
) -> LeaseRequest:  # fmt: skip
    """Parse a request and check all fields, except the requirements against a kind. Raises InvalidRequest."""
    document(given, "")
    context = {"keyed": keyed or given.get("idempotency_key") is not None}
    try:
        return model.model_validate(dict(given), context=context)
    except ValidationError as error:
        nested = given.get("requirements")
        asked = {*given, *(nested if isinstance(nested, Mapping) else ())}
        written = {long: short for short, long in _LONG.items() if short in asked}
        raise invalid(error, written=written, model=model) from None


def requirements(resource_type: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """Return the requirements as normalized by the first kind of the type that accepts them.

    Raises InvalidRequest if no kind accepts them.
    """
    closest: InvalidRequest | None = None
    for name in registry.kinds_of_type(resource_type):
        try:
            understood = registry.kind(name).Requirements.model_validate(dict(asked))
        except ValidationError as error:
            problem = invalid(error, "requirements", model=registry.kind(name).Requirements)
            unknown = any(e["type"] == "extra_forbidden" for e in error.errors())
            closest = problem if closest is None or not unknown else closest
            continue
        return understood.model_dump(mode="json", exclude_none=True, exclude_defaults=False)
    assert closest is not None
    raise closest


def invalid(
    error: ValidationError, prefix: str = "", *, written: Mapping[str, str] | None = None,
    model: type[BaseModel] | None = None,
) -> InvalidRequest:  # fmt: skip
    """Return an InvalidRequest that contains all errors of pydantic.

    `written` maps fields to the names by which the caller wrote them, if these differ. `model` is the model that
    was read; its fields are listed if a field is unknown.
    """
    known = () if model is None else tuple(model.model_fields)
    return InvalidRequest(problems=[_problem(found, prefix, written or {}, known) for found in error.errors()])


def _problem(found: Any, prefix: str, written: Mapping[str, str], known: Collection[str]) -> Problem:
    pieces = [str(piece) for piece in found["loc"]]
    pieces[:1] = [written.get(piece, piece) for piece in pieces[:1]]
    return Problem(field=".".join([prefix, *pieces] if prefix else pieces), message=f"{plain_message(found, known)}.")
