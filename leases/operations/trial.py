"""Trying a blueprint that is not stored: is its config right, could it work, and what would it build?"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from blueprints import registry
from blueprints.contract import CatalogueStale
from blueprints.models import Blueprint
from blueprints.specs import Draft, Problem
from drydock.core.errors import DrydockError
from leases.engine.catalogue import drafts as machine_drafts
from leases.engine.core import specs
from leases.engine.core.database import refuse_inside_transaction
from leases.given import checked
from leases.operations.callers import Caller, operator_only


@dataclass(frozen=True, kw_only=True)
class Trial:
    """What came of it. `drafts`: what it would build first for a lease that asks for nothing special."""

    problems: Sequence[Problem] = ()
    drafts: Sequence[Draft] = ()
    says: str = ""
    """Why nothing is drafted, where that needs a word."""


@checked
def trial(who: Caller, *, name: str, kind: str, config: Mapping[str, Any], id: int = 0, most: int = 10) -> Trial:
    """Look, without storing or creating anything. May ask a provider. Raises KindNotFound, NotAllowed; pydantic's
    ValidationError for a config that the kind does not accept."""
    operator_only(who, "try blueprints")
    refuse_inside_transaction("Trying a blueprint")
    found = registry.kind(kind)
    view = specs.blueprint_view(Blueprint(pk=id, name=name, kind=kind, config=dict(config)), secrets=True)
    problems = tuple(found.check_blueprint(view))
    if not machine_drafts.builds(found):
        return Trial(problems=problems, says="It builds nothing: its resources are registered or discovered.")
    try:
        drafts = tuple(machine_drafts.drafts(Blueprint(kind=kind), found, view.config, None))[:most]
    except (CatalogueStale, DrydockError) as error:
        return Trial(problems=problems, says=str(error))
    return Trial(problems=problems, drafts=drafts, says="" if drafts else "It would build nothing unless it is asked.")
