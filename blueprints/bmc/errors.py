"""Errors of BMCs. The docstring of a class is its default message."""

from __future__ import annotations

from blueprints.bmc.values import Certificate
from drydock.core.errors import DrydockError


class BmcError(DrydockError):
    """The BMC could not carry out the request."""

    code = "bmc"

    @property
    def plain(self) -> str:
        """The error without addresses and accounts, for people who only lease the machine."""
        return (type(self).__doc__ or "").strip().partition("\n")[0]


class BmcUnreachable(BmcError):
    """The BMC did not answer in time."""

    code = "bmc_unreachable"


class BmcBusy(BmcError):
    """The BMC is busy, and asks to try again later."""

    code = "bmc_busy"

    def __init__(self, message: str = "", *, retry_after: float | None = None) -> None:
        self.retry_after = retry_after
        """Seconds after which the BMC wants to be asked again, if it said so."""
        super().__init__(message or "The BMC is busy.")


class BmcAnswerLost(BmcError):
    """The answer of the BMC was lost, so that it may have begun what it was asked for."""

    code = "bmc_answer_lost"


class BmcLoginsSpent(BmcBusy):
    """The BMC refused so many logins that it would lock the account after a few more."""

    code = "bmc_logins_spent"

    def __init__(self, where: str, wait: float) -> None:
        super().__init__(
            f"{where} refused logins a short time ago, or another worker logs in now. No login is tried for"
            f" {wait:.0f} s, because the BMC would lock the account.",
            retry_after=wait,
        )


class BmcLoginRefused(BmcError):
    """The BMC refused the credential."""

    code = "bmc_login_refused"


class BmcCertificateUnknown(BmcError):
    """The BMC presented a certificate that is neither pinned nor signed by a trusted authority."""

    code = "bmc_certificate_unknown"

    def __init__(self, certificate: Certificate, message: str = "") -> None:
        self.certificate = certificate
        super().__init__(message or f"The BMC presented an unknown certificate with SHA-256 {certificate.fingerprint}.")


class BmcCertificateChanged(BmcError):
    """The BMC presented another certificate than the pinned one. Nothing was sent to it."""

    code = "bmc_certificate_changed"

    def __init__(self, certificate: Certificate, pinned: str) -> None:
        self.certificate = certificate
        super().__init__(
            f"The BMC presented a certificate with SHA-256 {certificate.fingerprint}, but {pinned} is pinned.",
            hint="Nothing was sent to it. If the certificate was renewed, correct the registration.",
        )


class BmcAnswerInvalid(BmcError):
    """The BMC sent an answer that cannot be understood."""

    code = "bmc_answer_invalid"


class BmcRefused(BmcError):
    """The BMC refused the request, with its reason."""

    code = "bmc_refused"


class BmcLacks(BmcError):
    """The BMC does not offer this function."""

    code = "bmc_lacks"


class BmcDriverNotInstalled(BmcError):
    """The packages of the driver are not installed."""

    code = "bmc_driver_not_installed"

    def __init__(self, driver: str, *packages: str) -> None:
        wanted = " ".join(f"'{package}'" for package in packages)
        super().__init__(
            f"The BMC driver {driver} needs packages that are not installed.",
            hint=f"Install them for web and workers: pip install {wanted}",
        )


TRANSIENT = (BmcUnreachable, BmcBusy, BmcAnswerInvalid, BmcRefused)
"""Errors that may be gone at the next attempt. All others need a person."""
