"""Machines on the outlets of Acme's power strips, which are controlled over HTTP."""

import urllib3
from pydantic import Field

from blueprints.bmc import errors
from blueprints.bmc.contract import Bmc, BmcDriver
from blueprints.bmc.texts import HostName, shown
from blueprints.bmc.values import Inventory, PowerAction, PowerState
from blueprints.contract import Fields
from interfaces.deadline import Deadline

STATES = {PowerAction.ON: "on", PowerAction.OFF: "off", PowerAction.CYCLE: "cycle"}
REFUSALS = {401: errors.BmcLoginRefused, 404: errors.BmcLacks, 503: errors.BmcBusy}


class Access(Fields):
    """How an outlet is reached. The fields become those of a registration, of forms and of the REST API."""

    address: HostName = Field(description="Host name or address of the power strip.")
    port: int = Field(default=80, ge=1, le=65535)
    outlet: int = Field(ge=1, le=64, description="Number of the outlet, as printed on the strip.")


class Credential(Fields):
    """The strip's token. It is stored encrypted, and reaches only `open`."""

    token: str


class Outlet(Bmc):
    """A session. What it can do follows from its base classes: a strip has no sensors and no boot devices."""

    def __init__(self, access: Access, token: str, deadline: Deadline) -> None:
        self._access, self._token, self._deadline = access, token, deadline
        self._pool = urllib3.HTTPConnectionPool(access.address, access.port, maxsize=1)

    def close(self) -> None:
        self._pool.close()

    def inspect(self) -> Inventory:
        return Inventory(missing=("A power strip does not know what is plugged in.",))

    def power(self) -> PowerState:
        state = self._call("GET").get("state")
        if state not in ("on", "off"):
            raise errors.BmcAnswerInvalid(f"The strip reports the power {shown(str(state))!r}.")
        return PowerState(state)

    def power_actions(self) -> frozenset[PowerAction]:
        return frozenset(STATES)

    def switch(self, action: PowerAction) -> None:
        if action not in STATES:
            raise errors.BmcLacks(f"A power strip does not offer the action {action}.")
        self._call("PUT", {"state": STATES[action]})

    def _call(self, method: str, body: dict[str, str] | None = None) -> dict[str, str]:
        try:
            answer = self._pool.request(
                method,
                f"/outlets/{self._access.outlet}",
                json=body,
                headers={"Authorization": f"Bearer {self._token}"},
                timeout=urllib3.Timeout(total=max(0.05, self._deadline.remaining)),
                retries=False,
                redirect=False,  # never to another place with our token
            )
            if answer.status != 200:
                kind = REFUSALS.get(answer.status, errors.BmcRefused)
                raise kind(f"The strip answered {answer.status}: {shown(answer.data, [self._token])}")
            return dict(answer.json())
        except urllib3.exceptions.HTTPError as error:
            raise errors.BmcUnreachable(f"The strip cannot be reached: {type(error).__name__}.") from None
        except (ValueError, TypeError):
            raise errors.BmcAnswerInvalid("The strip sent no JSON object.") from None


class AcmeStrip(BmcDriver):
    """The driver. It has no state of its own."""

    name = "acme_strip"
    Access = Access
    Credential = Credential

    def open(self, access: Access, credential: dict[str, str], *, deadline: float) -> Outlet:
        return Outlet(access, credential["token"], Deadline(deadline))

    def identity(self, access: Access) -> str:
        return f"{access.address.lower()}:{access.port}/{access.outlet}"
