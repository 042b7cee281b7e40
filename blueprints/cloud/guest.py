"""Steps for the guest: pin its host key before connecting, wait for its first boot, and compare it with the order."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from blueprints.accounts import actions as accounts
from blueprints.accounts.access import shell
from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.cloud.client import Client, Console, TellsHostKeys
from blueprints.cloud.interruption import NOTICE
from blueprints.cloud.launch_spec import instance
from blueprints.cloud.values import Instance, Underway
from blueprints.hosts import observed
from blueprints.hostshell import told
from blueprints.specs import Spec
from blueprints.userdata import FIRST_BOOT
from drydock.core.errors import InvalidRequest
from interfaces.errors import AuthenticationRefused, ConnectionLost, DeadlineExceeded, HostKeyMismatch, Unreachable
from interfaces.keys import PublicKey

_BEGIN, _END = "-----BEGIN SSH HOST KEY KEYS-----", "-----END SSH HOST KEY KEYS-----"
"""Lines that cloud-init prints around the keys (cc_ssh_authkey_fingerprints, write-ssh-key-fingerprints)."""


def pin(client: Client, spec: Spec, memo: Json) -> Answer:
    """Wait until the guest's host keys are known from the source in the config. No connection is made before that."""
    if spec.resource.facts.get("host_keys"):
        return Ready()
    source = spec.config.host_key
    if source not in sources(type(client)):
        message = (
            f"{client.provider} does not support host_key {source}. Choose one of: {', '.join(sources(type(client)))}."
        )
        return Failed(scope=Scope.OPERATOR, code="not_supported", message=message)
    found = _read(client, source, instance(spec.resource), memo)
    if isinstance(found, Underway):
        return Wait(after=found.after, memo={"handle": dict(found.handle)}, sentence=found.sentence)
    if not (keys := known(found)):
        return Wait(after=10.0, sentence="The machine has not published its host key yet.")
    told = ", ".join(key.fingerprint for key in keys)
    return Ready(facts={"host_keys": [key.line for key in keys]}, log=f"host keys by {source}: {told}")


def sources(client: type[Client]) -> tuple[str, ...]:
    """Return the sources of host keys that a cloud supports, by their names in the config."""
    own = (client.key_source,) if issubclass(client, TellsHostKeys) else ()
    return ("injected", *(("console",) if issubclass(client, Console) else ()), *own)


def _read(client: Client, source: str, there: Instance, memo: Json) -> Sequence[str] | Underway:
    if source == "console":
        assert isinstance(client, Console)
        return printed(client.console(there))
    assert isinstance(client, TellsHostKeys)
    return client.host_keys(there, memo.get("handle", {}))


def printed(console: str) -> list[str]:
    """Return the lines of the newest complete block of host keys on a console, or an empty string."""
    before, begin, _ = console.rpartition(_END)[0].rpartition(_BEGIN)
    block = console[len(before) + len(begin) :].partition(_END)[0] if begin else ""
    # A kernel writes times before what others print.
    return [line[line.find(word) :].strip() for line in block.splitlines() for word in _KINDS if word in line][:20]


_KINDS = ("ssh-ed25519 ", "ecdsa-sha2-", "ssh-rsa ")


def known(lines: Iterable[str]) -> list[PublicKey]:
    """Return the lines that are valid public keys."""
    found = []
    for line in lines:
        try:
            found.append(PublicKey.parse(" ".join(line.split()[:2])))
        except InvalidRequest:
            continue
    return found


_NO_AGENT = "echo absent"
_BOOTING = (Unreachable, ConnectionLost, DeadlineExceeded, AuthenticationRefused)
"""Errors of a machine whose SSH server or account is not ready yet. A wrong host key is not among them."""


@told
def reach(spec: Spec, memo: Json) -> Answer:
    """Wait until the guest accepts our login and its first boot has finished."""
    try:
        if spec.config.ready_by == "ssh":
            shell(spec).run("true")
            return Ready(log="reached")
        asked = (spec.config.agent_status or _NO_AGENT) if spec.config.ready_by == "agent" else FIRST_BOOT
        said, _, further = shell(spec).run(asked).strip().partition("\n")
    except HostKeyMismatch:
        raise
    except _BOOTING as error:
        return Wait(after=5.0, memo=memo, sentence=f"Drydock cannot log in yet: {error.message}"[:500])
    if said == "done":
        return Ready(log="the first boot has finished")
    if said == "running":
        return Wait(after=5.0, memo=memo, sentence="The first boot has not finished yet.")
    return _not_to_be(spec, said, further)


def _not_to_be(spec: Spec, said: str, further: str) -> Failed:
    by_agent = spec.config.ready_by == "agent"
    if said == "absent" and by_agent:
        message = "The image does not have the cloud's agent. Set ready_by: ssh in the blueprint."
        return Failed(scope=Scope.OPERATOR, code="no_agent", message=message)
    if said == "absent":
        message = "The image does not have cloud-init. Set ready_by: ssh in the blueprint, or choose another image."
        return Failed(scope=Scope.OPERATOR, code="no_cloud_init", message=message)
    who, code = ("The cloud's agent", "agent") if by_agent else ("cloud-init", "cloud_init")
    return Failed(scope=Scope.BLUEPRINT, code=code, message=f"{who} failed: {further}"[:2000], log=further)


@told
def compare(spec: Spec, memo: Json) -> Answer:
    """Compare the machine with the order, and record its additional attributes."""
    found = accounts.observe(spec)
    wanted, there = spec.resource.attributes.get("arch"), found.get("arch")
    if wanted and there and wanted != there:
        message = f"The machine is {there}, but {wanted} was ordered. Check that the image matches the instance type."
        return Failed(scope=Scope.BLUEPRINT, code="another_machine", message=message)
    return Ready(facts=found, attributes={**observed(found), "arch": there or wanted})


_ANNOUNCED = f"[ -f {NOTICE} ] && head -c 4096 {NOTICE} || :"
"""Prints the notice. Root in the guest can write anything there, so it is only shown as text to the machine's own
holders."""
_WORD = 64


@told
def check_notice(spec: Spec, memo: Json) -> Answer:
    """Check whether the cloud has notified the guest that it will reclaim the machine.

    Reads only the notice written by the program that we installed there.
    """
    if not spec.resource.facts.get("interruption") or spec.resource.facts.get("announced"):
        return Ready()
    try:
        said = json.loads(shell(spec).run(_ANNOUNCED) or "null")
    except (ValueError, RecursionError):
        return Ready()
    if not isinstance(said, dict):
        return Ready()
    action, time = (_word(said.get(name)) for name in ("action", "time"))
    return Ready(facts={"leaving": f"the guest was notified: {action or 'reclaim'}{f' at {time}' if time else ''}."})


def _word(given: object) -> str:
    return (
        "".join(one for one in given[:_WORD] if one.isascii() and one.isprintable()) if isinstance(given, str) else ""
    )
