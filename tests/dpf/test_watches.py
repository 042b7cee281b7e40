"""What the watches of DPF send and yield, on a server that says what a test wants."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterator
from typing import Any

import pytest

from blueprints.contract import Watches
from blueprints.dpf import watches
from blueprints.dpf.phases import HOLD, REBOOT
from blueprints.dpf.watches import places
from blueprints.dpu.dpf.kind import Dpf
from blueprints.dpu.dpf_cluster.kind import DpfCluster
from blueprints.dpu.dpf_image.kind import DpfImage
from blueprints.specs import BlueprintView
from blueprints.watches import Changes, Ending, WatchFailed, WatchNews
from drydock.core import clock
from tests.kube.double import Double, double, status

NAMESPACE, OURS = "dpus", "abcd1234"
GROUP = "provisioning.dpu.nvidia.com"
API = f"/apis/{GROUP}/v1alpha1"
LISTED = f"{API}/namespaces/{NAMESPACE}"
PLURALS = {
    "DPU": "dpus",
    "DPUSet": "dpusets",
    "DPUNode": "dpunodes",
    "DPUNodeMaintenance": "dpunodemaintenances",
    "BFB": "bfbs",
}
TAGS = {"drydock-installation": OURS, "drydock-epoch": "0", "drydock-resource": "7", "drydock-proof": "p"}
KINDS = (Dpf(), DpfImage(), DpfCluster())
EVERYTHING = {
    "charts": [{"repository": "oci://charts.example.org", "name": "a", "versions": ["1.0.0"]}],
    "chains": {}, "networks": ["10.20.0.0/16"], "credentials": {"namespace": "apart"},
    "volumes": {"policies": ["fast"]}, "vpcs": {"isolations": ["ovn"], "subnets": ["10.30.0.0/16"]},
}  # fmt: skip
"""Fields of the config of a DPU that allow its owners something."""


def test_no_two_watches_of_a_credential_are_of_the_same_objects():
    server = {"credential": "dpf", "namespace": NAMESPACE}
    more = {
        Dpf: {
            "image": "http://127.0.0.1/a.bfb",
            "flavor": "f",
            "chains": {},
            "volumes": {"policies": ["fast"]},
            "networks": ["10.0.0.0/8"],
        },
        DpfImage: {"images": [{"url": "http://127.0.0.1/a.bfb"}]},
        DpfCluster: {},
    }
    found = [place for kind in KINDS for place in kind.watched(kind.Config(**server, **more[type(kind)]))]
    assert len(found) == len(set(found)) >= 10


@pytest.fixture
def server() -> Iterator[Double]:
    """A server that has the types of `PLURALS`."""
    with double() as found:
        groups = {"groups": [{"name": GROUP, "preferredVersion": {"groupVersion": f"{GROUP}/v1alpha1"}}]}
        found.says("GET", "/apis", groups)
        found.says("GET", "/api/v1", {"groupVersion": "v1", "resources": []})
        offered = [{"name": plural, "kind": kind, "namespaced": True} for kind, plural in PLURALS.items()]
        found.says("GET", API, {"groupVersion": f"{GROUP}/v1alpha1", "resources": offered})
        yield found


def thing(name: str, version: int, labels: dict[str, str] = TAGS, **more: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": NAMESPACE, "uid": f"u-{name}", "resourceVersion": str(version)}
    annotations = more.pop("annotations", {})
    return {"metadata": {**metadata, "labels": {**labels, "app": "x"}, "annotations": annotations}, **more}


def event(type_: str, one: dict[str, Any]) -> dict[str, Any]:
    return {"type": type_, "object": one}


def bookmark(version: int) -> dict[str, Any]:
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": str(version)}}}


def listing(version: int, *items: dict[str, Any], more: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": str(version), "continue": more}, "items": list(items)}


def mark(version: int, age: float = 0.0) -> str:
    return json.dumps({"version": str(version), "listed_at": clock.now().timestamp() - age})


def heard(server: Double, kind: str, count: int, start: str = "") -> list[WatchNews]:
    """Return the first news about a type of objects."""
    config = Dpf.Config(credential="dpf", namespace=NAMESPACE, image="http://127.0.0.1/a.bfb", flavor="f")
    secrets = {"server": server.url, "token": server.credential().token, "ca": server.ca}
    view = BlueprintView(
        id=1, name="dpus", kind="dpf", generation=1, config=config, credentials={"dpf": secrets}
    )  # fmt: skip
    news = Dpf().watch(view, f"{NAMESPACE}/{kind}", OURS, start, Ending())
    found = list(itertools.islice(news, count))
    news.close()  # type: ignore[attr-defined]
    return found


def keys(news: WatchNews) -> list[str]:
    assert isinstance(news, Changes)
    return [one.key for one in news.objects]


def version(news: WatchNews) -> str:
    return str(json.loads(news.bookmark)["version"])


def test_it_lists_in_pages_and_watches_from_there(server):
    server.says("GET", f"{LISTED}/dpus", listing(10, thing("a", 1), more="next"), times=1)
    server.says("GET", f"{LISTED}/dpus", listing(10, thing("b", 2)), times=1)
    server.streams(
        f"{LISTED}/dpus", [event("MODIFIED", thing("a", 11)), bookmark(12), event("DELETED", thing("b", 13))]
    )
    first, changed, marked, gone = heard(server, "DPU", 4)
    assert (first.listed, first.missed, version(first)) == (True, True, "10")
    assert (keys(changed), version(changed)) == (["a"], "11")
    assert changed.objects[0].tags == TAGS, "only labels of ours"
    assert (keys(marked), version(marked)) == ([], "12")
    assert (keys(gone), version(gone)) == (["b"], "13")
    calls = server.called("GET", f"{LISTED}/dpus")
    assert {call.query["labelSelector"] for call in calls} == {f"drydock-installation={OURS}"}
    assert [call.query.get("continue") for call in calls] == [None, "next", None]
    assert (calls[2].query["resourceVersion"], calls[2].query["allowWatchBookmarks"]) == ("10", "true")


def test_only_of_a_dpu_that_goes_on_without_us_progress_is_reported(server):
    installing, ready = {"phase": "OS Installing"}, {"phase": "Ready"}
    server.streams(
        f"{LISTED}/dpus",
        [
            event("MODIFIED", thing("a", 21, status=installing)), event("MODIFIED", thing("a", 22, status=ready)),
            event("DELETED", thing("a", 23, status=installing)),
        ],
    )  # fmt: skip
    found = [one.objects[0].progress for one in heard(server, "DPU", 3, mark(20))]
    assert found == [{"phase": "OS Installing", "percent": 20, "sentence": "DPU a: OS Installing."}, None, None]
    server.streams(f"{LISTED}/bfbs", [event("MODIFIED", thing("a", 21, status=installing))])
    assert heard(server, "BFB", 1, mark(20))[0].objects[0].progress is None


def test_a_set_whose_status_alone_has_changed_concerns_nothing(server):
    def one(version: int, generation: int, count: int, **more: Any) -> dict[str, Any]:
        found = thing("a", version, status={"dpuStatistics": {"Ready": count}}, **more)
        found["metadata"] |= {"generation": generation}
        return found

    going, gone = one(27, 3, 3), one(28, 3, 3)
    going["metadata"] |= {"deletionTimestamp": "2026-01-01T00:00:00Z"}
    changes = [
        one(21, 1, 0), one(22, 1, 1), one(23, 1, 2), one(24, 2, 2), one(25, 2, 3),
        one(26, 2, 3, annotations={"x": "y"}), going, one(28, 3, 3),
    ]  # fmt: skip
    server.streams(
        f"{LISTED}/dpusets", [*(event("MODIFIED", each) for each in changes), event("DELETED", gone),
        event("ADDED", one(29, 3, 3))],
    )  # fmt: skip
    news = heard(server, "DPUSet", 10, mark(20))
    assert [version(each) for each in news] == ["21", "22", "23", "24", "25", "26", "27", "28", "28", "29"]
    assert [len(keys(each)) for each in news] == [1, 0, 0, 1, 0, 1, 1, 1, 1, 1]


def test_a_server_with_ever_new_names_does_not_make_a_watch_remember_them_all(server, monkeypatch):
    monkeypatch.setattr(watches, "_MOST", 3)
    names = ["a", "b", "c", "d", "d", "a", "a"]
    found = [event("MODIFIED", thing(name, 21 + i)) for i, name in enumerate(names)]
    server.streams(f"{LISTED}/dpusets", found)
    assert [len(keys(one)) for one in heard(server, "DPUSet", 7, mark(20))] == [1, 1, 1, 1, 0, 1, 0]
    hosts = [event("MODIFIED", thing(name, 21 + i, {}, annotations=REBOOTS)) for i, name in enumerate(names)]
    server.streams(f"{LISTED}/dpunodes", hosts)
    server.says("GET", f"{LISTED}/dpus", listing(
        40, *(thing(f"dpu-{name}", 1, spec={"dpuNodeName": name}) for name in "abcd")
    ))  # fmt: skip
    assert [len(keys(one)) for one in heard(server, "DPUNode", 7, mark(20))] == [1, 1, 1, 1, 0, 1, 0]


def test_it_goes_on_at_a_stored_bookmark_without_a_listing(server):
    server.streams(f"{LISTED}/dpus", [event("ADDED", thing("a", 21))])
    (changed,) = heard(server, "DPU", 1, mark(20))
    assert (keys(changed), version(changed)) == (["a"], "21")
    (call,) = server.called("GET", f"{LISTED}/dpus")
    assert call.query["resourceVersion"] == "20"


def test_a_listing_after_ten_minutes_tells_only_what_is_newer(server):
    server.says("GET", f"{LISTED}/dpus", listing(30, thing("a", 5), thing("b", 25)))
    (news,) = heard(server, "DPU", 1, mark(20, age=700.0))
    assert (keys(news), news.listed, news.missed, version(news)) == (["b"], True, False, "30")


def test_a_server_that_was_restored_tells_that_changes_were_missed(server):
    server.says("GET", f"{LISTED}/dpus", listing(8, thing("a", 5)))
    (news,) = heard(server, "DPU", 1, mark(900, age=700.0))
    assert (news.missed, version(news)) == (True, "8")


@pytest.mark.parametrize("how", ["status", "event"])
def test_a_bookmark_that_is_too_old_means_that_changes_were_missed(server, how):
    if how == "status":
        server.fails("GET", f"{LISTED}/dpus", 410, "Expired", times=1)
    else:
        server.streams(f"{LISTED}/dpus", [{"type": "ERROR", "object": status(410, "Expired")}], times=1)
    server.says("GET", f"{LISTED}/dpus", listing(50, thing("a", 5)), times=1)
    (news,) = heard(server, "DPU", 1, mark(20))
    assert (news.listed, news.missed, version(news)) == (True, True, "50")


def test_a_broken_connection_is_told_and_goes_on_at_the_last_event(server):
    server.streams(f"{LISTED}/dpus", [event("ADDED", thing("a", 21))], times=1, cut=True)
    server.streams(f"{LISTED}/dpus", [event("ADDED", thing("b", 22))])
    first, broken, second = heard(server, "DPU", 3, mark(20))
    assert (keys(first), keys(second)) == (["a"], ["b"])
    assert isinstance(broken, WatchFailed)
    assert version(broken) == "21"
    assert [call.query["resourceVersion"] for call in server.called("GET", f"{LISTED}/dpus")] == ["20", "21"]


def test_a_refused_credential_ends_the_watch_so_that_it_is_read_again(server):
    server.fails("GET", f"{LISTED}/dpus", 401, "Unauthorized")
    (news,) = heard(server, "DPU", 5, mark(20))
    assert isinstance(news, WatchFailed)
    assert "does not accept the credential" in news.message
    assert (news.after >= 60, version(news)) == (True, "20")


def test_a_forbidden_watch_names_verb_and_resource(server):
    server.fails("GET", f"{LISTED}/dpus", 403, "Forbidden")
    (news,) = heard(server, "DPU", 1, mark(20))
    assert "watch dpus.provisioning.dpu.nvidia.com in namespace dpus" in news.message


def test_a_type_that_the_server_does_not_have_is_not_watched(server):
    (news,) = heard(server, "DPUFlavor", 5)
    assert (news.listed, news.bookmark, news.after > 60) == (True, "absent", True)
    (again,) = heard(server, "DPUFlavor", 5, news.bookmark)
    assert again == news


def test_a_server_that_cannot_be_reached_is_told(server):
    server.rules.clear()
    server.fails("GET", "/apis", 503, "ServiceUnavailable")
    (news,) = heard(server, "DPU", 5, "kept")
    assert isinstance(news, WatchFailed)
    assert (news.bookmark, news.after > 0) == ("kept", True)


REBOOTS = {REBOOT: ""}
HELD = {HOLD: "true"}


@pytest.mark.parametrize(
    ("kind", "name", "waits", "spec"),
    [("DPUNode", "n1", REBOOTS, {}), ("DPUNodeMaintenance", "n1-hold", HELD, {"dpuNodeName": "n1"}),
     ("DPUNodeMaintenance", "n1-hold", HELD, {})],
)  # fmt: skip
def test_the_dpus_of_a_host_are_told_once_when_dpf_waits_for_us_there(server, kind, name, waits, spec):
    path = f"{LISTED}/{PLURALS[kind]}"
    quiet, waiting = thing(name, 21, {}, spec=spec), thing(name, 22, {}, spec=spec, annotations=waits)
    later, again = thing(name, 24, {}, spec=spec), thing(name, 25, {}, spec=spec, annotations=waits)
    server.streams(path, [
        event("MODIFIED", quiet), event("MODIFIED", waiting),
        event("MODIFIED", {**waiting, "metadata": {**waiting["metadata"], "resourceVersion": "23"}}),
        event("MODIFIED", later), event("MODIFIED", again), event("DELETED", again),
    ])  # fmt: skip
    server.says("GET", f"{LISTED}/dpus", listing(
        40, thing("ours", 1, spec={"dpuNodeName": "n1"}), thing("elsewhere", 1, spec={"dpuNodeName": "n2"}),
    ))  # fmt: skip
    found = heard(server, kind, 6, mark(20))
    assert [keys(one) for one in found] == [[], ["ours"], [], [], ["ours"], []]
    assert found[1].objects[0].tags == TAGS
    assert len(server.called("GET", f"{LISTED}/dpus")) == 2
    assert "labelSelector" not in server.called("GET", path)[0].query


def test_hosts_whose_dpus_cannot_be_read_are_told_again_later(server):
    waiting = thing("n1", 21, {}, annotations=REBOOTS)
    server.streams(f"{LISTED}/dpunodes", [event("MODIFIED", waiting)])
    server.fails("GET", f"{LISTED}/dpus", 503, "ServiceUnavailable", times=1)
    (news,) = heard(server, "DPUNode", 5, mark(20))
    assert isinstance(news, WatchFailed)
    assert version(news) == "20", "the event comes again"


def test_no_two_kinds_watch_the_same_objects_whatever_the_number_of_blueprints():
    server = {"credential": "dpf", "namespace": NAMESPACE}
    plain = {**server, "image": "http://127.0.0.1/a.bfb", "flavor": "f"}
    configs = (
        Dpf.Config(**plain, **EVERYTHING),
        DpfImage.Config(**server, images=[{"url": "http://127.0.0.1/a.bfb"}]),
        DpfCluster.Config(**server),
    )
    found = [one for kind, config in zip(KINDS, configs, strict=True) for one in kind.watched(config)]
    assert len(found) == len(set(found)) == 17
    assert set(found) == set(places(configs[0], [one.name.partition("/")[2] for one in found]))
    least = {one.name.partition("/")[2] for one in Dpf().watched(Dpf.Config(**plain))}
    assert least == {"DPU", "DPUSet", "DPUFlavor", "DPUNode", "DPUNodeMaintenance"}, "what the config does not allow"


def test_checks_go_on_where_credentials_expire():
    config = {"credential": "dpf", "image": "http://127.0.0.1/a.bfb", "flavor": "f"}
    assert Dpf().watches_health(Dpf.Config(**config))
    assert not Dpf().watches_health(Dpf.Config(**config, credentials={"namespace": "apart"}))
    assert all(isinstance(kind, Watches) for kind in KINDS)
