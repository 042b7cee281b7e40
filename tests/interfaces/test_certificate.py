"""Certificates of sites: who trusts one trusts one server and nothing else; the files belong together."""

from __future__ import annotations

import datetime as dt
import hashlib
import ipaddress
import ssl
from collections.abc import Callable
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from interfaces.errors import ConnectionLost
from interfaces.filesystem.fake import FakeFilesystem
from interfaces.httpd import certificate as certificates
from interfaces.httpd.certificate import fingerprint, keep_certificate, new_certificate

HOSTS = ("pages.test", "127.9.0.1")


def test_a_certificate_is_for_its_hosts_and_for_a_server_only() -> None:
    pem, key = new_certificate(["pages.test", "127.9.0.1", "::1"])
    made = x509.load_pem_x509_certificate(pem.encode())
    private = serialization.load_pem_private_key(key.encode(), password=None)
    assert isinstance(private, ec.EllipticCurvePrivateKey)
    assert isinstance(private.curve, ec.SECP256R1)
    assert made.public_key() == private.public_key()
    assert made.subject.rfc4514_string() == made.issuer.rfc4514_string() == "CN=pages.test"
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == ["pages.test"]
    addresses = [ipaddress.ip_address("127.9.0.1"), ipaddress.ip_address("::1")]
    assert names.get_values_for_type(x509.IPAddress) == addresses
    basic = made.extensions.get_extension_for_class(x509.BasicConstraints)
    assert (basic.critical, basic.value.ca) == (True, False)
    usage = made.extensions.get_extension_for_class(x509.KeyUsage)
    assert (usage.critical, usage.value.digital_signature, usage.value.key_cert_sign) == (True, True, False)
    assert list(made.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value) == [
        ExtendedKeyUsageOID.SERVER_AUTH
    ]
    assert made.not_valid_after_utc - made.not_valid_before_utc == dt.timedelta(days=398)
    age = dt.datetime.now(dt.UTC) - made.not_valid_before_utc
    assert dt.timedelta(days=1) <= age < dt.timedelta(days=1, minutes=5)


def test_a_fingerprint_is_that_of_the_certificate_on_the_wire() -> None:
    pem, _ = new_certificate(HOSTS)
    assert fingerprint(pem) == hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()
    assert fingerprint(pem) != fingerprint(new_certificate(HOSTS)[0])
    with pytest.raises(ValueError, match="PEM"):
        fingerprint("no certificate")


def test_a_host_name_may_be_longer_than_a_subject() -> None:
    name = ".".join(["long" * 10] * 3)
    made = x509.load_pem_x509_certificate(new_certificate([name])[0].encode())
    names = made.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [name]


def test_who_trusts_it_trusts_neither_a_client_nor_a_further_certificate(tmp_path: Path) -> None:
    pem, key = new_certificate(HOSTS)
    server, trusted = _files(tmp_path, "server", pem, key), tmp_path / "server.pem"
    assert _handshake(server, server, client_authority=None, server_authority=trusted) == ""
    said = _handshake(server, server, client_authority=trusted, server_authority=trusted)
    assert "purpose" in said
    signed = _files(tmp_path, "signed", *_signed_with(pem, key))
    assert _handshake(signed, server, client_authority=None, server_authority=trusted) != ""


def test_the_files_are_used_again_for_the_same_hosts_only() -> None:
    files = FakeFilesystem()
    first = keep_certificate(files, "a/tls", HOSTS)
    assert files.stat("a/tls/key.pem").permissions == 0o600
    assert _pair(files) == first
    key = files.read_text("a/tls/key.pem")
    assert keep_certificate(files, "a/tls", HOSTS) == first
    assert files.read_text("a/tls/key.pem") == key
    for hosts in (("other.test", "127.9.0.1"), HOSTS[:1], HOSTS):
        other = keep_certificate(files, "a/tls", hosts)
        assert other == _pair(files) != first
        assert files.read_text("a/tls/key.pem") != key


def _overwrite(name: str, content: bytes) -> Callable[[FakeFilesystem], None]:
    return lambda files: files.write_bytes(f"a/tls/{name}", content)


@pytest.mark.parametrize(
    "damage",
    [
        lambda files: files.remove("a/tls/key.pem"),
        lambda files: files.remove("a/tls/certificate.pem"),
        _overwrite("key.pem", new_certificate(HOSTS)[1].encode()),
        _overwrite("certificate.pem", new_certificate(HOSTS)[0].encode()),
        _overwrite("certificate.pem", b"\xff"),
        _overwrite("key.pem", b""),
        _overwrite("key.pem", b"no key"),
    ],
    ids=["no key", "no certificate", "other key", "other certificate", "no text", "empty", "no PEM"],
)
def test_files_that_do_not_belong_together_are_both_replaced(damage: Callable[[FakeFilesystem], None]) -> None:
    files = FakeFilesystem()
    first = keep_certificate(files, "a/tls", HOSTS)
    damage(files)
    assert keep_certificate(files, "a/tls", HOSTS) == _pair(files) != first


def test_an_expired_certificate_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    files = FakeFilesystem()
    monkeypatch.setattr(certificates, "VALID", dt.timedelta(hours=23))
    first = keep_certificate(files, "a/tls", HOSTS)
    monkeypatch.undo()
    assert keep_certificate(files, "a/tls", HOSTS) == _pair(files) != first


def test_an_interruption_between_the_files_leaves_no_odd_pair(monkeypatch: pytest.MonkeyPatch) -> None:
    files = FakeFilesystem()
    first = keep_certificate(files, "a/tls", HOSTS)
    write = files.write_text

    def dying(path: str, content: str, **options: int) -> None:
        if path.endswith("certificate.pem"):
            raise ConnectionLost("The worker died.")
        write(path, content, **options)

    monkeypatch.setattr(files, "write_text", dying)
    with pytest.raises(ConnectionLost):
        keep_certificate(files, "a/tls", ("other.test",))
    monkeypatch.undo()
    assert keep_certificate(files, "a/tls", HOSTS) == _pair(files) != first


def _pair(files: FakeFilesystem) -> str:
    """The certificate that is there, whose key is there too."""
    pem = files.read_text("a/tls/certificate.pem")
    private = serialization.load_pem_private_key(files.read_bytes("a/tls/key.pem"), password=None)
    assert x509.load_pem_x509_certificate(pem.encode()).public_key() == private.public_key()
    return pem


def _signed_with(pem: str, key: str) -> tuple[str, str]:
    """A further certificate for the same hosts, which the key of the first has signed."""
    own = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(pem.encode())
    signer = serialization.load_pem_private_key(key.encode(), password=None)
    assert isinstance(signer, ec.EllipticCurvePrivateKey)
    names = issuer.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    made = (
        x509.CertificateBuilder().subject_name(x509.Name([])).issuer_name(issuer.subject).public_key(own.public_key())
        .serial_number(7).not_valid_before(issuer.not_valid_before_utc).not_valid_after(issuer.not_valid_after_utc)
        .add_extension(names, critical=True).sign(signer, hashes.SHA256())
    )  # fmt: skip
    pem_form, plain = serialization.Encoding.PEM, serialization.NoEncryption()
    private = own.private_bytes(pem_form, serialization.PrivateFormat.PKCS8, plain)
    return made.public_bytes(pem_form).decode() + pem, private.decode()


def _files(folder: Path, name: str, pem: str, key: str) -> tuple[Path, Path]:
    paths = folder / f"{name}.pem", folder / f"{name}.key"
    paths[0].write_text(pem)
    paths[1].write_text(key)
    return paths


def _handshake(
    server: tuple[Path, Path], client: tuple[Path, Path], *, client_authority: Path | None, server_authority: Path
) -> str:
    """Why a TLS handshake in memory fails; empty if it does not.

    The server demands a client certificate by `client_authority`, if there is one.
    """
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(*server)
    if client_authority:
        serving.load_verify_locations(client_authority)
        serving.verify_mode = ssl.CERT_REQUIRED
    asking = ssl.create_default_context(cafile=str(server_authority))
    asking.load_cert_chain(*client)
    up, down = ssl.MemoryBIO(), ssl.MemoryBIO()
    ends = [asking.wrap_bio(down, up, server_hostname="pages.test"), serving.wrap_bio(up, down, server_side=True)]
    for _ in range(4):
        for end in ends:
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
            except ssl.SSLCertVerificationError as error:
                return error.verify_message
    return ""
