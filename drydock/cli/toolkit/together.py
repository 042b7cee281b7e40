"""The option `--with`: resources that are leased together with another one, all or none."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from drydock.cli.toolkit import options as o
from drydock.core.errors import InvalidRequest

if TYPE_CHECKING:
    from drydock_client.values import LeaseInfo

_FIELDS = {"count", "slots", "vcpus", "ram", "disk", "exclusive", "name"}
"""The keys of `--with` that are fields of a request; all others are requirements."""
_INHERITED = ("ttl", "until", "wait_limit", "heartbeat_limit", "priority", "labels", "charged_group", "serve_again")
"""The fields of the first request that also apply to the others."""
_HINT = "Write it like --with accelerator:class=gpu,count=2. Besides requirements of the type, the keys can be: "


def companions(given: Mapping[str, Any], wanted: list[str] | None, count: int) -> list[dict[str, Any]]:
    """Return the requests of `--with TYPE:KEY=VALUE,...`. Raises InvalidRequest."""
    if wanted and count > 1:
        raise InvalidRequest(
            "--with cannot be combined with --count.", field="with",
            hint=f"Omit --count, and add the other leases with: --with {given['type']}:count={count - 1}",
        )  # fmt: skip
    shared = {name: given[name] for name in _INHERITED if name in given}
    return [shared | _request(one) for one in wanted or ()]


def _request(text: str) -> dict[str, Any]:
    kind, _, rest = text.partition(":")
    try:
        found = o.values(rest.split(",") if rest else None, "with")
    except InvalidRequest as error:
        raise InvalidRequest(f"{error.message.rstrip('.')} (in {text!r}).", field="with", hint=_hint()) from None
    if not kind.strip():
        raise InvalidRequest(f"{text!r} does not begin with a type.", field="with", hint=_hint())
    requirements = {name: value for name, value in found.items() if name not in _FIELDS}
    fields = {name: value for name, value in found.items() if name in _FIELDS}
    return {"type": kind, **fields} | ({"requirements": requirements} if requirements else {})


def _hint() -> str:
    return _HINT + ", ".join(sorted(_FIELDS)) + "."


def rule(same: str, different: str, near: str, others: list[dict[str, Any]], count: int) -> dict[str, str]:
    """Return the rule of the group: the leases of `--with` are in one host unless `same` says something else.

    Raises InvalidRequest if `near` is given for a single lease.
    """
    if near and not others and count == 1:
        raise InvalidRequest(
            "--near needs several leases.", field="near", hint="Request them with --with or --count."
        )  # fmt: skip
    given = {"same": same or ("host" if others else ""), "different": different, "near": near}
    return {name: value for name, value in given.items() if value}


def variables(infos: Iterable[LeaseInfo]) -> dict[str, str]:
    """Return the variables by which programs find the devices of these leases. Values of one name are joined."""
    found: dict[str, list[str]] = {}
    for info in infos:
        known = info.facts.get("environment")
        for name, value in known.items() if isinstance(known, dict) else ():
            found.setdefault(name, []).append(str(value))
    return {name: ",".join(dict.fromkeys(values)) for name, values in found.items()}
