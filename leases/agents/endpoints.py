"""The endpoints of agents that listen: which of them the server trusts, and how it calls them.

An agent says at which address it listens, and its host may belong to a tenant. So that it cannot make the server call
other machines, an address is only trusted at once if the server reaches the host itself under it, and an operator
confirms every other one, and every change of a certificate. A call connects to that address alone, speaks TLS, and
sends nothing before the certificate was compared.
"""

from __future__ import annotations

import hashlib
import hmac
import http.client
import ipaddress
import json
import logging
import secrets
import select
import socket
import ssl
from collections.abc import Iterator

from blueprints import registry
from blueprints.contract import Reports
from drydock.core.errors import DrydockError
from drydock_agent.cyborg import DISCOVERING
from drydock_agent.messages import Hello
from interfaces.deadline import Deadline
from interfaces.local.transport import LocalTransport
from interfaces.ssh.transport import SshTransport
from leases.engine.core import specs
from leases.engine.core.transitions import record_event
from leases.models import Agent, Event, Resource

SECONDS = 10.0
"""The longest time in seconds that a call of an agent may take."""
_MOST_BYTES = 65_536

log = logging.getLogger(__name__)


class NotCalled(Exception):
    """The endpoint of an agent could not be called. The agent fetches its orders all the same."""


def announced(agent: Agent, hello: Hello) -> None:
    """Store the endpoint that an agent announces. An operator must confirm an endpoint that is not trusted."""
    if not hello.endpoint:
        # The one that is known stays: a program that does not listen may just be trying a new version.
        Agent.objects.filter(pk=agent.pk).exclude(offered={}).update(offered={})
        return
    found = fingerprint(hello.certificate)
    same = (agent.endpoint, agent.fingerprint) == (hello.endpoint, found)
    if same or (agent.fingerprint in ("", found) and _is_of_host(agent, hello.endpoint)):
        if not same or agent.offered:
            trust(agent.pk, hello.endpoint, found)
        return
    offered = {"endpoint": hello.endpoint, "fingerprint": found}
    if agent.offered == offered:
        return
    Agent.objects.filter(pk=agent.pk).update(offered=offered)
    message = (
        f"The agent of {agent.place} announced the endpoint {hello.endpoint} with the certificate {found}, which an"
        " operator has to confirm."
    )
    details = {"agent": agent.pk, **offered}
    record_event("agent.endpoint_announced", message, blueprint_id=agent.blueprint_id, details=details)


def before(agent: Agent) -> str:
    """Return another endpoint that the agent has had, or announced, with the certificate that waits for an operator.

    An operator who confirms the certificate alone may have seen that one. Empty if there is none.
    """
    offered = agent.offered
    if agent.endpoint != offered["endpoint"] and agent.fingerprint == offered["fingerprint"]:
        return agent.endpoint
    others = Event.objects.filter(
        kind="agent.endpoint_announced", blueprint=agent.blueprint_id, at__gte=agent.joined_at,
        details__contains={"agent": agent.pk, "fingerprint": offered["fingerprint"]},
    ).exclude(details__contains={"endpoint": offered["endpoint"]})  # fmt: skip
    last = others.order_by("-id").values_list("details", flat=True).first()
    return str(last["endpoint"]) if last else ""


def trust(agent_id: int, endpoint: str, found: str) -> None:
    """Store the endpoint at which an agent may be called, with the only certificate that it may have there."""
    Agent.objects.filter(pk=agent_id).update(endpoint=endpoint, fingerprint=found, offered={}, call_problem="")


def new_secret(agent: Agent, hello: Hello) -> str:
    """Create the secret with which the server authenticates at an agent's endpoint; empty if the agent has none.

    The one before stays known, in case that the agent does not receive this one.
    """
    if not hello.endpoint:
        return ""
    made = secrets.token_urlsafe(32)
    before = (agent.secrets or {}).get("current", "")
    # Not if it was replaced a moment ago: the one before would know the secret of the new one.
    Agent.objects.filter(pk=agent.pk, joined_at=agent.joined_at).update(secrets={"current": made, "before": before})
    return made


def fingerprint(certificate: str) -> str:
    """Return the SHA-256 of a certificate in PEM, in hexadecimal digits."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(certificate.strip())).hexdigest()


def call(agent_id: int) -> None:
    """Have an agent that listens fetch its orders now. If it cannot be called, it fetches them later."""
    agent = Agent.objects.filter(pk=agent_id, revoked_at=None, offered={}).exclude(endpoint="").first()
    if agent is None:
        return
    problem = ""
    try:
        start_discovery(agent)
    except NotCalled as error:
        problem = str(error)
        log.info("agent %s at %s was not called: %s", agent.pk, agent.endpoint, error)
    # Not if it has joined again meanwhile, or another endpoint is trusted now.
    same = Agent.objects.filter(pk=agent_id, endpoint=agent.endpoint, fingerprint=agent.fingerprint)
    same.exclude(call_problem=problem).update(call_problem=problem[:1000])


def start_discovery(agent: Agent, *, seconds: float = SECONDS) -> None:
    """Send `POST /discovery` to an agent. Raises NotCalled."""
    deadline, status = Deadline(seconds), 0
    known = agent.secrets or {}
    for secret in filter(None, (known.get("current"), known.get("before"))):
        status = _post(agent, secret, deadline)
        if status != http.client.UNAUTHORIZED:
            break
    if status != http.client.ACCEPTED:
        said = f"It answered with status {status}, and not 202." if status else "It has no secret yet."
        raise NotCalled(said)


def _post(agent: Agent, secret: str, deadline: Deadline) -> int:
    """Send the request with a secret, once the certificate is the pinned one. Return the status. Raises NotCalled."""
    host, _, port = agent.endpoint.rpartition(":")
    host = host.strip("[]")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # The certificate itself is compared, so neither its name nor who signed it matters.
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    try:
        plain = _connected(host, int(port), deadline)
        with context.wrap_socket(plain, do_handshake_on_connect=False) as secured:
            _shake_hands(secured, deadline)
            shown = hashlib.sha256(secured.getpeercert(binary_form=True) or b"").hexdigest()
            if not hmac.compare_digest(shown, agent.fingerprint):
                raise NotCalled(f"It has another certificate than the confirmed one: {shown}.")
            return _exchange(secured, agent.endpoint, secret, deadline)
    except (OSError, ValueError, http.client.HTTPException) as error:
        reason = "it did not answer in time" if isinstance(error, TimeoutError) else str(error) or repr(error)
        raise NotCalled(f"It cannot be called: {' '.join(reason.split())[:300]}.") from None


def _shake_hands(secured: ssl.SSLSocket, deadline: Deadline) -> None:
    """Agree on TLS, all of it before the deadline, however the agent spreads its bytes. Raises OSError."""
    secured.setblocking(False)
    while True:
        try:
            secured.do_handshake()
            return
        except ssl.SSLWantReadError:
            wanted = select.POLLIN
        except ssl.SSLWantWriteError:
            wanted = select.POLLOUT
        waiting = select.poll()
        waiting.register(secured, wanted)
        if not waiting.poll(deadline.remaining * 1000):
            raise TimeoutError


def _exchange(secured: ssl.SSLSocket, name: str, secret: str, deadline: Deadline) -> int:
    body = json.dumps(DISCOVERING).encode()
    head = (
        f"POST /discovery HTTP/1.1\r\nHost: {name}\r\nAuthorization: Bearer {secret}\r\nConnection: close\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    secured.settimeout(max(0.01, deadline.remaining))
    secured.sendall(head.encode() + body)
    received = b""
    # Only the status matters. What else the agent sends, such as the address of a redirect, is not read.
    while b"\r\n" not in received and len(received) < _MOST_BYTES:
        secured.settimeout(max(0.01, deadline.remaining))
        if deadline.expired:
            raise TimeoutError
        piece = secured.recv(1024)
        if not piece:
            break
        received += piece
    words = received.split(b"\r\n")[0].split()
    if len(words) < 2 or not words[0].startswith(b"HTTP/1.") or not words[1].isdigit() or len(words[1]) != 3:
        raise http.client.BadStatusLine("the answer is not HTTP")
    return int(words[1])


def _connected(host: str, port: int, deadline: Deadline) -> socket.socket:
    """Return a connection to the first suitable address of a host. Raises OSError."""
    problem: OSError | None = None
    for address in _addresses(host, port):
        try:
            return socket.create_connection((address, port), timeout=max(0.1, deadline.remaining))
        except OSError as error:
            problem = error
    raise problem or OSError("its name has no address that may be called")


def _addresses(host: str, port: int) -> Iterator[str]:
    """Yield the addresses of a host. A name that leads back to this machine, or nowhere, has none."""
    named = not _is_literal(host) and host != "localhost"
    for *_, found in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        address = ipaddress.ip_address(str(found[0]).partition("%")[0])
        # The kernel connects to the IPv4 address that is mapped into an IPv6 one.
        address = getattr(address, "ipv4_mapped", None) or address
        inside = address.is_loopback and named
        if not (inside or address.is_link_local or address.is_multicast or address.is_unspecified):
            yield str(address)


def _is_literal(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _is_of_host(agent: Agent, endpoint: str) -> bool:
    """Return whether the host of an endpoint is the one under which the server reaches the agent's host itself."""
    host = endpoint.rpartition(":")[0].strip("[]")
    kind = registry.kind(agent.blueprint.kind)
    if not isinstance(kind, Reports) or not kind.places_are_resources or not agent.place.isdecimal():
        return False
    row = Resource.objects.filter(pk=int(agent.place[:18]), gone_at=None).select_related("blueprint").first()
    if row is None:
        return False
    try:
        transport = specs.host_view(row).connect()
    except DrydockError:
        return False
    if isinstance(transport, LocalTransport):
        return host == "localhost" or (_is_literal(host) and ipaddress.ip_address(host).is_loopback)
    # Behind a bastion, an address is one of another network.
    return (
        isinstance(transport, SshTransport) and transport.endpoint.bastion is None and transport.endpoint.host == host
    )
