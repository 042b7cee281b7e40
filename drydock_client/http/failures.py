"""Convert error answers of the server to the exceptions that the same operation raises in process."""

from __future__ import annotations

import json
from typing import Any

from drydock_client import errors
from drydock_client.values import Verdict, from_json

_KNOWN: dict[str, type[errors.DrydockError]] = {
    known.code: known
    for known in (
        errors.InvalidRequest, errors.NotFound, errors.Conflict, errors.NotAllowed, errors.NotSupported, errors.Busy,
        errors.TimedOut, errors.NoWorker, errors.DrydockError,
    )
}  # fmt: skip
_BY_STATUS: dict[int, type[errors.DrydockError]] = {
    400: errors.InvalidRequest, 401: errors.NotAllowed, 403: errors.NotAllowed, 404: errors.NotFound,
    409: errors.Conflict, 429: errors.Busy, 503: errors.Busy, 504: errors.TimedOut,
}  # fmt: skip


class ServerUnreachable(errors.DrydockError):
    """The server does not answer."""

    code = "server_unreachable"


class BadAnswer(errors.DrydockError):
    """The server sent an answer that this client does not understand."""

    code = "bad_answer"


def failure(status: int, content: bytes, url: str) -> errors.DrydockError:
    """Return the exception for a server's answer with an error status."""
    said = _said(content)
    if not said:
        known: type[errors.DrydockError] = _BY_STATUS.get(status, errors.DrydockError)
        return known(f"{url} answered {status}, but not like a Drydock server.", hint="Check the address.")
    found: errors.DrydockError = _made(status, said)
    found.code = str(said["code"])
    return found


def _said(content: bytes) -> dict[str, Any]:
    try:
        found = json.loads(content)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and "detail" in found and "code" in found else {}


def _made(status: int, said: dict[str, Any]) -> errors.DrydockError:
    message, field, hint = str(said["detail"]), str(said.get("field", "")), str(said.get("hint", ""))
    codes = [said["code"], *said.get("is_a", ())]
    if said["code"] == errors.LeaseFailed.code:
        verdicts = [from_json(Verdict, one) for one in said.get("verdicts", ())]
        return errors.LeaseFailed(message, state="", reason="", verdicts=verdicts)
    known: type[errors.DrydockError] = next(
        (_KNOWN[code] for code in codes if code in _KNOWN), _BY_STATUS.get(status, errors.DrydockError)
    )
    if known is errors.NotSupported:
        return errors.NotSupported(message, field=field, hint=hint, capability=str(said.get("capability", "")))
    if known is errors.InvalidRequest:
        problems = [errors.Problem(field=p["field"], message=p["message"]) for p in said.get("errors", ())]
        return errors.InvalidRequest(message, field=field, hint=hint, problems=problems)
    return known(message, field=field, hint=hint)
