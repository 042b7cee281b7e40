"""Errors of Kubernetes API servers. The docstring of a class is its default message."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blueprints.answers import Answer, Failed, Scope, Wait
from drydock.core.errors import DrydockError, Problem

_PAUSE = 5.0
"""Seconds to wait before a request is repeated, if the server does not say for how long."""
MOST_PAUSE = 300.0
"""Seconds after which a request is repeated at the latest, whatever the server says."""


class KubeError(DrydockError):
    """The Kubernetes API server could not carry out the request."""

    code = "kube"
    scope = Scope.STEP

    def answer(self) -> Answer:
        """Return the answer of a step whose call failed with this error."""
        return Failed(scope=self.scope, code=self.code, message=str(self)[:2000])


class ApiUnavailable(KubeError):
    """The API server cannot be reached, or asks to try again later."""

    code = "kube_unavailable"

    def __init__(self, message: str = "", *, retry_after: float | None = None, sent: bool = False) -> None:
        super().__init__(message)
        self.retry_after = retry_after
        """Seconds after which the server wants to be asked again, if it said so."""
        self.sent = sent
        """Whether the request may have been carried out although its answer was lost."""

    @property
    def pause(self) -> float:
        """Seconds to wait before the request is repeated."""
        wanted = _PAUSE if self.retry_after is None else self.retry_after
        return min(max(wanted, 1.0), MOST_PAUSE)

    def answer(self) -> Answer:
        """Return a Wait: an outage never fails a build. The caller limits how long an outage may last."""
        return Wait(after=self.pause, sentence=self.message[:500])


class CredentialInvalid(KubeError):
    """The credential cannot be used."""

    code = "kube_credential_invalid"
    scope = Scope.OPERATOR


class CredentialRefused(KubeError):
    """The API server does not accept the credential (401)."""

    code = "kube_credential_refused"
    scope = Scope.OPERATOR


class CertificateUntrusted(KubeError):
    """The certificate of the API server is not trusted. Nothing was sent to it."""

    code = "kube_certificate_untrusted"
    scope = Scope.OPERATOR


class RequestForbidden(KubeError):
    """The account may not do this (403)."""

    code = "kube_forbidden"
    scope = Scope.OPERATOR

    def __init__(self, message: str, *, verb: str, resource: str, namespace: str = "") -> None:
        super().__init__(message, hint="Grant it in the role of the account (`drydock kube role`).")
        self.verb, self.resource, self.namespace = verb, resource, namespace


class ObjectAbsent(KubeError):
    """The object does not exist (404)."""

    code = "kube_absent"


class ObjectExists(KubeError):
    """An object with this name exists already (409)."""

    code = "kube_exists"


class ObjectChanged(KubeError):
    """The object was changed, or replaced by another one of the same name, since it was read (409)."""

    code = "kube_changed"


class ObjectForeign(KubeError):
    """An object with this name exists, and nothing proves that it is ours."""

    code = "kube_foreign"
    scope = Scope.OPERATOR


@dataclass(frozen=True, kw_only=True)
class FieldOwner:
    """A field manager, and the fields of an object that it owns, as the API server names them."""

    name: str
    fields: tuple[str, ...] = ()


class ManagerConflict(KubeError):
    """Other field managers own fields that this change sets (409). Nothing was changed."""

    code = "kube_manager_conflict"

    def __init__(self, message: str = "", *, owners: Sequence[FieldOwner] = ()) -> None:
        super().__init__(message)
        self.owners = tuple(owners)


class VersionExpired(KubeError):
    """The API server no longer has this resourceVersion (410). List again."""

    code = "kube_expired"


class ObjectRefused(KubeError):
    """The API server refused the object (400 or 422). Nothing was changed."""

    code = "kube_refused"
    scope = Scope.BLUEPRINT

    def __init__(self, message: str = "", *, problems: Sequence[Problem] = (), reason: str = "") -> None:
        super().__init__(message)
        self.problems = tuple(problems)
        """The fields that the server named, each with its reason."""
        self.reason = reason
        """The reason of the server's Status, such as `Invalid`."""


class FieldsDropped(KubeError):
    """The API server would not store some fields of the object. Nothing was changed."""

    code = "kube_fields_dropped"
    scope = Scope.BLUEPRINT

    def __init__(self, what: str, paths: Sequence[str]) -> None:
        self.paths = tuple(paths)
        """Paths of the fields that the server dropped or changed, such as `spec.dpuNodeSelector`."""
        listed = ", ".join(paths[:20]) + (f" and {len(paths) - 20} more" if len(paths) > 20 else "")
        super().__init__(
            f"The API server would not store these fields of {what}: {listed}.",
            hint="Its version of the CRDs does not have them, or a webhook changes them. Nothing was written.",
        )


class AnswerInvalid(KubeError):
    """The API server sent an answer that cannot be understood."""

    code = "kube_answer_invalid"


class AnswerTooLong(AnswerInvalid):
    """The answer of the API server is longer than allowed."""

    code = "kube_answer_too_long"


class KindUnknown(KubeError):
    """The API server does not have this kind of object."""

    code = "kube_kind_unknown"
    scope = Scope.OPERATOR


class LibraryMissing(KubeError):
    """A package that is needed for Kubernetes is not installed."""

    code = "kube_library_missing"
    scope = Scope.OPERATOR

    def __init__(self, what: str, package: str) -> None:
        super().__init__(
            f"{what} needs the package {package}, which is not installed.",
            hint="Install it for web and workers: pip install 'drydock-leases[dpf]'",
        )
