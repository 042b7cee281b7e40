"""The DPUServiceCredentialRequests of a lease: their manifests, and what their objects say. Pure.

DPF makes a service account in the DPU cluster and a Secret with its kubeconfig, issues tokens anew before they expire,
and deletes both before it removes its finalizer, as far as its status names them (doca-platform,
`internal/dpuservice/controllers/dpuservice_credential_request_controller.go`).
"""

from __future__ import annotations

import base64
import binascii
import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass

from blueprints.answers import Json
from blueprints.dpf.services import labels_of
from blueprints.kube import Dialect, Object, at, object_name
from drydock.core import clock
from interfaces.dpu_services import FoundCredential

KIND = "DPUServiceCredentialRequest"
NAME = "drydock-credential"
"""The label with the name of the credential."""
UNTIL = "drydock-credential-until"
"""The annotation with the time at which the credential is removed."""
SHOWN = "drydock-credential-shown"
"""The annotation of a credential that was shown, with the time."""
KUBECONFIG = "kubeconfig"
"""The key of the Secret with the kubeconfig."""
_TIME = "%Y-%m-%dT%H:%M:%SZ"
_LONGEST = 500


@dataclass(frozen=True, kw_only=True)
class Made:
    """The objects that DPF creates for a request: a Secret, and an account of that name in the DPU cluster."""

    name: str
    namespace: str


def name_of(lease: str, credential: str) -> str:
    """Return the name of the request of a credential, of its Secret and of its account."""
    return object_name(f"{lease}-{credential}")


def manifest(
    dialect: Dialect, credential: str, seconds: int, *, lease: str, namespace: str, secrets: str,
    proof: Mapping[str, str], cluster: Json,
) -> Json:  # fmt: skip
    """Return the request of a credential whose Secret and account are in the namespace `secrets`.

    `cluster` has name and namespace of the DPU cluster. Without it, DPF would issue one for its own API server.
    """
    name = name_of(lease, credential)
    there = {"name": name, "namespace": secrets}
    found = dialect.type(KIND).manifest(
        name, namespace,
        spec={
            "type": "kubeconfig", "duration": f"{seconds}s", "serviceAccount": there, "secret": dict(there),
            "targetCluster": cluster,
        },
    )  # fmt: skip
    until = clock.now() + dt.timedelta(seconds=seconds)
    found["metadata"]["labels"] = {**proof, **labels_of(lease), NAME: credential}
    found["metadata"]["annotations"] = {UNTIL: until.strftime(_TIME)}
    return found


def made_for(found: Object) -> Made | None:
    """Return what DPF makes for a request; None if its spec was garbled.

    So it is if it names a Secret of another name than ours: that one is neither read nor deleted.
    """
    name, namespace = at(found.spec, "secret.name"), at(found.spec, "secret.namespace")
    return Made(name=found.name, namespace=namespace) if name == found.name and isinstance(namespace, str) else None


def until(found: Object) -> dt.datetime:
    """Return when a credential is over. It is over if that cannot be read."""
    try:
        return dt.datetime.strptime(found.annotations.get(UNTIL, ""), _TIME).replace(tzinfo=dt.UTC)
    except ValueError:
        return dt.datetime.min.replace(tzinfo=dt.UTC)


def found_credential(found: Object) -> FoundCredential | None:
    """Return a request as a credential; None if it was garbled."""
    name, made = found.labels.get(NAME, ""), made_for(found)
    if not name or made is None:
        return None
    issued = found.status.get("secret") == f"{made.namespace}/{made.name}"
    messages = tuple(
        f"{one.type}: {one.reason} {one.message}"[:_LONGEST].strip() for one in found.conditions if one.status != "True"
    )
    return FoundCredential(
        name=name, version=found.uid, expires_at=until(found), issued=issued, shown=SHOWN in found.annotations,
        removing=found.deleting, messages=messages[:10] or (() if issued else ("DPF has not reported on it yet.",)),
    )  # fmt: skip


def shown_now() -> dict[str, str | None]:
    """Return the annotation that marks a credential as shown."""
    return {SHOWN: clock.now().strftime(_TIME)}


def kubeconfig(secret: Object) -> str:
    """Return the kubeconfig of a Secret; empty if it has none that can be read."""
    data = at(secret.body, "data")
    given = data.get(KUBECONFIG) if isinstance(data, dict) else None
    try:
        return base64.b64decode(given, validate=True).decode() if isinstance(given, str) else ""
    except (binascii.Error, UnicodeDecodeError):
        return ""
