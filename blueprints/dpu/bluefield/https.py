"""The trust of a BMC in the web root from which it fetches the image by HTTPS, for the time of the installation.

Written after what NVIDIA's firmware does (https://github.com/NVIDIA/phosphor-bmc-code-mgmt, `http-download`;
https://github.com/NVIDIA/bmcweb, `redfish-core/lib/certificate_service.hpp`, `http/http_connection.hpp`;
https://github.com/NVIDIA/phosphor-certificate-manager, `certs_manager.cpp`):

- It runs `curl --capath /etc/ssl/certs/authority`, so it trusts only the certificates in its trust store.
- The trust store has room for ten certificates unless it was built otherwise, refuses one that it has already, and is
  kept over restarts. The web server of the BMC is reloaded after each change; its sessions and tasks stay.
- The web server asks clients for a certificate while the trust store is not empty, and accepts logins with client
  certificates that the trust store verifies. The certificate of a web root cannot sign others and is valid for servers
  only (`interfaces.httpd.certificate`), so nobody can log in with it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.bluefield.access import bmc_told
from blueprints.bmc.errors import BmcAnswerInvalid, BmcLacks, BmcUnreachable
from blueprints.dpu.bluefield.preparing import session
from blueprints.dpu.bluefield.publishing import webroot_of
from blueprints.hostshell import NeedsOperator
from blueprints.specs import Spec
from interfaces.httpd import fingerprint

if TYPE_CHECKING:
    from blueprints.bluefield.session import CardSession

TRUSTED = "trusted"
"""Fact: the SHA-256 of the certificate that the BMC is to trust, stored before the BMC is told. Empty: none."""
_ATTEMPTS, _LOOK = 30, 5.0


def to_trust(spec: Spec) -> Json:
    """Return the fact about the certificate of the leased web root; none if its lease has no certificate.

    A BMC must then trust the web root already, such as one of another kind. Raises NeedsOperator.
    """
    certificate = _certificate(spec)
    return {TRUSTED: _sha256(spec, certificate)} if certificate else {}


def is_trusted(spec: Spec) -> bool:
    """Return whether the BMC may have been told to trust the certificate of a web root."""
    return bool(spec.resource.facts.get(TRUSTED))


@bmc_told
def trust_webroot(spec: Spec, memo: Json) -> Answer:
    """Add the certificate of the web root to the trust store of the BMC. A repeated call adds none twice."""
    if not is_trusted(spec):
        return Ready()
    wanted, certificate = spec.resource.facts[TRUSTED], _certificate(spec)
    if not certificate or _sha256(spec, certificate) != wanted:
        message = "The web root has another certificate than when it was chosen."
        return Failed(scope=Scope.OFFER, code="webroot_changed", message=message)
    try:
        with session(spec) as bmc:
            bmc.trust(certificate)
    except BmcLacks as error:
        message = f"{error.message} Let `webroot` require tls: false, or set `scp` or `rshim`."
        return Failed(scope=Scope.OFFER, code="no_truststore", message=message)
    except (BmcUnreachable, BmcAnswerInvalid) as error:
        attempts = int(memo.get("attempts", 0)) + 1
        if attempts > _ATTEMPTS:
            raise
        return Wait(after=_LOOK, memo={"attempts": attempts}, sentence=str(error)[:500])
    return Ready(log=f"The BMC trusts the certificate of the web root, with SHA-256 {wanted}.")


def forget_webroot(bmc: CardSession, spec: Spec) -> Json:
    """Remove the certificate of the web root from the trust store of the BMC. Return the fact that it is gone."""
    if not is_trusted(spec):
        return {}
    bmc.distrust(spec.resource.facts[TRUSTED])
    return {TRUSTED: ""}


def _certificate(spec: Spec) -> str:
    return str(webroot_of(spec).facts.get("certificate") or "")


def _sha256(spec: Spec, certificate: str) -> str:
    try:
        return fingerprint(certificate)
    except ValueError:
        message = f"The certificate of web root {webroot_of(spec).resource.name} is not a valid PEM certificate."
        raise NeedsOperator(message, hint="Correct the kind of the web root.") from None
