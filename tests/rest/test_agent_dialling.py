"""The endpoints that agents announce are no way to make the server call other machines."""

from __future__ import annotations

import contextlib
import hashlib
import socket
import ssl
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from drydock.core.errors import Conflict
from leases import agents
from leases.agents import endpoints
from leases.messaging import handlers, hints
from leases.models import Agent, Event
from tests.client.test_tls import certificate
from tests.rest.test_agents import _fresh_buckets, joined, pool, who  # noqa: F401


@pytest.fixture
def pem(tmp_path):
    return certificate(tmp_path, "agent", "127.0.0.1")


def only_certificate(pem):
    return pem.read_text().partition("-----BEGIN PRIVATE")[0]


@pytest.mark.parametrize(
    "endpoint", ["127.0.0.1:6379", "169.254.169.254:443", "10.0.0.5:22", "metadata.internal:443", "[::1]:5432"]
)
def test_an_address_that_is_not_the_hosts_waits_for_an_operator_and_is_not_called(joined, who, pem, endpoint):  # noqa: F811
    agent = joined()
    said = agent.hello(endpoint=endpoint, certificate=only_certificate(pem))
    assert len(said["secret"]) > 30
    row = Agent.objects.get()
    assert (row.endpoint, row.fingerprint, row.offered["endpoint"]) == ("", "", endpoint)
    agents.order_agent(who, row.pk)
    assert "call_agent" not in {name for name, _ in hints._local.collected}
    handlers.HANDLERS["call_agent"](row.pk)
    assert Agent.objects.get().call_problem == "", "it was not even tried"
    agent.hello(endpoint=endpoint, certificate=only_certificate(pem))
    assert Event.objects.filter(kind="agent.endpoint_announced").count() == 1
    # A renewed secret keeps the one before, in case that the answer was lost.
    assert Agent.objects.get().secrets["before"] == said["secret"]


@pytest.mark.parametrize(
    "endpoint",
    [
        "169.254.169.254:443", "0.0.0.0:443", "224.0.0.1:443", "[fe80::1]:443", "[::ffff:169.254.169.254]:443",
        "[::ffff:0.0.0.0]:443",
    ],
)  # fmt: skip
def test_addresses_that_are_of_no_host_are_not_called_even_when_confirmed(joined, who, pem, endpoint):  # noqa: F811
    agent = joined()
    agent.hello(endpoint=endpoint, certificate=only_certificate(pem))
    row = Agent.objects.get()
    agents.confirm_agent(who, row.pk, row.offered["fingerprint"])
    endpoints.call(row.pk)
    assert "no address that may be called" in Agent.objects.get().call_problem


def test_a_name_that_leads_back_to_this_machine_is_not_called(joined, who, pem, monkeypatch):  # noqa: F811
    """As with DNS rebinding. Names are resolved once, and the connection goes to the address that was checked."""
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 443))]
    monkeypatch.setattr(endpoints.socket, "getaddrinfo", lambda *_, **__: found)
    assert list(endpoints._addresses("agent.example.org", 443)) == []
    found[:] = [(socket.AF_INET6, socket.SOCK_STREAM, 6, "", ("::ffff:127.0.0.1", 443, 0, 0))]
    assert list(endpoints._addresses("agent.example.org", 443)) == [], "it is the same address"
    found[:] = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.0.1", 443))]
    assert list(endpoints._addresses("127.0.0.1", 443)) == ["127.0.0.1"]


def test_changes_of_an_endpoint_wait_again_and_a_new_join_forgets_it(joined, who, pem, tmp_path):  # noqa: F811
    agent = joined()
    agent.hello(endpoint="10.0.0.5:1337", certificate=only_certificate(pem))
    row = Agent.objects.get()
    first = row.offered["fingerprint"]
    agents.confirm_agent(who, row.pk, first)
    for endpoint, file in (("10.0.0.6:1337", pem), ("10.0.0.5:1337", certificate(tmp_path, "other", "127.0.0.1"))):
        agent.hello(endpoint=endpoint, certificate=only_certificate(file))
        row = Agent.objects.get()
        assert (row.endpoint, row.fingerprint, bool(row.offered)) == ("10.0.0.5:1337", first, True)
        agent.hello(endpoint="10.0.0.5:1337", certificate=only_certificate(pem))
        assert Agent.objects.get().offered == {}
    assert "secret" not in agent.hello()
    assert Agent.objects.get().endpoint == "10.0.0.5:1337", "a version that is tried does not listen"
    agent.hello(f"Join {agents.create_join_code(who, 'cards', host='node-1').code}")
    row = Agent.objects.get()
    assert (row.endpoint, row.fingerprint, row.secrets) == ("", "", {})


def test_an_endpoint_that_was_swapped_under_the_same_certificate_is_not_confirmed(joined, who, pem):  # noqa: F811
    agent = joined()
    agent.hello(endpoint="10.0.0.5:1337", certificate=only_certificate(pem))
    row = Agent.objects.get()
    shown = agents.agent(who, row.pk)
    assert f"--endpoint {shown.offered_endpoint}" in shown.message
    agent.hello()
    agent.hello(endpoint="10.0.0.9:22", certificate=only_certificate(pem))
    with pytest.raises(Conflict, match=r"announces the endpoint 10.0.0.9:22, not 10.0.0.5:1337"):
        agents.confirm_agent(who, row.pk, shown.offered_fingerprint, endpoint=shown.offered_endpoint)
    with pytest.raises(Conflict, match=r"announced 10.0.0.5:1337 with this certificate before, and now 10.0.0.9:22"):
        agents.confirm_agent(who, row.pk, shown.offered_fingerprint)
    assert Agent.objects.get().endpoint == ""

    agent.hello(endpoint="10.0.0.5:1337", certificate=only_certificate(pem))
    info = agents.confirm_agent(who, row.pk, shown.offered_fingerprint, endpoint=shown.offered_endpoint)
    assert (info.endpoint, info.offered_endpoint) == ("10.0.0.5:1337", "")
    assert agents.confirm_agent(who, row.pk, shown.offered_fingerprint, endpoint=shown.offered_endpoint) == info
    with pytest.raises(Conflict):
        agents.confirm_agent(who, row.pk, shown.offered_fingerprint, endpoint="10.0.0.9:22")
    agent.hello(endpoint="10.0.0.9:22", certificate=only_certificate(pem))
    with pytest.raises(Conflict, match="before, and now"):
        agents.confirm_agent(who, row.pk, shown.offered_fingerprint)
    agents.confirm_agent(who, row.pk, shown.offered_fingerprint, endpoint="10.0.0.9:22")
    assert Agent.objects.get().endpoint == "10.0.0.9:22"


class _Redirects(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        self.server.seen.append(self.headers["Authorization"])
        if self.server.slow:
            time.sleep(3)
        self.send_response(307)
        self.send_header("Location", f"http://127.0.0.1:{self.server.elsewhere}/")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint(pem):
    """Return an HTTPS server that redirects, and the socket of the machine to which it would lead."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(pem)
    with ThreadingHTTPServer(("127.0.0.1", 0), _Redirects) as secure, socket.create_server(("127.0.0.1", 0)) as other:
        secure.seen, secure.elsewhere, secure.slow = [], other.getsockname()[1], False
        secure.socket = context.wrap_socket(secure.socket, server_side=True)
        threading.Thread(target=secure.serve_forever, daemon=True).start()
        yield secure, other
        secure.shutdown()


def test_redirects_are_not_followed_and_a_slow_agent_is_given_up(joined, pem, endpoint):  # noqa: F811
    secure, other = endpoint
    joined()
    row = Agent.objects.select_related("blueprint").get()
    row.endpoint = f"127.0.0.1:{secure.server_port}"
    row.fingerprint = hashlib.sha256(ssl.PEM_cert_to_DER_cert(only_certificate(pem))).hexdigest()
    row.secrets = {"current": "the-secret", "before": ""}
    with pytest.raises(endpoints.NotCalled, match="status 307"):
        endpoints.start_discovery(row)
    assert secure.seen == ["Bearer the-secret"]
    other.settimeout(0.2)
    with pytest.raises(TimeoutError):
        other.accept()
    secure.slow = True
    with pytest.raises(endpoints.NotCalled, match="did not answer in time"):
        endpoints.start_discovery(row, seconds=1.0)

    row.fingerprint = "0" * 64
    secure.seen.clear()
    with pytest.raises(endpoints.NotCalled, match="another certificate"):
        endpoints.start_discovery(row)
    assert secure.seen == [], "the secret was not sent"


def test_an_answer_that_is_not_http_is_refused(joined, pem):  # noqa: F811
    joined()
    row = Agent.objects.get()
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def serve():
            opened, _ = plain.accept()
            opened.sendall(b"SSH-2.0-OpenSSH_9.2\r\n")
            opened.close()

        thread = threading.Thread(target=serve)
        thread.start()
        row.endpoint, row.secrets = f"127.0.0.1:{plain.getsockname()[1]}", {"current": "s"}
        with pytest.raises(endpoints.NotCalled, match="cannot be called"):
            endpoints.start_discovery(row)
        thread.join()


def test_a_handshake_one_byte_at_a_time_is_given_up(joined, pem):  # noqa: F811
    joined()
    row = Agent.objects.get()
    over = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as plain:

        def serve():
            opened, _ = plain.accept()
            with opened, contextlib.suppress(OSError):
                opened.sendall(b"\x16\x03\x03\x40\x00")
                while not over.wait(0.1):
                    opened.sendall(b"\x02")

        thread = threading.Thread(target=serve)
        thread.start()
        row.endpoint, row.secrets = f"127.0.0.1:{plain.getsockname()[1]}", {"current": "s"}
        with pytest.raises(endpoints.NotCalled, match="did not answer in time"):
            endpoints.start_discovery(row, seconds=0.5)
        over.set()
        thread.join()
