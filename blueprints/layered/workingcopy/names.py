"""Repository addresses and ref names, checked before they are passed to git."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Annotated, Literal
from urllib.parse import quote, unquote

from pydantic import AfterValidator

from drydock.core.characters import UNSAFE
from drydock.core.wildcards import matches

Protocol = Literal["https", "http", "ssh", "git", "file"]

_USER = r"(?:(?P<user>[A-Za-z0-9._][A-Za-z0-9._-]*)@)?"
_HOST = r"(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:.]+\])"
_REMOTE = re.compile(rf"(?P<protocol>https?|ssh|git)://{_USER}{_HOST}(?::(?P<port>[0-9]{{1,5}}))?(?P<path>/.+)")
_FILE = re.compile(r"(?P<protocol>file)://(?P<path>/.+)")
_SHORT_SSH = re.compile(rf"{_USER}{_HOST}:(?P<path>[^-:/].*|/[^/].*)")
_PATTERNS = tuple(
    re.compile(each.pattern.replace("[A-Za-z0-9", "[*A-Za-z0-9").replace("[0-9]{", "[*0-9]{"))
    for each in (_REMOTE, _FILE, _SHORT_SSH)
)
_NOT_IN_URL = re.compile(rf"[{UNSAFE} \\\"'<>^`{{|}}]")
_NOT_ESCAPED = re.compile(r"[\x00-\x1f\x7f\\%]")
_NOT_IN_REF = re.compile(rf"[{UNSAFE} ~^:?*\[\\]|\.\.|@\{{|//|\.lock(/|$)|(^|/)\.|[/.]$")


def protocol_of(repository: str) -> Protocol:
    """Return the protocol of a repository's address. Raises ValueError if it is not a plain address."""
    if _NOT_IN_URL.search(repository) or len(repository) > 1000:
        raise ValueError("a repository's address must not contain spaces or special characters")
    found = _REMOTE.fullmatch(repository) or _FILE.fullmatch(repository) or _SHORT_SSH.fullmatch(repository)
    if found is None:
        raise ValueError(
            "a repository's address must be https://..., ssh://..., user@host:path, git://... or file:///..."
        )
    if _leads_elsewhere(found["path"]):
        raise ValueError("a repository's path must not contain .. or the escapes %2e, %2f, %5c and %25")
    parts = found.groupdict()
    protocol: Protocol = parts.get("protocol", "ssh")  # type: ignore[assignment]
    if parts.get("user") and protocol != "ssh":
        raise ValueError("put the account in a credential, not in the repository's address")
    return protocol


def _leads_elsewhere(path: str) -> bool:
    """Return whether a program that decodes the escapes in the path could arrive at another path."""
    plain = unquote(path)
    if _NOT_ESCAPED.search(plain) or plain.count("/") != path.count("/"):
        return True
    return ".." in plain.split("/") or "%2e" in path.lower()


def prompts_of(repository: str, username: str) -> tuple[str, ...]:
    """Return the prompts with which git asks for the user name and password of the repository's own server.

    The result is empty if the protocol never prompts.
    """
    found = _REMOTE.fullmatch(repository)
    if found is None or not found["protocol"].startswith("http"):
        return ()
    scheme, server = repository[: -len(found["path"])].split("://", 1)
    escaped = re.sub("%..", lambda each: each[0].lower(), quote(username, safe=""))
    # What git escapes in an account depends on its version.
    accounts = sorted({username, escaped})
    return (
        f"Username for '{scheme}://{server}': ",
        *(f"Password for '{scheme}://{account}@{server}': " for account in accounts),
    )


def checked_repository(repository: str) -> str:
    """Return the address unchanged. Raises ValueError if it is invalid."""
    protocol_of(repository)
    return repository


def checked_ref(ref: str) -> str:
    """Return the name of a branch or tag, or a commit, unchanged.

    Raises ValueError for a ref that git could read as an option or a revision expression.
    """
    if not ref or ref.startswith(("-", "/")) or ref in ("@", "HEAD") or len(ref) > 250 or _NOT_IN_REF.search(ref):
        raise ValueError("a ref must be the name of a branch or tag, or a full commit id")
    return ref


def allowed(repository: str, protocols: Iterable[str], patterns: Iterable[str]) -> bool:
    """Return whether the operator's rules allow the repository.

    Its protocol must be one of `protocols`. If there are `patterns`, the repository must match one of them.
    """
    patterns = tuple(patterns)
    if protocol_of(repository) not in protocols:
        return False
    return not patterns or any(_fits(repository, pattern) for pattern in patterns)


def is_pattern(pattern: str) -> bool:
    """Return whether the pattern has the form of an address.

    Account, host, port and path may contain `*`.
    """
    return any(each.fullmatch(pattern) for each in _PATTERNS)


def _fits(repository: str, pattern: str) -> bool:
    """Return whether a repository matches a pattern.

    The parts of the address are compared one by one, so the text in one part can never match the pattern of another.
    """
    for plain, starred in zip((_REMOTE, _FILE, _SHORT_SSH), _PATTERNS, strict=True):
        found, wanted = plain.fullmatch(repository), starred.fullmatch(pattern)
        if found or wanted:
            return bool(found and wanted) and _fits_parts(found.groupdict(""), wanted.groupdict(""))  # type: ignore[union-attr]
    return False


def _fits_parts(found: dict[str, str], wanted: dict[str, str]) -> bool:
    labels = [each.get("host", "").lower().split(".") for each in (found, wanted)]
    pairs = [(found.get(part, ""), text) for part, text in wanted.items() if part != "host"]
    return len(labels[0]) == len(labels[1]) and all(
        matches(text, said) for said, text in (*pairs, *zip(*labels, strict=True))
    )


Repository = Annotated[str, AfterValidator(checked_repository)]
Ref = Annotated[str, AfterValidator(checked_ref)]
