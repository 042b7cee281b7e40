"""The views that agents call."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from django.conf import settings
from django.http import HttpResponse
from django.urls import path
from rest_framework.exceptions import AuthenticationFailed, UnsupportedMediaType
from rest_framework.request import Request

from drydock.core import clock
from drydock.core.errors import InvalidRequest
from drydock_agent import wire
from drydock_agent.messages import (
    BODY_BYTES,
    LONGEST_WAIT,
    Action,
    HardwareReport,
    Hello,
    Message,
    Order,
    OrderResult,
    Orders,
    Receipt,
    Welcome,
    timestamp,
)
from leases import agents
from leases.agents.enrolment import BadCode, Replaced, server_version
from leases.models import Agent
from leases.places import PLACES
from leases.rest import parsing, tokens
from leases.rest.agents.authentication import AgentAuthentication, AgentThrottle, HelloAuthentication, Joining
from leases.rest.endpoint import Endpoint, json_response

T = TypeVar("T")
_FIELD = re.compile(r"\A([a-z][A-Za-z0-9_.\[\]-]{0,100}): ")
_ROOT = re.compile(r"\A(hello|hardwarereport|orderresult)(\.|: )")
_FIRST, _LONGEST = 0.1, 1.0
_UNCHANGED = Receipt(stored=False)


class AgentEndpoint(Endpoint):
    """The base class of the views for agents."""

    authentication_classes = [AgentAuthentication]
    throttle_classes = [AgentThrottle]

    def largest(self, request: Request) -> int:
        """Return the maximum size of a body in bytes, as it is sent."""
        return BODY_BYTES

    def document(self, request: Request) -> object:
        """Return the JSON document in a body, which may be compressed. Raises InvalidRequest."""
        body = self.text(request)
        found = _strictly(lambda: wire.parsed(body))
        parsing.check_value(found)
        return found

    def text(self, request: Request) -> bytes:
        """Return the JSON text of a body, which may be compressed. Raises InvalidRequest."""
        sort = request.content_type.partition(";")[0].strip().lower()
        if sort != "application/json":
            raise UnsupportedMediaType(sort)
        encoding = request.headers.get("Content-Encoding", "")
        content = request._request.read(BODY_BYTES + 1)
        return _strictly(lambda: wire.unpacked(content, encoding, BODY_BYTES))


def _strictly(read: Callable[[], T]) -> T:
    """Return what `read` returns. Raises InvalidRequest, with the field, instead of wire.Malformed."""
    try:
        return read()
    except wire.Malformed as error:
        message = _ROOT.sub("", str(error))
        named = _FIELD.match(message)
        field = named[1] if named else ""
        raise InvalidRequest(message[named.end() :] if named else message, field=field) from None


def _answer(message: Message) -> HttpResponse:
    return json_response(message.to_json())


class HelloView(AgentEndpoint):
    """`POST agents/hello`: join with a code, or renew the token."""

    authentication_classes = [HelloAuthentication]

    def post(self, request: Request) -> HttpResponse:
        """Return a new token. The one before stays valid for five minutes, in case that this answer is lost."""
        document = self.document(request)
        hello = _strictly(lambda: Hello.from_json(document))
        known: Any = request.auth
        try:
            agent = agents.join(known.secret, hello) if isinstance(known, Joining) else agents.renew(known, hello)
            token, expires_at = tokens.create_for_agent(agent)
        except (BadCode, Replaced) as error:
            raise AuthenticationFailed(str(error)) from None
        return _answer(
            Welcome(
                agent=str(agent.pk), token=token, expires_at=timestamp(expires_at),
                interval=min(86_400.0, max(1.0, agent.interval)), server_time=timestamp(clock.now()),
                server_version=server_version(), blueprint=agent.blueprint.name, place=agent.place[:200],
                secret=agents.new_secret(agent, hello),
            )
        )  # fmt: skip


class HardwareView(AgentEndpoint):
    """`PUT agents/me/hardware`: report what hardware is in the host."""

    def put(self, request: Request) -> HttpResponse:
        """Store the report, and return what could not be stored."""
        agent, body = _agent(request), self.text(request)
        if agents.accept_repeated(agent, body):
            return _answer(_UNCHANGED)
        document: Any = _strictly(lambda: wire.parsed(body))
        if agents.accept_unchanged(agent, document, body):
            return _answer(_UNCHANGED)
        parsing.check_value(document)
        report = _strictly(lambda: HardwareReport.from_json(document))
        received = agents.accept(agent, report, document["hardware"])
        problems = (" ".join(received.problem.split())[:2000],) if received.problem else ()
        return _answer(Receipt(stored=received.stored, problems=problems))


class OrdersView(AgentEndpoint):
    """`GET agents/me/orders?wait=SECONDS`: fetch orders."""

    def get(self, request: Request) -> HttpResponse:
        """Return the orders that the agent has not answered, as soon as there is one.

        Returns at once if too many requests are waiting already.
        """
        agent = _agent(request)
        seconds = min(_seconds(request), float(settings.DRYDOCK.longest_wait_seconds))
        found = agents.due(agent.pk)
        if not found and seconds > 0 and PLACES.take("agent", -agent.pk):
            try:
                found = _wait(agent.pk, clock.monotonic() + seconds)
            finally:
                PLACES.leave("agent", -agent.pk)
        orders = tuple(
            Order(
                id=str(one.pk), action=Action(one.action), arguments=one.arguments, expires_at=timestamp(one.expires_at)
            )
            for one in found
        )
        return _answer(Orders(orders=orders))


def _wait(agent_id: int, end: float) -> list[Any]:
    pause = _FIRST
    while (left := end - clock.monotonic()) > 0:
        clock.sleep(min(pause, left))
        if found := agents.due(agent_id):
            return found
        pause = min(pause * 1.3, _LONGEST)
    return []


def _seconds(request: Request) -> float:
    given = request.query_params.get("wait", "0")
    if set(request.query_params) - {"wait"} or not given.isascii() or not given.isdecimal() or len(given) > 3:
        raise InvalidRequest(f"Give a number of seconds from 0 to {LONGEST_WAIT}.", field="wait")
    return float(min(int(given), LONGEST_WAIT))


class ProgramView(AgentEndpoint):
    """`GET agents/me/program`: fetch the server's version of the agent, as one file."""

    def get(self, request: Request) -> HttpResponse:
        """Return the file. An order to install it has its SHA-256."""
        offered = agents.current_program()
        response = HttpResponse(offered.content, content_type="application/octet-stream")
        response["Content-Length"] = str(len(offered.content))
        response["ETag"] = f'"{offered.sha256}"'
        response["Cache-Control"] = "no-store"
        return response


class OrderView(AgentEndpoint):
    """`POST agents/me/orders/ID`: report how far an order is."""

    def post(self, request: Request, order: str) -> HttpResponse:
        """Store the state of an order."""
        document = self.document(request)
        agents.finish(_agent(request), order, _strictly(lambda: OrderResult.from_json(document)))
        return HttpResponse(status=204)


def _agent(request: Request) -> Agent:
    found = request.auth
    assert isinstance(found, Agent)
    return found


ADDRESSES: dict[str, type[AgentEndpoint]] = {
    "agents/hello": HelloView,
    "agents/me/hardware": HardwareView,
    "agents/me/orders": OrdersView,
    "agents/me/program": ProgramView,
    "agents/me/orders/<str:order>": OrderView,
}
"""The view for each address below `/api/v1/`."""
URLS = [path(f"v1/{address}", view.as_view()) for address, view in ADDRESSES.items()]
