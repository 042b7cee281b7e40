"""What one may ask for: read, checked and put in one form before anything is written."""

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
from leases import fields
from leases.fields import Count, Flag, Key, Mib, Millicores, Moment, PublicKey, Span, Text, Vcpus, Word
from leases.given import document
from leases.mistakes import plain_message
from leases.workload import Workload

_LONG = {"vcpus": "cpu_millicores", "ram": "ram_mib", "disk": "disk_mib"}
_SHORTHANDS = ("slots", "vcpus", "cpu_millicores", "ram", "ram_mib", "disk", "disk_mib", "exclusive")
_SHORT_SCHEMAS = {
    "vcpus": {"anyOf": [fields.VCPUS_SCHEMA, fields.NULL], "description": "Processors; as `cpu_millicores`."},
    "ram": {"anyOf": [*fields.SIZES, fields.NULL], "description": 'Memory in MiB, or such as "4GiB"; as `ram_mib`.'},
    "disk": {"anyOf": [*fields.SIZES, fields.NULL], "description": 'Disk in MiB, or such as "40GiB"; as `disk_mib`.'},
}


def _to_come(moment: dt.datetime | None, info: ValidationInfo) -> dt.datetime | None:
    """Under an idempotency key it may be a replay after the end: then only the database can tell what is too late."""
    if moment is not None and moment <= clock.now() and not (info.context or {}).get("keyed"):
        raise ValueError("it is in the past")
    return moment


def _once(workload: Workload | None, info: ValidationInfo) -> Workload | None:
    if workload is not None and info.data.get("serve_again"):
        raise ValueError("a workload never begins twice, so such a lease cannot be served again: leave out serve_again")
    return workload


def _describe(schema: dict[str, Any]) -> None:
    """The other names of amounts, which are read before any field is."""
    schema["properties"] |= _SHORT_SCHEMAS


class LeaseRequest(BaseModel):
    """One lease as it is asked for. Spans may be written "2h", sizes "4GiB"."""

    model_config = ConfigDict(extra="forbid", frozen=True, json_schema_extra=_describe)

    type: Word
    requirements: dict[str, Any] = Field(default_factory=dict, description="What the kind understands.")
    slots: Annotated[int, Strict(), Field(ge=1, le=1_000_000)] = 1
    cpu_millicores: Millicores = Field(default=0, description="1000 are one vCPU.")
    ram_mib: Mib = 0
    disk_mib: Mib = 0
    extra: dict[Word, Count] = Field(default_factory=dict, max_length=100, description="Further classes of capacity.")
    exclusive: Flag = Field(default=False, description="The whole resource, alone.")
    traits: tuple[Word, ...] = ()
    forbidden_traits: tuple[Word, ...] = ()
    preferred_traits: tuple[Word, ...] = ()
    allowed_blueprints: tuple[Word, ...] | None = Field(default=None, description="Only these, by name.")
    excluded_blueprints: tuple[Word, ...] = ()
    priority: Annotated[int, Strict(), Field(ge=-100, le=100)] = 0
    ttl: Span = Field(default=None, description="How long it lasts once active.")
    until: Annotated[Moment, AfterValidator(_to_come)] = Field(default=None, description="When it ends at the latest.")
    wait_limit: Span = Field(default=None, description="Give up if not granted within this time.")
    heartbeat_limit: Span = Field(default=None, description="It ends when no heartbeat came for so long.")
    serve_again: Flag = Field(default=False, description="Ask again for the same when what it holds is lost.")
    choose: Literal["", "order", "price", "fastest"] = Field(
        default="",
        description="Which of the blueprints that could build is taken: the first in the operators' order, the "
        "cheapest, the one that is soonest ready; empty: as the installation says.",
    )  # fmt: skip
    name: Text = ""
    labels: dict[Word, Text] = Field(default_factory=dict, max_length=100)
    public_keys: tuple[PublicKey, ...] = Field(default=(), max_length=100)
    charged_group: Text | None = Field(default=None, description="The owner's group whose quota also counts.")
    metrics: Flag = Field(default=False, description="Measure what it uses of its host; a workload is measured too.")
    workload: Annotated[Workload | None, AfterValidator(_once)] = Field(
        default=None, description="What it does by itself, once, when it is active; the lease ends with it."
    )
    idempotency_key: Key | None = None
    _default_ttl: dt.timedelta | None = PrivateAttr(default=None)
    _limited: bool = PrivateAttr(default=False)

    @model_validator(mode="before")
    @classmethod
    def _shorthands(cls, given: Any) -> Any:
        """`vcpus`, `ram` and `disk`, also among the requirements, are amounts."""
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
                    raise ValueError(f"{short} and {long} are the same; give one of them")
                merged[long] = Vcpus(value) if short == "vcpus" else value
        return merged

    @property
    def amounts(self) -> Amounts:
        return Amounts(
            slots=self.slots, cpu_millicores=self.cpu_millicores, ram_mib=self.ram_mib,
            disk_mib=self.disk_mib, extra=dict(sorted(self.extra.items())),
        )  # fmt: skip

    @property
    def fingerprint(self) -> str:
        """Same request, same fingerprint: what an idempotency key is compared by."""
        unsaid = {name for name in ("metrics", "workload") if not getattr(self, name)}
        said = self.model_dump(mode="json", exclude={"idempotency_key", *unsaid})
        if self.workload is not None:
            said["workload"]["env"] = _sealed(self.workload.env)
        return digest(said)

    @property
    def endless(self) -> bool:
        """Whether nothing ends it but its release."""
        return self.ttl is None and self.until is None and self.heartbeat_limit is None and self.workload is None

    def lasting(self, default: dt.timedelta | None, *, limited: bool) -> LeaseRequest:
        """Return the request with a default ttl, and whether limits on how long it lasts apply.

        It is the same request: the fingerprint stays, so that a replay is one also after the default was changed.
        """
        given = self.model_copy()
        given._default_ttl, given._limited = default, limited
        return given

    @property
    def lasts(self) -> dt.timedelta | None:
        """How long it lasts once active: as asked for, or by default."""
        return self.ttl if self.ttl is not None else self._default_ttl

    @property
    def ttl_defaulted(self) -> bool:
        """Whether `lasts` is a default."""
        return self.ttl is None and self._default_ttl is not None

    @property
    def limited(self) -> bool:
        """Whether the limits on how long a lease may last apply."""
        return self._limited

    @property
    def watched(self) -> bool:
        """Whether somebody has to look at it while it lasts."""
        return self.metrics or self.workload is not None

    def shape(self, further: Any) -> str:
        """Hash of what decides which resources could serve it; `further` is what decides beside the request."""
        asked = self.model_dump(
            mode="json",
            include={
                "type", "requirements", "slots", "cpu_millicores", "ram_mib", "disk_mib", "extra", "exclusive",
                "traits", "forbidden_traits", "preferred_traits", "allowed_blueprints", "excluded_blueprints",
                "ttl", "until",
            },
        )  # fmt: skip
        return digest([asked, further])[:32]


def digest(value: Any) -> str:
    """SHA-256 of a value as JSON with sorted keys, in hex."""
    return hashlib.sha256(json.dumps(value, sort_keys=True, default=str).encode()).hexdigest()


def _sealed(env: Mapping[str, str]) -> str:
    """A digest of secrets that nobody can try words against who has no more than the database."""
    key = str(settings.DRYDOCK_OWNERSHIP_KEY).encode()
    return hmac.new(key, json.dumps(env, sort_keys=True).encode(), hashlib.sha256).hexdigest()


def read(given: Mapping[str, Any] | LeaseRequest, *, keyed: bool = False) -> LeaseRequest:
    """The request, checked, its requirements in the form its kinds give them. Raises InvalidRequest.

    `keyed`: it is of a group with an idempotency key.
    """
    request = given if isinstance(given, LeaseRequest) else parse(given, keyed=keyed)
    if request.type not in registry.resource_types():
        known = ", ".join(sorted(name for name in registry.resource_types() if not name.startswith("fake")))
        raise InvalidRequest(f"There is no type {request.type!r}.", field="type", hint=f"There are: {known}.")
    return request.model_copy(update={"requirements": requirements(request.type, request.requirements)})


def parse(given: Mapping[str, Any], *, keyed: bool = False) -> LeaseRequest:
    """The request, its own fields checked. Raises InvalidRequest."""
    document(given, "")
    context = {"keyed": keyed or given.get("idempotency_key") is not None}
    try:
        return LeaseRequest.model_validate(dict(given), context=context)
    except ValidationError as error:
        nested = given.get("requirements")
        asked = {*given, *(nested if isinstance(nested, Mapping) else ())}
        written = {long: short for short, long in _LONG.items() if short in asked}
        raise invalid(error, written=written, model=LeaseRequest) from None


def requirements(resource_type: str, asked: Mapping[str, Any]) -> dict[str, Any]:
    """`asked` as the first kind of the type that understands it writes it. Raises InvalidRequest when none does."""
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
    """Everything that pydantic found, as our error. `written`: how the caller wrote a field, where not by its name;
    `model`: what was read, whose fields are named where one is unknown."""
    known = () if model is None else tuple(model.model_fields)
    return InvalidRequest(problems=[_problem(found, prefix, written or {}, known) for found in error.errors()])


def _problem(found: Any, prefix: str, written: Mapping[str, str], known: Collection[str]) -> Problem:
    pieces = [str(piece) for piece in found["loc"]]
    pieces[:1] = [written.get(piece, piece) for piece in pieces[:1]]
    return Problem(field=".".join([prefix, *pieces] if prefix else pieces), message=f"{plain_message(found, known)}.")
