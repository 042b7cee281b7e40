"""Kubeconfig files, as far as they only describe access. What runs a program, reads a file or weakens TLS is refused.

The format is documented at https://kubernetes.io/docs/reference/config-api/kubeconfig.v1/.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any
from urllib.parse import urlsplit

from blueprints.kube.yamltext import YamlRefused, decoded, documents

MOST_BYTES = 512 << 10
FLATTEN = "Make one with: kubectl config view --minify --flatten"
_RUNS = {"exec": "runs a program", "auth-provider": "runs a provider's log-in"}
_PATHS = {
    "certificate-authority": "certificate-authority-data", "client-certificate": "client-certificate-data",
    "client-key": "client-key-data", "tokenFile": "token",
}  # fmt: skip
_CLUSTER = {"server", "certificate-authority-data", "tls-server-name", "disable-compression", "extensions"}
_USER = {"token", "client-certificate-data", "client-key-data", "extensions"}
_PEM = {
    "CERTIFICATE": re.compile(r"-----BEGIN (TRUSTED )?CERTIFICATE-----"),
    "PRIVATE KEY": re.compile(r"-----BEGIN ([A-Z]+ )?PRIVATE KEY-----"),
}


class KubeconfigRefused(ValueError):
    """A kubeconfig that cannot be used. The message names the field and quotes no value."""


@dataclass(frozen=True, kw_only=True, repr=False)
class Access:
    """The parameters of a connection to an API server. Kept in memory only."""

    server: str
    ca: str = ""
    """PEM text; empty for the authorities that the system trusts."""
    token: str = ""
    certificate: str = ""
    key: str = ""
    server_name: str = ""
    """The name in the server's certificate, if not that in its address."""
    namespace: str = "default"

    @property
    def secrets(self) -> frozenset[str]:
        """Texts that no message may contain."""
        return frozenset({self.token, self.key} - {""})

    def in_namespace(self, namespace: str) -> Access:
        """Return the same access with another namespace."""
        return replace(self, namespace=namespace)


def parse(text: str) -> Access:
    """Return the access that the current context describes. Raises KubeconfigRefused."""
    try:
        found = documents(text, most_bytes=MOST_BYTES)
    except YamlRefused as error:
        raise KubeconfigRefused(f"The kubeconfig cannot be read: {error}") from None
    if len(found) != 1 or not isinstance(found[0], dict):
        raise KubeconfigRefused("A kubeconfig is one YAML mapping.")
    config = found[0]
    if config.get("kind", "Config") != "Config":
        raise KubeconfigRefused("The kind of a kubeconfig is Config.")
    clusters, users = _entries(config, "clusters", "cluster"), _entries(config, "users", "user")
    # All of them, also those that are not used: the text is stored, and should have no secret that is not needed.
    for name, user in users.items():
        _check_user(name, user)
    for name, cluster in clusters.items():
        _check_cluster(name, cluster)
    context = _context(config)
    cluster = _named(clusters, context, "cluster")
    user = _named(users, context, "user")
    return _access(cluster, user, context)


def _access(cluster: Mapping[str, Any], user: Mapping[str, Any], context: Mapping[str, Any]) -> Access:
    server = _text(cluster, "server", "clusters")
    if not server:
        raise KubeconfigRefused("clusters: the cluster of the current context has no server.")
    try:
        access = Access(
            server=checked_server(server),
            ca=_pem(cluster, "certificate-authority-data", "CERTIFICATE"),
            token=_text(user, "token", "users").strip(),
            certificate=_pem(user, "client-certificate-data", "CERTIFICATE"),
            key=_pem(user, "client-key-data", "PRIVATE KEY"),
            server_name=_text(cluster, "tls-server-name", "clusters"),
            namespace=_text(context, "namespace", "contexts") or "default",
        )
    except KubeconfigRefused:
        raise
    except ValueError as error:
        raise KubeconfigRefused(f"clusters: server: {error}") from None
    if bool(access.certificate) != bool(access.key):
        raise KubeconfigRefused("users: client-certificate-data and client-key-data must be given together.")
    if not access.token and not access.certificate:
        raise KubeconfigRefused(f"users: the user of the current context has no token and no certificate. {FLATTEN}")
    if not access.token.isascii() or re.search(r"\s", access.token):
        raise KubeconfigRefused("users: token must be one word, without line breaks.")
    return access


def checked_server(server: str) -> str:
    """Return the address of a server without trailing slashes. Raises ValueError if it is not an https address."""
    try:
        url = urlsplit(server)
        valid = bool(url.hostname) and (url.port is None or url.port > 0)
    except ValueError:
        valid = False
    if not valid or not re.fullmatch(r"[!-~]+", server):
        raise ValueError("It is not a valid address. It has the form https://HOST:PORT.")
    if url.scheme != "https":
        raise ValueError("It must begin with https://, because the credential would be readable on the network.")
    if url.username is not None or url.password is not None or url.query or url.fragment:
        raise ValueError("It must not contain a user, a query or a fragment.")
    return server.rstrip("/")


def checked_pem(text: str, what: str) -> str:
    """Return a PEM text. Raises ValueError if it has no block of this type."""
    if not _PEM[what].search(text):
        raise ValueError(f"It is not a PEM text with a {what}.")
    if what == "PRIVATE KEY" and "ENCRYPTED" in text:
        raise ValueError("The key is encrypted, and there is nobody to type its passphrase.")
    return text


def _entries(config: Mapping[str, Any], plural: str, singular: str) -> dict[str, Mapping[str, Any]]:
    listed = config.get(plural) or []
    if not isinstance(listed, list) or not all(isinstance(one, dict) for one in listed):
        raise KubeconfigRefused(f"{plural}: it must be a list of mappings.")
    found: dict[str, Mapping[str, Any]] = {}
    for entry in listed:
        name, value = entry.get("name"), entry.get(singular) or {}
        if not isinstance(name, str) or not isinstance(value, dict):
            raise KubeconfigRefused(f"{plural}: each entry has a name and a mapping `{singular}`.")
        if name in found:
            raise KubeconfigRefused(f"{plural}: two entries have the same name.")
        found[name] = value
    return found


def _check_user(name: str, user: Mapping[str, Any]) -> None:
    for key, does in _RUNS.items():
        if key in user:
            raise KubeconfigRefused(f"users: `{key}` {does}, which is not allowed here. Use the token of an account.")
    _check_paths("users", user)
    if unknown := sorted(set(user) - _USER):
        raise KubeconfigRefused(f"users: `{unknown[0]}` is not supported. Allowed are: {', '.join(sorted(_USER))}.")


def _check_cluster(name: str, cluster: Mapping[str, Any]) -> None:
    if cluster.get("insecure-skip-tls-verify"):
        raise KubeconfigRefused(
            "clusters: `insecure-skip-tls-verify` is not allowed. Give the CA as `certificate-authority-data`."
        )
    _check_paths("clusters", cluster)
    if unknown := sorted(set(cluster) - _CLUSTER - {"insecure-skip-tls-verify"}):
        raise KubeconfigRefused(
            f"clusters: `{unknown[0]}` is not supported. Allowed are: {', '.join(sorted(_CLUSTER))}."
        )
    server = _text(cluster, "server", "clusters")
    try:
        checked_server(server or "https://none")
    except ValueError as error:
        raise KubeconfigRefused(f"clusters: server: {error}") from None


def _check_paths(plural: str, entry: Mapping[str, Any]) -> None:
    for key, instead in _PATHS.items():
        if key in entry:
            raise KubeconfigRefused(f"{plural}: `{key}` is the path of a file. Give `{instead}` instead. {FLATTEN}")


def _context(config: Mapping[str, Any]) -> Mapping[str, Any]:
    contexts = _entries(config, "contexts", "context")
    current = config.get("current-context") or ""
    if not isinstance(current, str):
        raise KubeconfigRefused("current-context: it must be a text.")
    if not current and len(contexts) > 1:
        raise KubeconfigRefused(f"There are {len(contexts)} contexts, but no current-context. {FLATTEN}")
    if not contexts or (current and current not in contexts):
        raise KubeconfigRefused("current-context: there is no such context." if current else "contexts: there is none.")
    return contexts[current] if current else next(iter(contexts.values()))


def _named(entries: Mapping[str, Mapping[str, Any]], context: Mapping[str, Any], what: str) -> Mapping[str, Any]:
    name = _text(context, what, "contexts")
    if name not in entries:
        raise KubeconfigRefused(f"contexts: the {what} of the current context is not in the kubeconfig.")
    return entries[name]


def _text(entry: Mapping[str, Any], key: str, plural: str) -> str:
    found = entry.get(key)
    if found is not None and not isinstance(found, str):
        raise KubeconfigRefused(f"{plural}: `{key}` must be a text.")
    return found or ""


def _pem(entry: Mapping[str, Any], key: str, what: str) -> str:
    text = _text(entry, key, "users" if key.startswith("client") else "clusters")
    if not text:
        return ""
    try:
        return checked_pem(decoded(text).decode("ascii"), what)
    except (YamlRefused, ValueError) as error:
        said = "It is not a PEM text." if isinstance(error, UnicodeDecodeError) else str(error)
        raise KubeconfigRefused(f"`{key}`: {said}") from None
