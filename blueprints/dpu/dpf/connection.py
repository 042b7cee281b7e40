"""The connection of an interface of a lease to the API server of DPF, and the errors that its owner is told."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from blueprints.dpf import Site, services, site_of
from blueprints.dpf.access import forget
from blueprints.kube import ApiUnavailable, FieldsDropped, ManagerConflict, ObjectRefused
from blueprints.specs import LeaseView
from drydock.core.errors import Conflict, InvalidRequest
from interfaces.deadline import Deadline
from interfaces.errors import Unreachable

_CALL = 10.0
_LONGEST = 500


class Connected:
    """Reads and writes the objects of one lease, which have the proof of its DPU."""

    def __init__(self, lease: LeaseView, proof: Mapping[str, str]) -> None:
        self._lease, self._proof = lease, dict(proof)

    @property
    def _labels(self) -> dict[str, str]:
        return {**self._proof, **services.labels_of(self._lease.key)}

    @contextmanager
    def _opened(self, deadline: Deadline) -> Iterator[Site]:
        """Open a connection to the API server. Its errors become those of the interface."""
        deadline.check("Reaching the API server")
        with _told(), site_of(self._lease.resource.blueprint, self._proof, deadline=seconds_of(deadline)) as site:
            try:
                yield site
            except (FieldsDropped, ObjectRefused):
                forget(site.cluster.where)
                raise


def seconds_of(deadline: Deadline) -> float:
    """Return the seconds that one call may take, of which an operation makes several."""
    return min(_CALL, max(1.0, deadline.remaining / 3))


@contextmanager
def _told() -> Iterator[None]:
    """Raise errors of an API server as those of the interface."""
    try:
        yield
    except ApiUnavailable as error:
        raise Unreachable(error.message[:_LONGEST]) from error
    except ManagerConflict as error:
        raise Conflict(error.message[:_LONGEST]) from error
    except (FieldsDropped, ObjectRefused) as error:
        raise InvalidRequest(error.message[:_LONGEST]) from error
