"""A client process: `python -m chaos.client PLAN NUMBER OWNER BEGAN`. It may be killed and started again at any time.

It keeps nothing: everything asked for has an idempotency key, so after a restart it asks for all again and goes on.
"""

from __future__ import annotations

import datetime as dt
import random
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from chaos.orders import Order

SHORTEST_LIFE = 0.05
"""Seconds between two looks."""
OVER = ("destroyed", "broken")


@dataclass(kw_only=True)
class Placed:
    """An order that was placed, and its leases."""

    order: Order
    ids: list[int]
    asked: float
    done: bool = False
    active_since: dict[int, float] = field(default_factory=dict)


class Client:
    """Places its orders when they are due, and behaves as each of them says."""

    def __init__(self, orders: list[Order], owner: str, began: float) -> None:
        self.owner, self.began = owner, began
        self.due = sorted(orders, key=lambda order: order.at)
        self.placed: list[Placed] = []

    def run(self) -> None:
        """Until every order is placed and done."""
        while self.due or any(not placed.done for placed in self.placed):
            patiently(self._turn)
            time.sleep(SHORTEST_LIFE)

    def _turn(self) -> None:
        while self.due and self.due[0].at <= time.time() - self.began:
            ids = self._place_in_time(self.due[0])
            self.placed.append(Placed(order=self.due.pop(0), ids=ids, asked=time.time()))
        open_ = [placed for placed in self.placed if not placed.done]
        states = self._states([pk for placed in open_ for pk in placed.ids])
        for placed in open_:
            self._go_on(placed, {pk: states[pk][0] for pk in placed.ids})
            again = [new for pk in placed.ids if (new := states[pk][1]) and new not in placed.ids]
            placed.ids += again
            placed.done = placed.done and not again

    def _place_in_time(self, order: Order) -> list[int]:
        """Nothing when it was down, or the database, until what it wanted was over."""
        from drydock.core.errors import InvalidRequest

        try:
            return self._place(order)
        except InvalidRequest as error:
            if not self._until(order) or self._until(order)["until"] > dt.datetime.now(dt.UTC):
                raise
            print(f"too late for {order.key}: {error}", flush=True)
            return []

    def _place(self, order: Order) -> list[int]:
        from django.db import transaction

        if not order.inside:
            return self._ask(order)
        with transaction.atomic():
            return self._ask(order)

    def _ask(self, order: Order) -> list[int]:
        from leases.operations import callers, leases

        who = callers.caller(self.owner)
        requests = [one | self._until(order) for one in order.requests]
        if order.group:
            return leases.request_group(
                who, requests, same=order.same, different=order.different, idempotency_key=order.key
            )
        return [leases.request(who, {**requests[0], "idempotency_key": order.key})]

    def _until(self, order: Order) -> dict[str, dt.datetime]:
        """The same at every restart, so that the key stands for the same request."""
        if order.lasts is None:
            return {}
        return {"until": dt.datetime.fromtimestamp(self.began + order.at + order.lasts, dt.UTC)}

    def _states(self, ids: list[int]) -> dict[int, tuple[str, int | None]]:
        """State, and the lease that took its place."""
        from leases.models import Lease

        found = Lease.objects.filter(pk__in=ids).values_list("pk", "state", "replaced_by_id")
        return {pk: (state, new) for pk, state, new in found}

    def _go_on(self, placed: Placed, states: dict[int, str]) -> None:
        order, now = placed.order, time.time()
        for pk, state in states.items():
            if state == "active":
                self._while_active(placed, pk, now)
            if order.cancel is not None and state not in OVER and now > placed.asked + order.cancel:
                self._release(pk)
        over = all(state in OVER for state in states.values())
        placed.done = over or (order.keep and all(state in ("active", *OVER) for state in states.values()))

    def _while_active(self, placed: Placed, pk: int, now: float) -> None:
        first = pk not in placed.active_since
        since = placed.active_since.setdefault(pk, now)
        if placed.order.extends and first:
            self._extend(pk)
        if placed.order.beats and random.random() < 0.1:
            self._beat(pk)
        if placed.order.hold is not None and now > since + placed.order.hold:
            self._release(pk)

    def _release(self, pk: int) -> None:
        from leases.operations import callers, leases

        leases.release(callers.caller(self.owner), pk)

    def _extend(self, pk: int) -> None:
        from leases.operations import callers, lifetimes

        _unless_refused(lambda: lifetimes.extend(callers.caller(self.owner), pk, ttl="4s"))

    def _beat(self, pk: int) -> None:
        from leases.operations import callers, leases

        _unless_refused(lambda: leases.heartbeat(callers.caller(self.owner), pk))


def _unless_refused(act: Callable[[], Any]) -> None:
    """The lease may have ended meanwhile; that is no failure."""
    from drydock.core.errors import Conflict

    try:
        act()
    except Conflict as error:
        print(f"refused: {error}", flush=True)


def patiently(act: Callable[[], Any]) -> None:
    """Act, and where the database is gone or says no for the moment, say so and let it be tried again."""
    from django.db import Error, connection

    from drydock.core.errors import Busy

    try:
        act()
    except (Error, Busy) as error:
        if is_bug(error):
            raise
        print(f"again after {type(error).__name__}: {error}", flush=True)
        connection.close()
        time.sleep(0.3)


def is_bug(error: BaseException) -> bool:
    """Whether a database error is one that no outage explains."""
    from django.db import DataError, IntegrityError, ProgrammingError

    return isinstance(error, IntegrityError | DataError | ProgrammingError)


def main() -> None:
    """Read the plan's orders of this client and carry them out."""
    import django

    django.setup()
    from pathlib import Path

    from chaos.serial import read_orders

    plan, number, owner, began = sys.argv[1:]
    mine = [order for order in read_orders(Path(plan)) if order.client == int(number)]
    Client(mine, owner, float(began)).run()


if __name__ == "__main__":
    main()
