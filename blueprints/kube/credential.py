"""The credential of a cluster: a kubeconfig, or server, token and CA, or the account of the pod that this runs in.

Everything is checked when the credential is read, before anything is sent. Nothing in it is executed, and no file is
read but the token and the CA that Kubernetes mounts into every pod
(https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/).
"""

from __future__ import annotations

import datetime as dt
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, ValidationError, field_validator, model_validator

from blueprints.contract import Fields
from blueprints.kube.errors import CredentialInvalid
from blueprints.kube.kubeconfig import Access, KubeconfigRefused, checked_pem, checked_server, parse

IN_CLUSTER = Path("/var/run/secrets/kubernetes.io/serviceaccount")
"""The folder in which Kubernetes mounts the token of a pod's account. The token is renewed while the pod runs."""
_MOST_FILE = 64 << 10
_NAMESPACE = r"^$|^[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?$"


class Credential(Fields):
    """The secrets of a credential for a Kubernetes API server. It needs exactly one source."""

    kubeconfig: SecretStr = Field(
        default=SecretStr(""),
        description="Text of a kubeconfig with embedded certificates, keys or token. Make one of a single context: "
        "kubectl config view --minify --flatten",
    )
    server: str = Field(
        default="", max_length=500, description="Address of the API server (https://...), with `token` and `ca`."
    )
    token: SecretStr = Field(default=SecretStr(""), description="Token of a service account.")
    ca: str = Field(default="", max_length=100_000, description="Certificate of the cluster's CA, as PEM text.")
    in_cluster: bool = Field(
        default=False, description="Use the account of the pod in which the workers run. Its token is renewed there."
    )
    namespace: str = Field(
        default="", pattern=_NAMESPACE, description="Namespace, if not that of the kubeconfig or the pod."
    )

    @field_validator("server")
    @classmethod
    def _is_https(cls, server: str) -> str:
        return checked_server(server) if server else ""

    @field_validator("ca")
    @classmethod
    def _is_pem(cls, ca: str) -> str:
        return checked_pem(ca, "CERTIFICATE") if ca else ""

    @model_validator(mode="after")
    def _has_one_source(self) -> Self:
        config, token = self.kubeconfig.get_secret_value(), self.token.get_secret_value()
        if sum([bool(config), bool(self.server), self.in_cluster]) != 1:
            raise ValueError("Give exactly one of: kubeconfig, server with token and ca, in_cluster=true.")
        if self.server and not token:
            raise ValueError("server requires token.")
        if not self.server and (token or self.ca):
            raise ValueError("token and ca are used with server only.")
        if not token.isascii() or re.search(r"\s", token):
            raise ValueError("token must be one word, without line breaks.")
        if config:
            parse(config)
        return self

    def access(self) -> Access:
        """Return what is needed to connect. Raises CredentialInvalid."""
        if self.in_cluster:
            found = in_cluster()
        elif self.server:
            found = Access(server=self.server, token=self.token.get_secret_value(), ca=self.ca)
        else:
            found = parse(self.kubeconfig.get_secret_value())
        return found.in_namespace(self.namespace) if self.namespace else found


def read(fields: Mapping[str, Any]) -> Credential:
    """Return a stored credential as a value. Raises CredentialInvalid, which names the field and quotes nothing."""
    try:
        return Credential(**fields)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False, include_context=False)[0]
        where = ".".join(str(part) for part in first["loc"])
        raise CredentialInvalid(first["msg"].removeprefix("Value error, "), field=where) from None


@dataclass
class Source:
    """The source of a connection's credential. It is read again after a 401, or if a token may have been renewed."""

    credential: Credential
    again: Callable[[], Credential] | None = None
    """Reads the stored credential again, because an operator may have replaced it."""
    _access: Access | None = field(default=None, repr=False)

    def access(self) -> Access:
        """Return the access as it was last read."""
        if self._access is None:
            self._access = self.credential.access()
        return self._access

    def renewed(self) -> bool:
        """Read the credential again. Return whether it has changed."""
        before = self.access()
        if self.again is not None:
            self.credential = self.again()
        self._access = self.credential.access()
        return self._access != before

    @property
    def rotates(self) -> bool:
        """Whether the token is renewed by itself, so that it must be read again from time to time."""
        return self.credential.in_cluster


def in_cluster(folder: Path | None = None, environ: Mapping[str, str] | None = None) -> Access:
    """Return the access of the pod that this process runs in. Raises CredentialInvalid."""
    folder, environ = folder or IN_CLUSTER, os.environ if environ is None else environ
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "")
    if not host or not port:
        raise CredentialInvalid(
            "This process does not run in a pod: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set.",
            field="in_cluster", hint="Give a kubeconfig, or server with token and ca.",
        )  # fmt: skip
    try:
        server = checked_server(f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}")
        ca = checked_pem(_file(folder / "ca.crt"), "CERTIFICATE")
        token, namespace = _file(folder / "token").strip(), _file(folder / "namespace").strip()
    except (OSError, ValueError) as error:
        said = error.strerror if isinstance(error, OSError) else str(error)
        raise CredentialInvalid(
            f"The account of the pod in {folder} cannot be read: {said}.", field="in_cluster"
        ) from None
    if not token:
        raise CredentialInvalid(f"The token in {folder} is empty.", field="in_cluster")
    return Access(server=server, ca=ca, token=token, namespace=namespace or "default")


def _file(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MOST_FILE).decode()


def certificates_end(access: Access) -> dt.datetime | None:
    """Return when the client certificate of an access expires; None if it has none. Raises CredentialInvalid."""
    if not access.certificate:
        return None
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificate(access.certificate.encode()).not_valid_after_utc
    except ValueError:
        raise CredentialInvalid("The client certificate cannot be read.", field="kubeconfig") from None


def host_of(server: str) -> str:
    """Return host and port of a server's address, for messages."""
    return urlsplit(server).netloc


__all__ = ["Access", "Credential", "KubeconfigRefused", "Source", "certificates_end", "host_of", "in_cluster", "read"]
