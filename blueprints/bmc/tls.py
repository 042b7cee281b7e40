"""TLS to BMCs, most of which have a certificate that they made themselves: trust by authority or by fingerprint."""

from __future__ import annotations

import contextlib
import hashlib
import re
import socket
import ssl
from collections.abc import Iterator
from dataclasses import dataclass

from blueprints.answers import Answer, Failed, Hold, Json, Ready, Resolution, Scope
from blueprints.bmc.errors import BmcCertificateChanged, BmcCertificateUnknown, BmcError, BmcUnreachable
from blueprints.bmc.values import Certificate

_FINGERPRINT = re.compile(r"\A[0-9a-f]{64}\Z")


@dataclass(frozen=True, kw_only=True)
class Trust:
    """Which certificate of a BMC is trusted: the pinned one, or any that an authority has signed for its address."""

    fingerprint: str = ""
    """SHA-256 of the only certificate that is trusted, whoever signed it and for whom. If given, `ca` has no effect."""
    ca: str = ""
    """Certificates of authorities as PEM text; empty for those that the system trusts."""

    def context(self) -> ssl.SSLContext:
        """Return a context for connections. If a fingerprint is pinned, the caller compares it before it sends.

        Raises ValueError if `ca` has no certificate.
        """
        if self.fingerprint:
            return _unchecked()
        try:
            return ssl.create_default_context(cadata=self.ca or None)
        except ssl.SSLError as error:
            raise ValueError("It holds no certificate as PEM text.") from error

    def refusal(self, certificate: Certificate, reason: str = "") -> BmcError:
        """Return the error for a presented certificate that is not trusted. `reason` is what is wrong with it."""
        if self.fingerprint:
            return BmcCertificateChanged(certificate, self.fingerprint)
        because = f" ({reason})" if reason else ""
        return BmcCertificateUnknown(
            certificate,
            f"The BMC presented a certificate that is not trusted{because}: subject {certificate.subject or 'empty'},"
            f" issuer {certificate.issuer or 'empty'}, SHA-256 fingerprint {certificate.fingerprint}.",
        )


def normalize(fingerprint: str) -> str:
    """Return a SHA-256 fingerprint, with or without colons, as 64 lower-case digits. Raises ValueError."""
    plain = re.sub(r"[:\s]", "", fingerprint.strip().lower().removeprefix("sha256:").removeprefix("sha-256:"))
    if plain and not _FINGERPRINT.match(plain):
        raise ValueError("A SHA-256 fingerprint has 64 hexadecimal digits, with or without colons between them.")
    return plain


def presented(address: str, port: int, *, deadline: float) -> Certificate:
    """Return the certificate that a server presents. Nothing is sent to it but the TLS handshake.

    `deadline` is in seconds. Raises BmcUnreachable.
    """
    where = f"{address}:{port}"
    try:
        with (
            socket.create_connection((address, port), timeout=max(deadline, 0.01)) as plain,
            _unchecked().wrap_socket(plain, server_hostname=_name(address)) as secured,
        ):
            der = secured.getpeercert(binary_form=True) or b""
    except TimeoutError as error:
        raise BmcUnreachable(f"The BMC at {where} did not answer within {deadline:.3g} s.") from error
    except (OSError, UnicodeError) as error:
        raise BmcUnreachable(f"The BMC at {where} cannot be reached: {reason_of(error)}.") from error
    return certificate(der)


def certificate(der: bytes) -> Certificate:
    """Describe a certificate in DER form. What cannot be parsed is left out; the fingerprint always exists."""
    from cryptography import x509

    fingerprint = hashlib.sha256(der).hexdigest()
    with contextlib.suppress(ValueError, TypeError):
        parsed = x509.load_der_x509_certificate(der)
        return Certificate(
            fingerprint=fingerprint,
            subject=parsed.subject.rfc4514_string()[:200],
            issuer=parsed.issuer.rfc4514_string()[:200],
            ends_at=parsed.not_valid_after_utc,
        )
    return Certificate(fingerprint=fingerprint)


def confirmed(
    shown: Certificate, where: str, answer: Resolution | None, memo: Json, *, pinned: str, refused: str
) -> Answer:
    """Ask an operator to compare an unknown certificate with the one that the BMC shows, and pin it after a yes.

    `where` names the BMC, `pinned` is the fact for the pinned certificate and `refused` that for a refused one.
    """
    if answer is None or memo.get("sha256") != shown.fingerprint:
        return Hold(who="operator", what=_question(where, shown), memo={"sha256": shown.fingerprint})
    if not answer.yes:
        said = {"sha256": shown.fingerprint, "by": answer.actor, "why": answer.text}
        return Ready(facts={refused: said}, log=f"{answer.actor} refused the certificate.")
    pin = {"bmc": where, "sha256": shown.fingerprint}
    about = {"subject": shown.subject, "issuer": shown.issuer, "confirmed_by": answer.actor}
    log = f"{answer.actor} confirmed the certificate with SHA-256 {shown.fingerprint}."
    return Ready(facts={pinned: pin, "bmc_certificate": about}, log=log)


def refused_before(shown: Certificate, known: Json, field: str) -> Failed | None:
    """Return the failure of a step if an operator has refused the presented certificate; else None.

    `known` is the fact that `confirmed` returned. `field` is where the registration names a fingerprint.
    """
    if known.get("sha256") != shown.fingerprint:
        return None
    why = f" ({known['why']})" if known.get("why") else ""
    message = (
        f"{known['by'] or 'An operator'} refused the certificate of the BMC with SHA-256 {known['sha256']}{why}. "
        f"If it is the right one after all, set {field} of the registration."
    )
    return Failed(scope=Scope.OPERATOR, code=BmcCertificateUnknown.code, message=message)


def _question(where: str, shown: Certificate) -> str:
    ends = f", valid until {shown.ends_at:%Y-%m-%d}" if shown.ends_at else ""
    return (
        f"The BMC {where} presents a certificate that no trusted authority has signed: "
        f"SHA-256 {_in_pairs(shown.fingerprint)}, subject {shown.subject or 'unknown'}, "
        f"issuer {shown.issuer or 'unknown'}{ends}. Compare the fingerprint with the one that the BMC shows on its own "
        "console or web page. Is it the same?"
    )


def _in_pairs(digits: str) -> str:
    return ":".join(digits[at : at + 2].upper() for at in range(0, len(digits), 2))


def causes(error: BaseException) -> Iterator[BaseException]:
    """Return an error and all errors behind it, the nearest first. HTTP libraries wrap those of the system."""
    waiting, seen = [error], set[int]()
    while waiting:
        found = waiting.pop(0)
        if id(found) in seen:
            continue
        seen.add(id(found))
        yield found
        behind = (getattr(found, "reason", None), *found.args, found.__cause__, found.__context__)
        waiting += [one for one in behind if isinstance(one, BaseException)]


def unverified(error: BaseException) -> str:
    """Return what is wrong with the certificate of a server, empty if the handshake did not fail because of it."""
    found = (one.verify_message for one in causes(error) if isinstance(one, ssl.SSLCertVerificationError))
    return next(found, "").rstrip(".")


def reason_of(error: BaseException) -> str:
    """Return why a connection failed, in the words of the system, such as "Connection refused"."""
    for found in causes(error):
        if isinstance(found, ssl.SSLError):
            return _TLS_REASONS.get(found.reason or "", f"TLS failed ({found.reason or 'no reason given'})")
        if isinstance(found, socket.gaierror):
            return "its name is not known"
        if isinstance(found, OSError) and found.strerror:
            return found.strerror
    return "it ended the connection"


_TLS_REASONS = {
    "WRONG_VERSION_NUMBER": "it does not speak TLS",
    "HTTP_REQUEST": "it does not speak TLS",
    "UNSUPPORTED_PROTOCOL": "it offers only versions of TLS before 1.2",
    "UNEXPECTED_EOF_WHILE_READING": "it ended the connection",
}


def _unchecked() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _name(address: str) -> str | None:
    """Return the name to ask for in the handshake, which an IP address is not."""
    try:
        socket.inet_pton(socket.AF_INET6 if ":" in address else socket.AF_INET, address)
    except OSError:
        return address
    return None
