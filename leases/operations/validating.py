"""Whether the cloud of an account behaves as the provider contract says: by an operator, in the foreground.

What a validation makes bears another installation tag than machines of leases do (`validate-` and the
installation's own), and a proof by the ownership key. So no status reading counts it and no search for orphans judges
it, at this installation or at another; and what is left of it is found again, by the journal or by that tag with the
proof.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from django.conf import settings
from pydantic import ValidationError

from blueprints import registry
from blueprints.cloud.client import Client
from blueprints.cloud.faults import SdkNotInstalled
from blueprints.cloud.kind import CloudHost
from blueprints.cloud.validation.journal import Journal
from blueprints.cloud.validation.marks import Marks, marks
from blueprints.cloud.validation.values import Report
from drydock.core.errors import Conflict, DrydockError, InvalidRequest
from leases.engine.core import installation
from leases.engine.core.transitions import record_event
from leases.given import checked
from leases.operations import credentials
from leases.operations.callers import Caller, operator_only


@dataclass(frozen=True, kw_only=True)
class Account:
    """A credential, opened: the client of its cloud, how what is made there is marked, and where that is noted."""

    name: str
    kind: CloudHost
    client: Client
    marks: Marks
    journal: Journal
    secrets: Mapping[str, Any] = field(repr=False)

    def image_words(self, given: Mapping[str, str]) -> dict[str, str]:
        """The words of an image, checked by the kind; its default without any. Raises InvalidRequest."""
        image = self.kind.Config.model_fields["image"]
        if not given:
            words: dict[str, str] = image.get_default(call_default_factory=True).wanted()
            return words
        try:
            config = self.kind.Config.model_validate({"credential": self.name, "image": dict(given)})
        except ValidationError as error:
            raise InvalidRequest(error.errors()[0]["msg"], field="image") from None
        return config.image.wanted()


@checked
def open_account(who: Caller, name: str, *, kind: str = "") -> Account:
    """The account of a credential, for a validation. Nothing is asked there yet.

    Raises NotFound, InvalidRequest where the kind is not known or the credential is not of it, Conflict while the
    installation is suspended, NotAllowed.
    """
    operator_only(who, "validate a provider")
    here = installation.current()
    if here.problem:
        raise Conflict(
            f"The installation is suspended: {here.problem}", hint="An operator confirms it: `drydock installation`."
        )
    row = credentials.row_of(name)
    secrets = dict(row.secrets or {})
    found = _kind(kind, name, secrets)
    try:
        client = found.client(secrets)
    except (ValidationError, SdkNotInstalled, ValueError) as error:
        raise InvalidRequest(_why(error), field="credential") from None
    folder = Path(settings.DRYDOCK.state) / "validation"
    return Account(
        name=name, kind=found, client=client, secrets=secrets, marks=_marks(here.short),
        journal=Journal(folder / f"{here.short}-{name}-{found.name}.jsonl"),
    )  # fmt: skip


def _why(error: Exception) -> str:
    """Never the values of a credential."""
    if isinstance(error, ValidationError):
        first = error.errors()[0]
        return f"The credential does not fit: {'.'.join(map(str, first['loc']))}: {first['msg']}"
    return str(error)


def _kind(wanted: str, name: str, secrets: Mapping[str, Any]) -> CloudHost:
    """The kind that was said, that the credential's blueprints have, or that alone understands its fields."""
    if wanted:
        found = registry.kind(wanted)
        if not isinstance(found, CloudHost):
            raise InvalidRequest(f"{wanted} is not a kind of cloud hosts.", field="kind", hint=_clouds_hint())
        return found
    used = {row.kind for row in credentials.users_of(name)}
    clouds = _clouds()
    fitting = [one for one in clouds if one.name in used] or [one for one in clouds if _understands(one, secrets)]
    if len(fitting) != 1:
        said = ", ".join(one.name for one in fitting)
        which = f"It could be of {said}." if fitting else "It fits no kind of cloud hosts."
        raise InvalidRequest(f"{which} Say which.", field="kind", hint=_clouds_hint())
    return fitting[0]


def _clouds() -> list[CloudHost]:
    found = []
    for name in registry.names():
        try:
            kind = registry.kind(name)
        except DrydockError:
            continue
        if isinstance(kind, CloudHost):
            found.append(kind)
    return found


def _clouds_hint() -> str:
    return f"--kind is one of {', '.join(one.name for one in _clouds())}."


def _understands(kind: CloudHost, secrets: Mapping[str, Any]) -> bool:
    try:
        kind.Credential.model_validate(dict(secrets))
    except ValidationError:
        return False
    return True


def _marks(short: str) -> Marks:
    return marks(f"validate-{short}", proof=lambda key: _proof(short, key))


def _proof(short: str, key: str) -> str:
    """Of another message than a lease's machine has, so that neither can pass for the other."""
    secret = str(settings.DRYDOCK_OWNERSHIP_KEY).encode()
    return hmac.new(secret, f"validation/{short}/{key}".encode(), hashlib.sha256).hexdigest()[:40]


def tell(who: Caller, account: Account, report: Report) -> None:
    """Leave an event that says what came of it."""
    failed = ", ".join(one.check for one in report.findings if one.verdict in ("failed", "not run"))
    outcome = "All of it behaves." if report.ok else f"Not so: {failed or 'something is left'}."
    record_event(
        "credential.validated", f"Credential {account.name} as {account.kind.name}: {outcome}", actor=who.actor,
        details={"run": report.run, "left": list(report.left)},
    )  # fmt: skip
