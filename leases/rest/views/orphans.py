"""What stands in accounts without a row, and rows without what they stand for."""

from __future__ import annotations

from typing import Any

from leases.client.values import OrphanInfo
from leases.rest import bodies
from leases.rest.endpoint import Asked, Endpoint, Page, operation
from leases.rest.models import Scope


class Orphans(Endpoint):
    """Things without a row."""

    @operation("List orphans", gives=list[OrphanInfo], scope=Scope.OPERATE)
    def get(self, asked: Asked) -> Page:
        """Things without a row, suspects, and rows without a thing; each with what becomes of it."""
        return Page(results=asked.client.orphans())


def _settling(act: str, summary: str) -> Any:
    class Act(Endpoint):
        """What an operator wants of an orphan."""

        @operation(summary, gives=OrphanInfo, status=202, scope=Scope.OPERATE, body=bodies.DryRun)
        def post(self, asked: Asked, id: int) -> OrphanInfo:
            """By the next search that sees it long enough after the first; `dry_run` only says what would be done.
            409 for what is not provably ours."""
            return asked.client.settle_orphan(id, act, dry_run=asked.body.dry_run)

    return Act


Destroy = _settling("destroy", "Have an orphan destroyed")
Adopt = _settling("adopt", "Give a machine a row again")
