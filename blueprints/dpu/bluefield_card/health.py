"""The health check of a card, by its BMC."""

from __future__ import annotations

from blueprints.answers import Answer, Failed, Json, Ready, Scope
from blueprints.bluefield.access import login_of, opened
from blueprints.bluefield.reading import judged
from blueprints.dpu.bluefield_card.enrolment import by_bmc, serial_of
from blueprints.specs import Spec


@by_bmc
def look(spec: Spec, memo: Json) -> Answer:
    """Read serial number and health. A card that was exchanged is quarantined, as it is another one."""
    resource = spec.resource
    seconds = min(spec.deadline * 0.9, spec.config.bmc_timeout)
    with opened(resource, login_of(resource), seconds) as session:
        serial, health = session.state()
    if serial and serial.casefold() != serial_of(spec).casefold():
        message = f"The BMC now belongs to the card {serial}, but {serial_of(spec)} was enrolled. Register it anew."
        return Failed(scope=Scope.OPERATOR, code="other_card", message=message, quarantines=True)
    return Ready(health=judged(health))
