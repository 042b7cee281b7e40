"""The rules that every call of a step must keep, for any kind."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import FrozenInstanceError, fields
from typing import Any, TypeAlias, get_args

from blueprints.answers import Absent, Answer, Json, Ready, Unknown, Wait
from blueprints.contract import Step
from blueprints.records.erasures import Erasure
from blueprints.records.sensors import SensorReport
from blueprints.specs import Spec
from drydock.core import clock

_PUBLIC = ("facts", "resource_facts", "memo", "log", "sentence", "message", "code", "who", "what")
_FROM_FIND = (Ready, Wait, Absent, Unknown)
_SHORTEST_SECRET = 8


class ContractBroken(AssertionError):
    """The kind violates the contract."""


Secrets: TypeAlias = Callable[[Mapping[str, Any]], Iterable[str]]
"""Returns the texts of a credential that must stay secret."""


def called(step: Step, spec: Spec, memo: Json, *, find: bool, secrets: Secrets | None = None) -> Answer:
    """Call the step's act or find, check the answer against every rule for one call, and return it.

    Without `secrets`, every text in a credential is secret.
    """
    where = f"{spec.phase}.{step.name}" + (".find" if find else "")
    given = copy.deepcopy(memo)
    began = clock.monotonic()
    answer = (step.find if find and step.find else step.act)(spec, given)
    took = clock.monotonic() - began
    _require(took <= spec.deadline, f"{where} took {took:.1f} s, but its deadline is {spec.deadline:g} s")
    _require(given == memo, f"{where} changed the memo that it was given; it must answer with a new one")
    _kind_of_answer(where, answer, find=find)
    _plain(where, answer)
    _erasures(where, answer)
    _sensors(where, answer)
    _given_back(where, answer, spec)
    _no_secret(where, answer, spec, secrets or _all)
    return answer


def frozen(value: Any) -> None:
    """Raise ContractBroken if the dataclass can be changed."""
    name = fields(value)[0].name
    try:
        setattr(value, name, getattr(value, name))
    except FrozenInstanceError:
        return
    raise ContractBroken(f"{type(value).__name__} is not frozen")


def json_safe(where: str, value: Any) -> None:
    """Raise ContractBroken if the value changes on its way through JSON."""
    try:
        back = json.loads(json.dumps(value, allow_nan=False))
    except (TypeError, ValueError) as error:
        raise ContractBroken(f"{where} is not valid JSON: {error}") from error
    _require(back == value, f"{where} changes when it is converted to JSON and back: {value!r}")


def texts(value: Any) -> Iterator[str]:
    """Yield every text in a JSON structure, including names."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        yield from value
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from texts(inner)


def _require(kept: bool, broken: str) -> None:
    if not kept:
        raise ContractBroken(broken)


def _kind_of_answer(where: str, answer: Any, *, find: bool) -> None:
    _require(isinstance(answer, get_args(Answer)), f"{where} answered {answer!r}, which is not an answer")
    _require(not find or isinstance(answer, _FROM_FIND), f"{where} answered {type(answer).__name__}")
    _require(find or not isinstance(answer, Absent), f"{where} answered Absent, which only find may do")
    if isinstance(answer, Wait):
        _require(answer.percent is None or 0 <= answer.percent <= 100, f"{where} is at {answer.percent} percent")
        _require(answer.after >= 0, f"{where} waits for {answer.after} seconds")


def _plain(where: str, answer: Answer) -> None:
    for name in ("facts", "secrets", "resource_facts", "resource_secrets", "own_credential", "memo"):
        if (value := getattr(answer, name, None)) is not None:
            json_safe(f"{name} of {where}", value)


def _erasures(where: str, answer: Answer) -> None:
    for one in getattr(answer, "erasures", ()):
        _require(isinstance(one, Erasure), f"an erasure of {where} is {one!r}, which is no Erasure")
        _require(one.verified or bool(one.problem), f"{where} does not say why {one.disk} is not erased")
        _require(not one.verified or bool(one.method), f"{where} does not say how {one.disk} was erased")
        _require(one.bytes >= 0 and one.size_bytes >= 0, f"{where} reports a negative number of bytes of {one.disk}")


def _sensors(where: str, answer: Answer) -> None:
    report = getattr(answer, "sensors", None)
    _require(report is None or isinstance(report, SensorReport), f"{where} reports the sensors as {report!r}")


def _given_back(where: str, answer: Answer, spec: Spec) -> None:
    names = getattr(answer, "gives_back", ())
    _require(not names or spec.lease is None, f"{where} gives back {', '.join(names)}, but its phase is one of a lease")
    unknown = [name for name in names if name not in spec.resource.parents]
    _require(not unknown, f"{where} gives back {', '.join(unknown)}, which is no lease for life of the resource")


def _no_secret(where: str, answer: Answer, spec: Spec, secrets: Secrets) -> None:
    shown = [(name, text) for name in _PUBLIC for text in texts(getattr(answer, name, None))]
    shown += [("erasures", text) for one in getattr(answer, "erasures", ()) for text in texts(vars(one))]
    report = getattr(answer, "sensors", None)
    shown += [("sensors", text) for one in (report.readings if report else ()) for text in texts(vars(one))]
    for word in _secrets(answer, spec, secrets):
        for name, text in shown:
            _require(word not in text, f"{name} of {where} contains a secret")


def _all(credential: Mapping[str, Any]) -> Iterator[str]:
    return texts(list(credential.values()))


def _secrets(answer: Answer, spec: Spec, secrets: Secrets) -> list[str]:
    own = {**answer.resource_secrets, **answer.secrets} if isinstance(answer, Ready) else {}
    chosen = [*texts(list(answer.own_credential.values()))] if isinstance(answer, Ready) else []
    lease = spec.lease.secrets if spec.lease else {}
    known = [word for some in (own, lease, spec.resource.secrets) for value in some.values() for word in texts(value)]
    given = [word for one in spec.resource.blueprint.credentials.values() for word in secrets(one)]
    own_credential = texts(list(spec.resource.credential.values()))
    return [word for word in (*known, *given, *own_credential, *chosen) if len(word) >= _SHORTEST_SECRET]
