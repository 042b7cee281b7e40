"""Agents' tokens reach the addresses of agents and nothing else, and no other token reaches those.

CVE-2026-40213: interfaces about hardware that any user may read and change. CVE-2026-40214: objects without an owner,
which other tenants list and delete.
"""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client as Browser
from django.urls import get_resolver

from leases import agents
from leases.messaging.inline import settle
from leases.models import Agent, Resource
from leases.operations.callers import caller
from leases.rest import agents as addresses
from leases.rest import tokens
from leases.rest.agents import views
from leases.rest.models import AGENT, Token
from leases.rest.schema import METHODS
from leases.rest.urls import OPEN, V1
from tests.rest.conftest import Api
from tests.rest.test_agents import OTHER, Agents, _fresh_buckets, joined, pool, who  # noqa: F401

METHODS_OF_AGENTS = ("get", "post", "put", "patch", "delete")


def filled(address):
    return (
        address.replace("<id:id>", "1").replace("<word:name>", "cards").replace("<user:user>", "ada")
        .replace("<str:order>", "1").replace("<word:blueprint>", "cards")
    )  # fmt: skip


def reached():
    """Every address and method of the agents' addresses."""
    for address, view in addresses.ADDRESSES.items():
        for method in METHODS_OF_AGENTS:
            if hasattr(view, method):
                yield method.upper(), filled(address)


def others():
    """Every address and method of the API that is not for agents."""
    for address, view in V1.items():
        for method in METHODS:
            if method in view.http_method_names and hasattr(view, method):
                yield method.upper(), filled(address)


def test_the_list_of_addresses_is_that_of_the_installation():
    patterns = {str(one.pattern) for url in get_resolver().url_patterns if str(url.pattern) == "api/"
                for one in url.url_patterns}  # fmt: skip
    known = {f"v1/{address}" for address in (*V1, *addresses.ADDRESSES)}
    assert {one for one in patterns if one.startswith("v1/")} == known
    assert OPEN["permission_classes"] == []


def test_an_agents_token_reaches_no_address_of_users(joined, held):  # noqa: F811
    agent = joined()
    agent.report("0000:01:00.0")
    settle()
    program = Api(agent.token)
    tried = 0
    for method, path in others():
        found = program.raw(method, path, {} if method != "GET" else None)
        assert found.status_code == 403, (method, path, found.content)
        assert b"belongs to an agent" in found.content, (method, path)
        tried += 1
    assert tried > 100
    browser = Browser(headers={"Authorization": f"Bearer {agent.token}"})
    assert browser.get("/admin/").status_code == 302
    agent.send("GET", "me/orders")


@pytest.mark.parametrize("who_asks", ["anonymous", "owner", "reader", "operator", "administrator", "join code"])
def test_nobody_else_reaches_the_addresses_of_agents(joined, api, owner, chief, who, who_asks):  # noqa: F811
    agent = joined()
    agent.report("0000:01:00.0")
    settle()
    secrets = {
        "anonymous": lambda: "", "owner": lambda: api(owner).secret, "reader": lambda: api(owner, "read").secret,
        "operator": lambda: api(chief, "operate").secret,
        "administrator": lambda: api(User.objects.create_superuser("root"), "operate").secret,
    }  # fmt: skip
    program = Api(secrets[who_asks]() if who_asks in secrets else "")
    # A code for one host of the blueprint reaches the hello only, and there it is not enough for this document.
    code = agents.create_join_code(who, "cards").code if who_asks == "join code" else ""
    headers = {"Authorization": f"Join {code}"} if code else {}
    before = (list(Resource.objects.values()), list(Agent.objects.values()))
    tried = 0
    for method, path in reached():
        found = program.raw(method, path, None if method == "GET" else agent.document("x"), headers=headers)
        expected = 400 if code and path == "agents/hello" else 401
        assert found.status_code == expected, (method, path, found.content)
        tried += 1
    assert tried == 5
    assert (list(Resource.objects.values()), list(Agent.objects.values())) == before


def test_an_agent_reaches_nothing_of_another_agent(joined, who):  # noqa: F811
    """Orders and hardware are those of the agent whose token it is; there is no address that names another agent."""
    one, two = joined(), joined("node-2", OTHER)
    two.report("0000:02:00.0")
    settle()
    before = list(Resource.objects.values())
    agent = Agent.objects.get(place="node-2")
    order = agents.order_agent(who, agent.pk)
    assert one.send("GET", "me/orders")["orders"] == []
    result = {"version": 1, "status": "DONE"}
    assert one.send("POST", f"me/orders/{order.id}", result, code=404)["field"] == "order"
    one.send("PUT", f"{agent.pk}/hardware", two.document(), code=404)
    assert one.report()["stored"]
    settle()
    assert list(Resource.objects.values()) == before
    assert [sent["id"] for sent in two.send("GET", "me/orders")["orders"]] == [str(order.id)]
    two.send("POST", f"me/orders/{order.id}", result, code=204)
    assert agents.agent(who, agent.pk).orders[0].state == "done"


@pytest.mark.parametrize("scope", ["read", "lease"])
def test_only_operators_see_or_change_agents(joined, api, owner, chief, scope):  # noqa: F811
    joined()
    number = Agent.objects.get().pk
    asked = (
        ("GET", "agents", None), ("GET", f"agents/{number}", None), ("POST", f"agents/{number}/revoke", {}),
        ("POST", "agents/join-codes", {"blueprint": "cards"}), ("POST", f"agents/{number}/orders", {}),
        ("POST", f"agents/{number}/orders", {"action": "upgrade"}),
        ("POST", f"agents/{number}/confirm", {"fingerprint": "0" * 64}),
        ("POST", "resources/1/agent", {"server": "https://127.0.0.1"}), ("DELETE", "resources/1/agent", None),
    )  # fmt: skip
    for user in (owner, chief):
        for method, path, body in asked:
            Api("")(method, path, body, code=401)
            api(user, scope)(method, path, body, code=403)
    for method, path, body in asked:
        api(owner, "operate")(method, path, body, code=403)
    operator = api(chief, "operate")
    assert [one["place"] for one in operator("GET", "agents")["results"]] == ["node-1"]
    assert operator("POST", f"agents/{number}/revoke", {})["state"] == "revoked"
    assert operator("GET", "agents")["results"] == []
    assert operator("GET", "agents?all=true")["results"][0]["state"] == "revoked"


def test_a_revoked_agent_reaches_nothing(joined, who):  # noqa: F811
    agent = joined()
    agents.revoke_agent(who, Agent.objects.get().pk)
    for method, path in reached():
        agent.send(method, path.removeprefix("agents/"), agent.document(), code=401)


def test_tokens_of_agents_are_no_tokens_of_users(joined, api, chief, who):  # noqa: F811
    agent = joined()
    row = Token.objects.get(scope=AGENT)
    assert agent.token not in str(Token.objects.values())
    assert AGENT not in {one.scope for one in tokens.list_(who)}
    operator = api(chief, "operate")
    operator("GET", f"tokens/{row.pk}", code=404)
    operator("DELETE", f"tokens/{row.pk}", code=404)
    operator("POST", "tokens", {"name": "x", "scope": "agent"}, code=400)
    assert not row.allows("read")
    assert not Token(scope="operate").allows(AGENT)
    assert caller(chief).operator


def delayed(monkeypatch, meanwhile):
    """Have something happen between the check of the next request's token and the arrival of its body."""
    plain, todo = views.AgentEndpoint.text, [meanwhile]

    def text(self, request):
        while todo:
            todo.pop()()
        return plain(self, request)

    monkeypatch.setattr(views.AgentEndpoint, "text", text)


@pytest.mark.parametrize("replaced", [True, False])
def test_a_hello_that_is_held_back_gets_no_token_after_the_agent_was_replaced(joined, who, monkeypatch, replaced):  # noqa: F811
    """A token is checked before the body has arrived, so whoever took over an agent can keep a hello in flight."""
    agent, new, number = joined(), Agents(), Agent.objects.get().pk
    if replaced:
        code = agents.create_join_code(who, "cards", host="node-1").code
        delayed(monkeypatch, lambda: new.hello(f"Join {code}"))
    else:
        delayed(monkeypatch, lambda: agents.revoke_agent(who, number))
    agent.hello(code=401)
    assert Token.objects.filter(agent=number).count() == int(replaced), "only that of the new agent"
    agent.send("GET", "me/orders", code=401)


@pytest.mark.parametrize("device", ["0000:01:00.0", "0000:02:00.0"])
def test_a_report_that_is_held_back_is_not_that_of_the_new_agent(joined, who, monkeypatch, device):  # noqa: F811
    """Its number would otherwise be larger than all that the new agent can send."""
    agent, new = joined(), Agents()
    agent.report("0000:01:00.0")
    settle()
    code = agents.create_join_code(who, "cards", host="node-1").code

    def replace():
        new.hello(f"Join {code}")
        new.report("0000:01:00.0")

    delayed(monkeypatch, replace)
    agent.sequence = (1 << 63) - 2
    agent.report(device, code=403)
    assert new.report("0000:01:00.0")["stored"] is False
    assert Agent.objects.get().sequence == new.sequence
