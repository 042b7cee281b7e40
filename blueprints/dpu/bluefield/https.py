"""The trust of a BMC in the web root from which it fetches the image by HTTPS, for the time of the installation.

Written after what NVIDIA's firmware does (https://github.com/NVIDIA/phosphor-bmc-code-mgmt, `http-download`;
https://github.com/NVIDIA/bmcweb, `redfish-core/lib/certificate_service.hpp`;
https://github.com/NVIDIA/phosphor-certificate-manager, `certs_manager.cpp`):

- It runs `curl --capath /etc/ssl/certs/authority`, so it trusts nothing but the certificates in its trust store.
- The trust store has room for ten certificates unless it was built otherwise, takes none twice, and is kept over
  restarts. The web server of the BMC is restarted after each change.
- The web server of the BMC also accepts logins with client certificates that the trust store verifies. A web root's own
  certificate can sign no other one and is no client's (`interfaces.httpd.certificate`), so it opens nothing there.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blueprints.answers import Answer, Json, Ready, Wait
from blueprints.bluefield.access import bmc_told
from blueprints.bmc.errors import BmcAnswerInvalid, BmcUnreachable
from blueprints.dpu.bluefield.preparing import session
from blueprints.dpu.bluefield.publishing import webroot_of
from blueprints.hostshell import NeedsOperator
from blueprints.specs import Spec
from interfaces.httpd.certificate import fingerprint

if TYPE_CHECKING:
    from blueprints.bluefield.session import CardSession

TRUSTED = "trusted"
"""Fact: the SHA-256 of the certificate that the BMC is to trust for the installation. Stored before the BMC is told."""
_CERTIFICATE = "certificate"
_ATTEMPTS, _LOOK = 30, 5.0


def to_trust(spec: Spec) -> Json:
    """Return the fact about the certificate of the leased web root; none if its lease has no certificate.

    A BMC must then trust the web root already, such as one of another kind. Raises NeedsOperator.
    """
    lease = webroot_of(spec)
    if not (certificate := lease.facts.get(_CERTIFICATE)):
        return {}
    try:
        return {TRUSTED: fingerprint(str(certificate))}
    except ValueError:
        message = f"The certificate of web root {lease.resource.name} is no certificate in the form PEM."
        raise NeedsOperator(message, hint="Correct the kind of the web root.") from None


def is_trusted(spec: Spec) -> bool:
    """Return whether the BMC may have been told to trust the certificate of a web root."""
    return TRUSTED in spec.resource.facts


@bmc_told
def trust_webroot(spec: Spec, memo: Json) -> Answer:
    """Let the BMC trust the certificate of the web root. A repeated call has the same effect."""
    if not is_trusted(spec):
        return Ready()
    certificate = str(webroot_of(spec).facts[_CERTIFICATE])
    try:
        with session(spec) as bmc:
            bmc.trust(certificate)
    except (BmcUnreachable, BmcAnswerInvalid):
        attempts = int(memo.get("attempts", 0)) + 1
        if attempts > _ATTEMPTS:
            raise
        return Wait(after=_LOOK, memo={"attempts": attempts}, sentence="The BMC restarts its web server.")
    return Ready(log=f"The BMC trusts the certificate of the web root, with SHA-256 {spec.resource.facts[TRUSTED]}.")


def forget_webroot(bmc: CardSession, spec: Spec) -> None:
    """Let the BMC trust the certificate of the web root no more. It may restart its web server, so this comes last."""
    if is_trusted(spec):
        bmc.distrust(spec.resource.facts[TRUSTED])
