"""The driver `redfish`: BMCs with a Redfish service, as all servers since about 2018 have."""

from __future__ import annotations

import contextlib
import ipaddress
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Self

from pydantic import Field, SecretStr, field_validator, model_validator

from blueprints.bmc import tls
from blueprints.bmc.contract import Bmc, BmcDriver, LoginGuard, PollsPower
from blueprints.bmc.errors import BmcDriverNotInstalled
from blueprints.bmc.values import Certificate, PowerState
from blueprints.contract import Fields

if TYPE_CHECKING:
    from blueprints.bmc.redfish_client import Client
    from blueprints.bmc.redfish_http import Line

_NAME = re.compile(r"\A[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?\.?\Z")


class Access(Fields):
    """How a Redfish BMC is reached, and which certificate it must present."""

    address: str = Field(min_length=1, max_length=253, description="Name or IP address of the BMC, without https://.")
    port: int = Field(default=443, ge=1, le=65535, description="Port of its Redfish service.")
    system: str = Field(
        default="",
        max_length=500,
        description="Id of the system at the BMC, such as System.Embedded.1. Empty: the only one.",
    )
    fingerprint: str = Field(
        default="",
        max_length=200,
        description="SHA-256 fingerprint of the BMC's certificate, which is then the only one that is trusted.",
    )
    ca: str = Field(
        default="",
        max_length=100_000,
        description="Certificates of the authorities that sign BMCs' certificates, as PEM text. Empty: the system's.",
    )
    tls: Literal["on", "off"] = Field(
        default="on", description="`off` for an emulator on this machine only: its credential is sent in the clear."
    )

    @field_validator("address")
    @classmethod
    def _is_address(cls, value: str) -> str:
        plain = value.removeprefix("[").removesuffix("]")
        try:
            return str(ipaddress.ip_address(plain))
        except ValueError:
            if not _NAME.match(value):
                raise ValueError("Must be a name or an IP address, without https:// and without a path.") from None
            return value.lower()

    @field_validator("fingerprint")
    @classmethod
    def _is_fingerprint(cls, value: str) -> str:
        return tls.normalize(value)

    @field_validator("ca")
    @classmethod
    def _is_ca(cls, value: str) -> str:
        tls.Trust(ca=value).context()
        return value

    @model_validator(mode="after")
    def _is_safe(self) -> Self:
        if self.tls == "off" and not _is_loopback(self.address):
            raise ValueError("TLS may be off only for a BMC on this machine, at 127.0.0.1 or localhost.")
        return self


class Credential(Fields):
    """An account of a BMC."""

    username: str = Field(min_length=1, max_length=255, description="Name of the account.")
    password: SecretStr = Field(min_length=1, max_length=1024, description="Its password.")


RedfishAccess = Access
"""The same, as a name that the driver's own attribute `Access` does not hide."""


class Redfish(BmcDriver, PollsPower):
    """Opens sessions with Redfish services.

    A session is one of Redfish, which is ended when it is closed; BMCs without sessions get basic authentication.
    Redirects and links to other servers are never followed.
    """

    name: ClassVar[str] = "redfish"
    Access = Access
    Credential = Credential

    def open(self, access: Any, credential: Mapping[str, str], *, deadline: float) -> Bmc:
        """Open a session. A wrong password is tried once, as BMCs lock accounts."""
        client = self.client(access, credential, deadline=deadline)
        from blueprints.bmc.redfish_session import RedfishSession

        return RedfishSession(client, access.system)

    def client(
        self, access: RedfishAccess, credential: Mapping[str, str], *, deadline: float, logins: LoginGuard | None = None
    ) -> Client:
        """Log in, and return the client of the session. With `logins`, never by basic authentication.

        Basic authentication is a login with each request, which a BMC that locks accounts counts.
        """
        given = Credential.model_validate(dict(credential))
        with _installed():
            from blueprints.bmc.redfish_client import Client

        return Client(self._line(access, deadline), given.username, given.password.get_secret_value(), logins)

    def poll_power(
        self, access: RedfishAccess, credential: Mapping[str, str], known: str, *, deadline: float
    ) -> PowerState:
        """Read the system at the path `known` with basic authentication: one request instead of five."""
        given = Credential.model_validate(dict(credential))
        with _installed():
            from blueprints.bmc.redfish_client import read_once
        from blueprints.bmc.redfish_session import power_of

        line = self._line(access, deadline)
        return power_of(read_once(line, known, given.username, given.password.get_secret_value()))

    def probe(self, access: RedfishAccess, *, deadline: float) -> Mapping[str, Any]:
        """Read the service root, which needs no login: whether the certificate is trusted. Raises BmcError."""
        with _installed():
            from blueprints.bmc.redfish_client import service_root

        return service_root(self._line(access, deadline))

    def _line(self, access: RedfishAccess, deadline: float) -> Line:
        from blueprints.bmc.redfish_http import Line

        return Line(access.address, access.port, _trust(access), deadline=deadline)

    def identity(self, access: Any) -> str:
        """Return address and port, and the system if the BMC may have several."""
        where = f"[{access.address}]" if ":" in access.address else access.address
        return f"{where}:{access.port}" + (f"/{access.system.strip('/')}" if access.system else "")

    def certificate(self, access: Any, *, deadline: float) -> Certificate | None:
        """Read the certificate that the BMC presents."""
        return tls.presented(access.address, access.port, deadline=deadline) if access.tls == "on" else None


@contextlib.contextmanager
def _installed() -> Iterator[None]:
    """Raise BmcDriverNotInstalled for an import that fails."""
    try:
        yield
    except ModuleNotFoundError as error:
        raise BmcDriverNotInstalled("redfish", "sushy>=5.14") from error


def _trust(access: Access) -> tls.Trust | None:
    return tls.Trust(fingerprint=access.fingerprint, ca=access.ca) if access.tls == "on" else None


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"
