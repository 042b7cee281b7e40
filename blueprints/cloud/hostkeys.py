"""The host key of a guest that has made it itself: read by way of the cloud, and pinned before the first connection."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.cloud.client import Client, Console, TellsHostKeys
from blueprints.cloud.order import instance
from blueprints.cloud.values import Instance, Underway
from blueprints.specs import Spec
from drydock.core.errors import InvalidRequest
from interfaces.keys import PublicKey

_BEGIN, _END = "-----BEGIN SSH HOST KEY KEYS-----", "-----END SSH HOST KEY KEYS-----"
"""What cloud-init prints around them (cc_ssh_authkey_fingerprints, write-ssh-key-fingerprints)."""


def pin(client: Client, spec: Spec, memo: Json) -> Answer:
    """Until the guest's host keys are known, from where the config says; nothing connects before."""
    if spec.resource.facts.get("host_keys"):
        return Ready()
    source = spec.config.host_key
    if source not in sources(type(client)):
        message = f"{client.provider} tells no host keys by {source}. It does by: {', '.join(sources(type(client)))}."
        return Failed(scope=Scope.OPERATOR, code="not_supported", message=message)
    found = _read(client, source, instance(spec.resource), memo)
    if isinstance(found, Underway):
        return Wait(after=found.after, memo={"handle": dict(found.handle)}, sentence=found.sentence)
    if not (keys := known(found)):
        return Wait(after=10.0, sentence="The machine has not told its host key yet.")
    told = ", ".join(key.fingerprint for key in keys)
    return Ready(facts={"host_keys": [key.line for key in keys]}, log=f"host keys by {source}: {told}")


def sources(client: type[Client]) -> tuple[str, ...]:
    """How a cloud's host keys can be known, as the config calls it."""
    own = (client.key_source,) if issubclass(client, TellsHostKeys) else ()
    return ("injected", *(("console",) if issubclass(client, Console) else ()), *own)


def _read(client: Client, source: str, there: Instance, memo: Json) -> Sequence[str] | Underway:
    if source == "console":
        assert isinstance(client, Console)
        return printed(client.console(there))
    assert isinstance(client, TellsHostKeys)
    return client.host_keys(there, memo.get("handle", {}))


def printed(console: str) -> list[str]:
    """The lines of the newest whole block of host keys on a console; none where there is none yet."""
    before, begin, _ = console.rpartition(_END)[0].rpartition(_BEGIN)
    block = console[len(before) + len(begin) :].partition(_END)[0] if begin else ""
    # A kernel writes times before what others print.
    return [line[line.find(word) :].strip() for line in block.splitlines() for word in _KINDS if word in line][:20]


_KINDS = ("ssh-ed25519 ", "ecdsa-sha2-", "ssh-rsa ")


def known(lines: Iterable[str]) -> list[PublicKey]:
    """Those lines that are host keys."""
    found = []
    for line in lines:
        try:
            found.append(PublicKey.parse(" ".join(line.split()[:2])))
        except InvalidRequest:
            continue
    return found
