"""What of the installation's blueprints and resources cannot be reached now."""

from __future__ import annotations

from blueprints import registry
from blueprints.models import Blueprint
from leases.engine.core import specs
from leases.models import Resource


def failing_blueprints() -> dict[str, str]:
    """Enabled blueprint -> what its kind says keeps it from working. Calls providers; creates nothing."""
    found = {}
    for blueprint in Blueprint.objects.filter(enabled=True).order_by("name"):
        if said := _fatal(blueprint):
            found[blueprint.name] = said
    return found


def _fatal(blueprint: Blueprint) -> str:
    try:
        problems = registry.kind(blueprint.kind).check_blueprint(specs.blueprint_view(blueprint, secrets=True))
    except Exception as error:  # whatever a kind raises is an answer about its blueprint alone
        return f"{type(error).__name__}: {error}"
    return "; ".join(problem.message for problem in problems if problem.fatal)


def failing_resources() -> list[str]:
    """The names of resources that did not answer when last looked at."""
    return list(
        Resource.objects.filter(check_failures__gt=0, gone_at=None).order_by("name").values_list("name", flat=True)
    )
