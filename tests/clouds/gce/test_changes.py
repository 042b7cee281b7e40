"""What is done with an instance that stands, and what is left when it is gone."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import pytest

from blueprints.cloud.faults import Meaning
from blueprints.cloud.values import Instance, Lifecycle, Market, Order, Rule, Underway
from blueprints.gce.client import CONSOLE, Gce
from blueprints.gce.config import Credential
from blueprints.gce.network import FirewallRules, rule_name
from tests.clouds.gce.conftest import TAGS, USUAL, made, order, prepared, refused, until
from tests.clouds.gce.double import Double, Machine, Pace


def anew(gce: Gce, it: Instance) -> Instance:
    found = gce.instance(it.location, it.zone, it.key, it.id)
    assert found is not None
    return found


def swept(double: Double, gce: Gce, wanted: Order = USUAL) -> bool:
    double.settle()
    return not gce.sweep(wanted.location, wanted.zone, wanted.key, wanted.tags)


def test_terminated_twice_and_swept_nothing_is_left(double: Double, gce: Gce) -> None:
    assert prepared(gce, USUAL)["firewall"] == "dd-one"
    it = made(gce)
    rules = [Rule(port=80), Rule(port=53, protocol="udp", source="192.0.2.0/24")]
    refused(Meaning.CONFLICT, gce.open_ports, it, rules)
    gce.terminate(it)
    gce.terminate(it)
    double.settle()
    gce.terminate(it)
    assert gce.instance(it.location, it.zone, it.key, it.id) is None
    assert len(double.objects()["firewalls"]) == 3
    until(lambda: swept(double, gce))
    assert double.objects() == {}
    assert swept(double, gce)


def test_a_rule_that_is_created_between_two_looks_is_not_taken_for_a_missing_one(
    double: Double, gce: Gce, monkeypatch: pytest.MonkeyPatch
) -> None:
    it, rule = made(gce), Rule(port=80)
    double.world.pace.operation = 2.0  # the rule is not there yet when its deletion is requested
    refused(Meaning.CONFLICT, gce.open_ports, it, [rule])
    look = FirewallRules._being_made

    def later(rules: FirewallRules, name: str) -> bool:
        double.settle()
        return look(rules, name)

    monkeypatch.setattr(FirewallRules, "_being_made", later)
    refused(Meaning.CONFLICT, gce.close_ports, it, [rule])
    gce.close_ports(it, [rule])
    double.settle()
    assert "firewalls" not in double.objects()


def test_a_disk_that_outlived_its_instance_is_swept(double: Double, gce: Gce) -> None:
    it = made(gce)
    double.world.instances[it.zone, it.key]["disks"][0]["autoDelete"] = False
    assert gce.sweep("us-central1", it.zone, it.key, TAGS) == ["disk dd-one in us-central1-a"]
    assert double.objects()["disks"] == ["dd-one"]
    gce.terminate(it)
    double.settle()
    assert double.objects() == {"disks": ["dd-one"]}
    until(lambda: not gce.sweep("us-central1", "", it.key, TAGS))
    assert double.objects() == {}


def test_a_sweep_leaves_what_is_anothers(double: Double, gce: Gce) -> None:
    theirs = order(tags={**TAGS, "drydock-installation": "i-2"})
    prepared(gce, theirs)
    it = made(gce, theirs)
    assert gce.sweep(it.location, it.zone, it.key, TAGS) == []
    assert double.objects() == {"instances": ["dd-one"], "disks": ["dd-one"], "firewalls": ["dd-one"]}
    refused(Meaning.INVALID, gce.prepare, USUAL)


def test_a_sweep_goes_by_who_owns_it_though_other_tags_changed(double: Double, gce: Gce) -> None:
    prepared(gce, USUAL)
    until(lambda: not gce.sweep("us-central1", "", "dd-one", {**TAGS, "drydock-blueprint": "renamed"}))
    assert double.objects() == {}


def test_a_delete_never_means_a_later_instance_of_the_name(double: Double, gce: Gce) -> None:
    first = made(gce)
    gce.terminate(first)
    double.settle()
    second = made(gce, order(token="attempt-2"))
    gce.terminate(first)
    double.settle()
    assert gce.instance(first.location, first.zone, first.key, first.id) is None
    assert anew(gce, second) == second


def test_the_rule_for_ssh(double: Double, gce: Gce) -> None:
    wanted = order(ssh_port=2222, ssh_from=("192.0.2.0/24", "2001:db8::/32"))
    first = gce.prepare(wanted)
    assert isinstance(first, Underway)
    assert prepared(gce, wanted) == prepared(gce, wanted)
    (rule,) = double.world.firewalls.values()
    assert rule["allowed"] == [{"IPProtocol": "tcp", "ports": ["2222"]}]
    assert (rule["sourceRanges"], rule["targetTags"]) == (["192.0.2.0/24"], ["dd-one"])
    prepared(gce, order(ssh_port=22))
    double.settle()
    assert rule["allowed"][0]["ports"] == ["22"]
    assert gce.prepare(order(key="dd-closed", ssh_from=())) == {}


def test_a_rule_is_made_once(double: Double, gce: Gce) -> None:
    with ThreadPoolExecutor(8) as threads:
        list(threads.map(lambda _: prepared(gce, USUAL), range(8)))
    assert double.objects() == {"firewalls": ["dd-one"]}


def test_ports_open_and_close(double: Double, gce: Gce) -> None:
    it, web, own = made(gce), Rule(port=443), Rule(port=8080, source="198.51.100.0/24")
    refused(Meaning.CONFLICT, gce.open_ports, it, [web, own])
    double.settle()
    gce.open_ports(it, [web, own])
    assert double.objects()["firewalls"] == sorted([rule_name(it.key, web), rule_name(it.key, own)])
    assert double.world.firewalls[rule_name(it.key, own)]["sourceRanges"] == ["198.51.100.0/24"]
    for _ in range(2):
        gce.close_ports(it, [web])
        double.settle()
    assert double.objects()["firewalls"] == [rule_name(it.key, own)]


def test_a_port_that_is_still_being_opened_is_not_taken_for_closed(double: Double, gce: Gce) -> None:
    it, web = made(gce), Rule(port=443)
    double.world.pace.operation = 2.0
    refused(Meaning.CONFLICT, gce.open_ports, it, [web])
    refused(Meaning.CONFLICT, gce.close_ports, it, [web])
    double.settle()
    gce.close_ports(it, [web])
    double.settle()
    assert rule_name(it.key, web) not in double.objects().get("firewalls", [])


def test_names_of_rules_fit_and_differ() -> None:
    names = {rule_name("d" * 62 + end, Rule(port=65535, protocol="icmp", source="::/0")) for end in "ab"}
    assert len(names) == 2
    assert all(len(name) <= 63 for name in names)


def test_stop_start_and_reboot(gce: Gce) -> None:
    it = made(gce)
    gce.stop(it)
    until(lambda: anew(gce, it).state is Lifecycle.STOPPED)
    gce.stop(it)
    assert anew(gce, it).public_address == ""
    gce.start(it)
    again = until(lambda: anew(gce, it) if anew(gce, it).state is Lifecycle.RUNNING else None)
    assert again.public_address
    gce.start(it)
    gce.reboot(it)
    until(lambda: anew(gce, it).public_address != again.public_address)


def test_hooks_see_every_start_and_end() -> None:
    said: list[tuple[str, str]] = []

    def on_start(machine: Machine) -> str:
        said.append(("start", machine.key))
        assert machine.user_data == "#cloud-config\n{}"
        assert (machine.user, machine.public_key) == (USUAL.user, USUAL.public_key)
        return "127.44.0.9"

    with Double(
        on_start=on_start, on_end=lambda machine: said.append(("end", machine.key)), pace=Pace(0.01, 0.02)
    ) as double:
        gce = Gce(Credential(**double.credential))
        it = made(gce)
        assert it.public_address == it.private_address == "127.44.0.9"
        gce.stop(it)
        double.settle()
        gce.start(it)
        double.settle()
        gce.terminate(it)
        double.settle()
        made(gce, order(token="2"))
    assert said == [(what, "dd-one") for what in ("start", "end", "start", "end", "start", "end")]
    assert double.violations == []


def test_preempted_and_deleted(double: Double, gce: Gce) -> None:
    it = made(gce, order(market=Market.SPOT))
    double.preempt(it.key)
    until(lambda: gce.instance(it.location, it.zone, it.key, it.id) is None)
    assert double.objects() == {}


def test_preempted_and_stopped_is_not_stopped_by_us(double: Double, gce: Gce) -> None:
    taken, stopped = made(gce, order(market=Market.SPOT)), made(gce, order(key="b", token="2", market=Market.SPOT))
    double.world.instances[taken.zone, taken.key]["scheduling"]["instanceTerminationAction"] = "STOP"
    double.preempt(taken.key)
    gce.stop(stopped)
    double.settle()
    found = anew(gce, taken)
    assert (found.state, found.preempted, found.reason) == (Lifecycle.STOPPED, True, "Instance was preempted.")
    assert (anew(gce, stopped).state, anew(gce, stopped).preempted) == (Lifecycle.STOPPED, False)


def test_the_disk_grows(double: Double, gce: Gce) -> None:
    it = made(gce)
    gce.resize_volume(it, 30)
    double.settle()
    assert double.world.disks[it.zone, it.key]["sizeGb"] == "30"
    gce.resize_volume(it, 30)
    gce.resize_volume(it, 20)
    assert len(double.calls("compute.disks.resize")) == 1


def test_the_type_changes_when_it_is_stopped(double: Double, gce: Gce) -> None:
    it = made(gce)
    gce.change_type(it, it.type)
    refused(Meaning.CONFLICT, gce.change_type, it, "n2-standard-4")
    gce.stop(it)
    double.settle()
    gce.change_type(it, "n2-standard-4")
    assert anew(gce, it).type == "n2-standard-4"
    refused(Meaning.NOT_OFFERED, gce.change_type, it, "n2-standard-3")
    refused(Meaning.INVALID, gce.change_type, it, "n1-standard-4+nvidia-tesla-t4:1")


def test_tags_are_added(double: Double, gce: Gce) -> None:
    it = made(gce)
    gce.set_tags(it, {"drydock-lease": "l-1", "Owner": "Ada"})
    gce.set_tags(it, {"drydock-lease": "l-2"})
    found = anew(gce, it)
    assert found.tags == {**TAGS, "drydock-lease": "l-2", "Owner": "Ada"}
    items = {one["key"] for one in double.world.instances[it.zone, it.key]["metadata"]["items"]}
    assert {"user-data", "ssh-keys", "enable-guest-attributes"} <= items


def test_tags_set_by_many_at_once_all_stay(double: Double, gce: Gce) -> None:
    it = made(gce)
    double.faults.refuse("compute.instances.setLabels", 412, "conditionNotMet", "Labels fingerprint is stale")
    gce.set_tags(it, {"a": "1"})
    assert anew(gce, it).tags["a"] == "1"
    double.faults.refuse("compute.instances.setLabels", 412, "conditionNotMet", times=2)
    refused(Meaning.CONFLICT, gce.set_tags, it, {"a": "2"})


def test_the_console(double: Double, gce: Gce) -> None:
    it = made(gce)
    assert "login:" in gce.console(it)
    double.world.consoles[it.id] = "old\n" * CONSOLE + "the end"
    said = gce.console(it)
    assert len(said) == CONSOLE
    assert said.endswith("the end")


def test_host_keys_are_read_from_guest_attributes(double: Double, gce: Gce) -> None:
    it = made(gce)
    assert gce.host_keys(it, {}) == []
    double.world.host_key = {it.key: "ssh-ed25519 AAAAown"}.get  # type: ignore[assignment]
    assert gce.host_keys(it, {}) == ["ssh-ed25519 AAAAown"]


def test_a_rule_whose_description_was_changed_is_found_by_its_name_and_told(double: Double, gce: Gce) -> None:
    known, told = prepared(gce, USUAL), list[str]()
    for rule in double.world.firewalls.values():
        rule["description"] = "ours now"
    assert gce.sweep("us-central1", USUAL.zone, USUAL.key, TAGS) == []
    assert double.objects() == {"firewalls": ["dd-one"]}

    def gone() -> bool:
        return not gce.sweep("us-central1", USUAL.zone, USUAL.key, TAGS, known=[*known.values()], report=told.append)

    until(gone)
    assert double.objects() == {}
    assert "dd-one" in told[0]
