"""The ports of Acme's switches, which are controlled over HTTP."""

import urllib3
from pydantic import Field

from blueprints.bmc.texts import HostName, shown
from blueprints.contract import Fields
from blueprints.networks import errors
from blueprints.networks.contract import Access, NetworkDriver, NetworkName, Port

REFUSALS = {401: errors.NetworkLoginRefused, 404: errors.NetworkUnknown, 503: errors.NetworkBusy}


class Settings(Fields):
    """Which switches there are, and which VLAN is which network. The fields become those of a blueprint."""

    switches: dict[str, HostName] = Field(description="Address of each switch, by the name that registrations use.")
    port: int = Field(default=80, ge=1, le=65535)
    vlans: dict[NetworkName, int] = Field(description="VLAN ID of each network.")


class Credential(Fields):
    """The token for all switches. It is stored encrypted, and reaches only the calls."""

    token: str


class AcmeSwitch(NetworkDriver):
    """The driver. A port of such a switch is in one VLAN, or closed. It has no state of its own."""

    name = "acme_switch"
    Settings = Settings
    Credential = Credential

    def ids(self, settings: Settings) -> dict[str, str]:
        return {name: str(vlan) for name, vlan in settings.vlans.items()}

    def attach(self, access: Access, port: Port, network: str) -> None:
        self._call(access, port, "PUT", {"vlan": self._vlan(access, network)})

    def detach(self, access: Access, port: Port, network: str) -> None:
        if self._call(access, port, "GET").get("vlan") == self._vlan(access, network):
            self._call(access, port, "PUT", {"vlan": None})

    def check(self, access: Access, port: Port) -> frozenset[str]:
        vlan = self._call(access, port, "GET").get("vlan", "missing")
        if vlan is not None and type(vlan) is not int:
            raise errors.NetworkAnswerInvalid(f"The switch reports the VLAN {shown(str(vlan))!r}.")
        names = {there: name for name, there in access.settings.vlans.items()}
        return frozenset() if vlan is None else frozenset({names.get(vlan, f"VLAN {vlan}")})

    def _vlan(self, access: Access, network: str) -> int:
        if network not in access.settings.vlans:
            raise errors.NetworkUnknown(f"The settings have no VLAN for the network {network}.")
        return access.settings.vlans[network]

    def _call(self, access: Access, port: Port, method: str, body: dict | None = None) -> dict:
        address, token = access.settings.switches.get(port.switch), access.credential["token"]
        if address is None:
            raise errors.NetworkUnknown(f"The settings have no switch {port.switch}.")
        try:
            answer = urllib3.HTTPConnectionPool(address, access.settings.port).request(
                method,
                f"/ports/{port.port.replace('/', '%2F')}",
                json=body,
                headers={"Authorization": f"Bearer {token}"},
                timeout=urllib3.Timeout(total=max(0.05, access.deadline.remaining)),
                retries=False,
                redirect=False,  # never to another place with our token
            )
            if answer.status != 200:
                kind = REFUSALS.get(answer.status, errors.NetworkRefused)
                raise kind(f"The switch {port.switch} answered {answer.status}: {shown(answer.data, [token])}")
            return dict(answer.json())
        except urllib3.exceptions.HTTPError as error:
            raise errors.NetworkUnreachable(f"{port.switch} cannot be reached: {type(error).__name__}.") from None
        except (ValueError, TypeError):
            raise errors.NetworkAnswerInvalid(f"The switch {port.switch} sent no JSON object.") from None
