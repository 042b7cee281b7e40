"""What can be changed about a machine that is there."""

from __future__ import annotations

import pytest

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Lifecycle, Rule, Underway
from tests.clouds.azure.conftest import TAGS, Bench, until


def test_stopping_starting_and_restarting(bench: Bench) -> None:
    made = bench.made()
    bench.azure.stop(made)
    stopped = bench.until(made, Lifecycle.STOPPED)
    assert stopped.id == made.id
    bench.azure.stop(made)
    bench.azure.start(made)
    bench.until(made, Lifecycle.RUNNING)
    bench.azure.start(made)
    bench.azure.reboot(made)
    assert bench.until(made, Lifecycle.RUNNING).id == made.id


def test_a_machine_that_is_being_changed_says_so_in_the_listing(bench: Bench) -> None:
    made = bench.made()
    bench.double.ground.duration = 30
    bench.azure.stop(made)
    assert [one.state for one in bench.azure.instances("", TAGS)] == [Lifecycle.STOPPING]
    with pytest.raises(CloudError) as caught:
        bench.azure.start(made)
    assert caught.value.meaning is Meaning.CONFLICT


def test_the_disk_grows_and_never_shrinks(bench: Bench) -> None:
    made = bench.made()

    def size() -> int:
        return int(bench.double.objects()["dd-one-disk"]["properties"]["diskSizeGB"])

    bench.azure.resize_volume(made, 64)
    assert size() == 64
    changes = len(bench.double.calls)
    bench.azure.resize_volume(made, 64)
    assert [call.method for call in bench.double.calls[changes:]] == ["GET"]
    with pytest.raises(CloudError, match="cannot shrink") as caught:
        bench.azure.resize_volume(made, 32)
    assert (caught.value.meaning, size()) == (Meaning.INVALID, 64)


def test_a_disk_that_grows_only_while_the_machine_is_stopped(bench: Bench) -> None:
    made = bench.made()
    bench.double.ground.online_growth = False
    with pytest.raises(CloudError) as caught:
        bench.azure.resize_volume(made, 64)
    assert caught.value.meaning is Meaning.CONFLICT
    bench.azure.stop(made)
    bench.until(made, Lifecycle.STOPPED)
    bench.azure.resize_volume(made, 64)
    assert bench.double.objects()["dd-one-disk"]["properties"]["diskSizeGB"] == 64


def test_a_stopped_machine_becomes_another_size(bench: Bench) -> None:
    made = bench.made()
    bench.azure.stop(made)
    stopped = bench.until(made, Lifecycle.STOPPED)
    bench.azure.change_type(stopped, "Standard_D4s_v5")
    changed = until(lambda: found if (found := bench.read(made)) and found.type == "Standard_D4s_v5" else None)
    before = len(bench.double.calls)
    bench.azure.change_type(changed, "Standard_D4s_v5")
    assert len(bench.double.calls) == before
    with pytest.raises(CloudError) as caught:
        bench.azure.change_type(changed, "Standard_Nonsense")
    assert caught.value.meaning is Meaning.INVALID


def test_tags_are_added_to_every_object_and_others_stay(bench: Bench) -> None:
    made = bench.made()
    bench.azure.set_tags(made, {"owner": "ada", "drydock-resource": "r2"})
    for name, found in bench.double.objects().items():
        assert found["tags"] == {
            "drydock-installation": "i1",
            "drydock-resource": "r2",
            "drydock-attempt": "attempt-1",
            "owner": "ada",
        }, name
    with pytest.raises(CloudError) as caught:
        bench.azure.set_tags(made, {"long": "x" * 300})
    assert caught.value.meaning is Meaning.INVALID


def test_tags_of_a_machine_that_is_gone(bench: Bench) -> None:
    made = bench.made()
    bench.ended(made)
    with pytest.raises(CloudError) as caught:
        bench.azure.set_tags(made, {"owner": "ada"})
    assert caught.value.meaning is Meaning.NOT_FOUND


def test_ports_are_opened_and_closed_again(bench: Bench) -> None:
    made = bench.made()
    web, names = Rule(port=443), Rule(port=53, protocol="udp", source="198.51.100.0/24")

    def rules() -> dict[str, dict[str, object]]:
        found = bench.double.objects()["dd-one-nsg"]["properties"]["securityRules"]
        return {str(one["name"]): one["properties"] for one in found}

    bench.azure.open_ports(made, [web, names])
    bench.azure.open_ports(made, [names, web])
    opened = {name: about for name, about in rules().items() if name.startswith("open-")}
    assert sorted(
        (one["protocol"], one["destinationPortRange"], one["sourceAddressPrefix"]) for one in opened.values()
    ) == [
        ("Tcp", "443", "0.0.0.0/0"),
        ("Udp", "53", "198.51.100.0/24"),
    ]
    assert len({one["priority"] for one in rules().values()}) == 5
    bench.azure.close_ports(made, [web])
    bench.azure.close_ports(made, [web])
    assert sorted(rules()) == sorted({"ssh-v4", "ssh-v6", "closed", *(name for name in opened if "udp-53" in name)})
    with pytest.raises(CloudError, match="not a supported protocol"):
        bench.azure.open_ports(made, [Rule(port=1, protocol="sctp")])


def test_the_console(bench: Bench) -> None:
    made = bench.made()
    assert bench.azure.console(made) == ""
    bench.double.say("dd-one", "booting\n")
    assert bench.azure.console(made) == "booting\n"
    bench.double.say("dd-one", "x" * 70_000 + "end")
    text = bench.azure.console(made)
    assert len(text) == 65_536
    assert text.endswith("xend")


def test_the_consoles_url_is_in_no_message(bench: Bench) -> None:
    made = bench.made()
    bench.double.say("dd-one", "booting\n")
    bench.double.answers._url += "/serial/other?x="
    with pytest.raises(CloudError) as caught:
        bench.azure.console(made)
    assert caught.value.meaning is Meaning.UNAVAILABLE
    assert "secret" not in caught.value.message


def test_host_keys_are_asked_for_by_run_command(bench: Bench) -> None:
    made = bench.made()
    bench.double.ground.host_key = {"dd-one": "ssh-ed25519 AAAAown root@guest"}.get  # type: ignore[assignment]
    first = bench.azure.host_keys(made, {})
    assert isinstance(first, Underway)
    again = bench.azure.host_keys(made, first.handle)
    assert isinstance(again, Underway)
    assert bench.azure.host_keys(made, again.handle) == ["ssh-ed25519 AAAAown root@guest"]
