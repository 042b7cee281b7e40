"""What is done to an instance that runs, and that doing it twice does no harm."""

from __future__ import annotations

import pytest

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.guest import printed
from blueprints.cloud.values import Lifecycle, Market
from blueprints.ec2.client import Ec2
from tests.clouds.ec2.double import Double
from tests.clouds.ec2.orders import again, made, order


def test_stop_and_start(double: Double, ec2: Ec2) -> None:
    instance = made(ec2, order())
    before = again(ec2, instance)
    ec2.stop(instance)
    ec2.stop(instance)
    stopped = again(ec2, instance)
    assert stopped.state is Lifecycle.STOPPED
    assert "Client.UserInitiatedShutdown" in stopped.reason
    assert stopped.created_at == before.created_at
    ec2.start(instance)
    ec2.start(instance)
    after = again(ec2, instance)
    assert (after.state, after.reason) == (Lifecycle.RUNNING, "")
    assert after.public_address not in ("", before.public_address)


def test_it_cannot_be_started_while_it_stops(double: Double, ec2: Ec2) -> None:
    double.ending = 3600.0
    instance = made(ec2, order())
    again(ec2, instance)
    ec2.stop(instance)
    assert again(ec2, instance).state is Lifecycle.STOPPING
    with pytest.raises(CloudError) as caught:
        ec2.start(instance)
    assert caught.value.meaning is Meaning.CONFLICT


def test_what_is_terminated_is_not_started(ec2: Ec2) -> None:
    instance = made(ec2, order())
    ec2.terminate(instance)
    with pytest.raises(CloudError) as caught:
        ec2.start(instance)
    assert caught.value.meaning is Meaning.CONFLICT


def test_spot_is_not_stopped(ec2: Ec2) -> None:
    instance = made(ec2, order(market=Market.SPOT))
    with pytest.raises(CloudError) as caught:
        ec2.stop(instance)
    assert caught.value.meaning is Meaning.NOT_OFFERED


def test_reboot(double: Double, ec2: Ec2) -> None:
    ends: list[str] = []
    double.on_end = lambda machine: ends.append(machine.id)
    instance = made(ec2, order())
    again(ec2, instance)
    ec2.reboot(instance)
    assert ends == [instance.id]
    assert again(ec2, instance).state is Lifecycle.RUNNING


def test_the_disk_grows_once(double: Double, ec2: Ec2) -> None:
    instance = made(ec2, order(disk_gib=20))
    ec2.resize_volume(instance, 20)
    ec2.resize_volume(instance, 10)
    assert not double.asked("ModifyVolume")
    ec2.resize_volume(instance, 40)
    ec2.resize_volume(instance, 40)
    assert [one.parameters["Size"] for one in double.asked("ModifyVolume")] == ["40"]
    with pytest.raises(CloudError) as caught:
        ec2.resize_volume(instance, 80)
    assert caught.value.meaning is Meaning.CONFLICT


def test_the_type_is_changed_when_stopped(ec2: Ec2) -> None:
    instance = made(ec2, order())
    again(ec2, instance)
    with pytest.raises(CloudError) as caught:
        ec2.change_type(instance, "t3.medium")
    assert caught.value.meaning is Meaning.CONFLICT
    ec2.stop(instance)
    again(ec2, instance)
    ec2.change_type(instance, "t3.medium")
    ec2.change_type(instance, "t3.medium")
    assert again(ec2, instance).type == "t3.medium"


def test_tags_are_set_on_all_that_is_its_own(double: Double, ec2: Ec2) -> None:
    instance = made(ec2, order())
    ec2.set_tags(instance, {"drydock-lease": "l7"})
    left = double.objects()
    assert again(ec2, instance).tags.items() >= {"drydock-lease": "l7", **instance.tags}.items()
    for thing in [*left["volumes"], *left["network_interfaces"]]:
        assert double.tags(thing)["drydock-lease"] == "l7"


def test_the_newest_of_the_console(double: Double, ec2: Ec2) -> None:
    instance = made(ec2, order())
    assert ec2.console(instance) == ""
    double.consoles[instance.id] = "old\n" + "x" * 70_000 + "\nlogin: "
    text = ec2.console(instance)
    assert text.endswith("\nlogin: ")
    assert len(text) == 65_536
    assert double.asked("GetConsoleOutput")[-1].parameters["Latest"] == "true"


def test_the_console_of_a_type_before_nitro(double: Double, ec2: Ec2) -> None:
    instance = made(ec2, order(type="t2.micro"))
    double.consoles[instance.id] = "login: "
    assert ec2.console(instance) == "login: "
    assert "Latest" not in double.asked("GetConsoleOutput")[-1].parameters


def test_host_keys_are_on_the_console(double: Double, ec2: Ec2) -> None:
    instance = made(ec2, order())
    assert printed(ec2.console(instance)) == []
    double.host_key = {instance.key: "ssh-ed25519 AAAAown"}.get  # type: ignore[assignment]
    assert printed(ec2.console(instance)) == ["ssh-ed25519 AAAAown"]
