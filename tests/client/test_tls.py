"""A token goes only to a server that proves who it is, or to this machine."""

from __future__ import annotations

import datetime as dt
import ipaddress
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from drydock_client.errors import InvalidRequest, NotAllowed
from drydock_client.http import HttpClient, addresses
from drydock_client.http.failures import BadAnswer, ServerUnreachable

ME = {"name": "ada", "operator": False, "scope": "lease", "expires_at": "2030-01-01T00:00:00+00:00"}


def certificate(folder, name, address):
    """A self-signed certificate for an address, and its key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject, now = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)]), dt.datetime.now(dt.UTC)
    names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
    made = (
        x509.CertificateBuilder().subject_name(subject).issuer_name(subject).public_key(key.public_key())
        .serial_number(x509.random_serial_number()).not_valid_before(now - dt.timedelta(days=1))
        .not_valid_after(now + dt.timedelta(days=1)).add_extension(names, critical=False)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True).sign(key, hashes.SHA256())
    )  # fmt: skip
    file = folder / f"{name}.pem"
    plain = serialization.NoEncryption()
    secret = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, plain)
    file.write_bytes(made.public_bytes(serialization.Encoding.PEM) + secret)
    return file


class Answering(BaseHTTPRequestHandler):
    """Says who asks, and keeps what it was shown."""

    def do_GET(self):
        """`/api/v1/me`, or away from here."""
        self.server.shown.append(self.headers["Authorization"])
        leads = self.server.leads
        self.send_response(302 if leads else 200)
        content = b"" if leads else json.dumps(ME).encode()
        self.send_header("Content-Length", str(len(content)))
        if leads:
            self.send_header("Location", leads)
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_):
        """Nothing is written."""


@pytest.fixture
def serve():
    """`serve(certificate, leads)`: a server on this machine; with a certificate over TLS."""
    begun = []

    def make(file=None, leads=""):
        server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
        server.shown, server.leads = [], leads
        if file is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(file)
            server.socket = context.wrap_socket(server.socket, server_side=True, do_handshake_on_connect=False)
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        begun.append((server, thread))
        server.url = f"{'https' if file else 'http'}://127.0.0.1:{server.server_address[1]}"
        return server

    yield make
    for server, thread in begun:
        server.shutdown()
        thread.join()
        server.server_close()


def test_only_a_server_that_proves_who_it_is_gets_the_token(serve, tmp_path, monkeypatch):
    file = certificate(tmp_path, "drydock", "127.0.0.1")
    server = serve(file)
    with pytest.raises(ServerUnreachable, match="prove its identity") as raised:
        HttpClient(server.url, "ddk_x")
    assert "--ca" in raised.value.hint
    assert server.shown == []
    client = HttpClient(server.url, "ddk_x", ca=str(file))
    assert (client.name, server.shown) == ("ada", ["Bearer ddk_x"])
    client.close()
    monkeypatch.setenv("DRYDOCK_CA", str(file))
    client = HttpClient(server.url, "ddk_x")
    assert len(server.shown) == 2
    client.close()

    other = serve(certificate(tmp_path, "other", "127.0.0.9"))
    with pytest.raises(ServerUnreachable, match="prove its identity"):
        HttpClient(other.url, "ddk_x", ca=str(tmp_path / "other.pem"))
    assert other.shown == []


def test_a_file_without_certificates_is_told(tmp_path):
    (tmp_path / "none").write_text("nothing")
    for file in (tmp_path / "none", tmp_path / "missing", tmp_path):
        with pytest.raises(InvalidRequest) as raised:
            HttpClient("https://127.0.0.1:1", "ddk_x", ca=str(file))
        assert raised.value.field == "ca"


@pytest.mark.parametrize("url", ["http://192.0.2.1", "http://drydock.example.org:8000", "http://[2001:db8::1]"])
def test_in_the_clear_it_is_sent_to_this_machine_alone(url, monkeypatch):
    monkeypatch.delenv(addresses.INSECURE, raising=False)
    with pytest.raises(NotAllowed, match="plain HTTP") as raised:
        HttpClient(url, "ddk_x")
    assert "--insecure" in raised.value.hint
    monkeypatch.setenv(addresses.INSECURE, "yes")
    with pytest.raises(NotAllowed):
        addresses.checked(url)
    monkeypatch.setenv(addresses.INSECURE, "1")
    assert addresses.checked(f"{url}/") == url


def test_it_does_not_follow_elsewhere(serve):
    elsewhere = serve()
    server = serve(leads=f"{elsewhere.url}/api/v1/me")
    with pytest.raises(BadAnswer, match="redirects to"):
        HttpClient(server.url, "ddk_x")
    assert (server.shown, elsewhere.shown) == (["Bearer ddk_x"], [])


@pytest.mark.parametrize("secret", ["", "ddk_x\r\nX: y", "ddk x", "ddk_ü"])
def test_what_is_no_token_is_not_sent(secret):
    with pytest.raises(NotAllowed):
        HttpClient("https://127.0.0.1:1", secret)
