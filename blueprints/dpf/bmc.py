"""The BMCs of cards that DPF manages, by which Drydock stops what runs on a card after its DPU.

DPF has no operation for that. It reports the address of a BMC in the DPUDevice; the account, and what its certificate
is checked against, are in the config of the cards' blueprint.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from pydantic import Field, ValidationError, field_validator

from blueprints.answers import Json
from blueprints.bluefield.logins import counted
from blueprints.bmc import tls
from blueprints.bmc.errors import BmcDriverNotInstalled
from blueprints.bmc.redfish import Access, Redfish
from blueprints.dpf.cards import Card
from blueprints.dpf.config import Server
from blueprints.specs import BlueprintView, Problem, ResourceView

if TYPE_CHECKING:
    from blueprints.bluefield.parking import ParkingSession

BMC = "bmc"
"""The fact of a card with the address and port of its BMC, as DPF reports them."""
ANY_CARD, BY_BMC = ("leave", "reimage"), ("power_off", "wipe")
"""The ways to park a card: those that need DPF only, and those that need the BMC of the card."""
_USER = "root"


class WithBmcs(Server):
    """The config fields of cards by which their BMCs are reached."""

    bmc_credential: str = Field(
        default="",
        description='Name of the credential {"username": ..., "password": ...} for the BMCs of the cards, by which '
        "cards are parked. Empty: BMCs are not used.",
    )
    bmc_ca: str = Field(
        default="",
        max_length=100_000,
        description="Certificates of the authorities that sign the BMCs' certificates, as PEM text. The BMCs that DPF "
        "reports are used with it only, so that nobody gets the password by changing an address in DPF.",
    )
    bmcs: Mapping[str, Access] = Field(
        default={},
        description="Serial number of a card -> how its BMC is reached, where DPF does not report it, or its "
        "certificate is pinned. A card without serial number is named by node/PCI address.",
    )

    @field_validator("bmc_ca")
    @classmethod
    def _is_ca(cls, value: str) -> str:
        try:
            tls.Trust(ca=value).context()
        except ValueError as error:
            raise ValueError(str(error).removesuffix(".")) from error
        return value

    @field_validator("bmcs")
    @classmethod
    def _are_encrypted(cls, given: Mapping[str, Access]) -> Mapping[str, Access]:
        if any(one.tls == "off" for one in given.values()):
            raise ValueError("TLS must be on: the BMC gets a password")
        return given


def ways(config: WithBmcs, card: Card) -> list[str]:
    """Return the ways in which a card can be parked."""
    known = bool(config.bmc_credential) and _access(config, card.identity, card.bmc) is not None
    return sorted((*ANY_CARD, *(BY_BMC if known else ())))


def _access(config: WithBmcs, identity: str, reported: Mapping[str, Any]) -> Access | None:
    if (given := config.bmcs.get(identity)) is not None:
        return given
    if not config.bmc_ca or not reported.get("address"):
        return None
    try:
        return Access(address=str(reported["address"]), port=reported.get("port") or 443, ca=config.bmc_ca)
    except ValidationError:
        return None


def problems(blueprint: BlueprintView, found: Sequence[Card]) -> list[Problem]:
    """Return why cards of a blueprint cannot be parked by their BMCs. Calls no BMC."""
    config: WithBmcs = blueprint.config
    name = config.bmc_credential
    if not name:
        message = "Set bmc_credential before `bmcs`: nothing is done by a BMC without an account."
        return [Problem(message=message, field="bmc_credential")] if config.bmcs else []
    if name not in blueprint.credentials:
        return [Problem(message=f"Credential {name!r} does not exist.", field="bmc_credential")]
    if not blueprint.credentials[name].get("password"):
        return [Problem(message=f"Credential {name!r} has no password.", field="bmc_credential")]
    if importlib.util.find_spec("sushy") is None:
        return [Problem(message="The extra redfish is not installed.", field="kind")]
    unknown = [one.identity for one in found if "power_off" not in ways(config, one)]
    more = f" and {len(unknown) - 10} more" if len(unknown) > 10 else ""
    message = (
        f"No BMC is known of card {', '.join(unknown[:10])}{more}, so that blueprints which park by power_off or wipe "
        "do not use it. Add its BMC to `bmcs`, or set `bmc_ca` if DPF reports its address."
    )
    return [Problem(message=message, field="bmcs", fatal=False)] if unknown else []


def known(card: ResourceView) -> Access | None:
    """Return how the BMC of a leased card is reached; None if that is not known."""
    config = card.blueprint.config
    if not isinstance(config, WithBmcs) or not card.blueprint.credentials.get(config.bmc_credential):
        return None
    reported = card.facts.get(BMC)
    return _access(config, card.identity, reported if isinstance(reported, dict) else {})


@contextmanager
def opened(card: ResourceView, access: Access, seconds: float) -> Iterator[ParkingSession]:
    """Log in to the BMC of a card. Raises BmcError. The login is counted, because the BMC locks its account."""
    config: WithBmcs = card.blueprint.config
    login: Json = {"username": _USER, **card.blueprint.credentials[config.bmc_credential]}
    logins = counted(card, access, card.identity)
    client = Redfish().client(access, login, deadline=seconds, logins=logins)
    try:
        from blueprints.bluefield.parking import ParkingSession
    except ImportError as error:
        raise BmcDriverNotInstalled("redfish", "sushy") from error
    with ParkingSession(client, access.system) as session:
        yield session
