"""Orders that agents fetch, and the agents' answers to them."""

from __future__ import annotations

from django.db.models.functions import Now

from drydock.core.errors import Conflict, NotFound
from drydock_agent.messages import OrderResult, OrderStatus
from leases.engine.core.transitions import record_event
from leases.models import Agent, AgentOrder

_State = AgentOrder.State
_STATES = {
    OrderStatus.IN_PROGRESS: _State.RUNNING,
    OrderStatus.DONE: _State.DONE,
    OrderStatus.FAILED: _State.FAILED,
}


def due(agent_id: int) -> list[AgentOrder]:
    """Return the orders that an agent has not answered yet, oldest first, and mark them as sent."""
    waiting = AgentOrder.objects.filter(agent=agent_id, state__in=(_State.WAITING, _State.SENT), expires_at__gt=Now())
    found = list(waiting[:20])
    if any(one.state == _State.WAITING for one in found):
        waiting.filter(state=_State.WAITING).update(state=_State.SENT)
    return found


def finish(agent: Agent, order_id: str, result: OrderResult) -> None:
    """Store an agent's answer to an order. The same answer may come twice.

    Raises NotFound if the order is not the agent's, and Conflict if it has another result already.
    """
    number = int(order_id) if order_id.isascii() and order_id.isdecimal() and len(order_id) < 19 else 0
    order = AgentOrder.objects.filter(pk=number, agent=agent).first()
    if order is None:
        raise NotFound(f"This agent has no order {order_id:.40}.", field="order")
    state = _STATES[result.status]
    if order.state == state != _State.RUNNING:
        return
    ended = None if state == _State.RUNNING else Now()
    still = AgentOrder.objects.filter(pk=order.pk, state__in=AgentOrder.OPEN)
    if not still.update(state=state, message=result.message, percent=result.percent, ended_at=ended):
        raise Conflict(f"Order {order.pk} has ended already: {order.get_state_display()}.")
    if ended is not None:
        message = f"Order {order.pk} ({order.action}) for the agent of {agent.place}: {state}. {result.message}".strip()
        record_event(
            "agent.order_ended", message[:2000], actor=f"agent {agent.pk}", blueprint_id=agent.blueprint_id,
            details={"agent": agent.pk, "order": order.pk},
        )  # fmt: skip
