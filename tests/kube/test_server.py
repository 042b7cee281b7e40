"""The client on two real API servers, with the CRDs of DPF 24.10 and 26.4, as an account with the least role."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from blueprints.kube import (
    CONFIG_MAP,
    DPF_GROUPS,
    MANAGE,
    SECRET,
    ApiUnavailable,
    Bookmark,
    Changed,
    Cluster,
    CredentialRefused,
    Dialect,
    FieldsDropped,
    KubeError,
    Listed,
    ManagerConflict,
    ObjectAbsent,
    ObjectChanged,
    ObjectForeign,
    ObjectRefused,
    ObjectType,
    Pause,
    RequestForbidden,
    Rule,
    ensure,
    follow,
    has_labels,
    labelled,
    read_dialect,
)
from drydock.core import clock
from tests.agent.captured import CAPTURES, expected, needed
from tests.kube.apiserver import Server, start
from tests.kube.servers import Lab, lab, server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600), needed]
GROUP = "provisioning.dpu.nvidia.com"
BFB = ObjectType(group=GROUP, version="v1alpha1", kind="BFB", plural="bfbs")
SET = ObjectType(group=GROUP, version="v1alpha1", kind="DPUSet", plural="dpusets")
RULES = [Rule(type=one, verbs=MANAGE) for one in (BFB, SET)] + [Rule(type=SECRET, verbs=("create", "get", "delete"))]
PROOF = {"drydock-installation": "abc", "drydock-proof": "f" * 40}


@pytest.fixture(scope="module", params=["24.10", "26.4"])
def peer(request: pytest.FixtureRequest) -> Server:
    return server(request.param)


@pytest.fixture
def there(peer: Server) -> Iterator[Lab]:
    with lab(peer, RULES) as found:
        yield found


@pytest.fixture
def cluster(there: Lab) -> Iterator[Cluster]:
    with there.connect() as opened:
        yield opened


@pytest.fixture(scope="module")
def dialect(peer: Server) -> Dialect:
    with peer.admin() as admin:
        return read_dialect(admin)


def bfb(namespace: str, name: str = "one", url: str = "http://198.18.0.1/a.bfb") -> dict[str, Any]:
    return labelled(BFB.manifest(name, namespace, spec={"url": url}), PROOF)


def test_the_dialect_of_a_server_is_that_of_its_crds(dialect: Dialect, peer: Server):
    new = peer.version == "26.4"
    assert dialect.has("DPUSet", "spec.dpuNodeSelector") is new
    assert dialect.has("DPUSet", "spec.nodeSelector") is not new
    assert dialect.has("DPUNode") is new
    assert dialect.required("DPUSet", "spec.strategy") is new
    assert dialect.has("Node", "metadata.labels")
    assert {one.type.group for one in dialect.types} <= {"", *DPF_GROUPS}


@pytest.mark.parametrize("file", sorted(expected().get("dpf_examples", {}).get("files", {})) or ["none"])
def test_the_server_and_its_dialect_find_the_same_wrong(peer: Server, dialect: Dialect, there: Lab, file: str):
    facts = expected()["dpf_examples"]
    wanted = facts["files"][file]["verdicts"][f"v{peer.version}"]
    wanted = wanted.get("substituted") or wanted["raw"]
    text = (CAPTURES / file).read_text()
    for word, instead in facts["substitution"].items():
        text = text.replace(word, instead)
    manifest = next(one for one in yaml.safe_load_all(text) if one)
    manifest["metadata"]["namespace"] = there.namespace
    found = dialect.missing(manifest)
    assert list(found.unknown) == wanted["unknown_fields"]
    assert list(found.missing) == wanted["missing_required"]
    assert [one.field for one in found.invalid] == wanted["invalid"]
    type_ = dialect.type(manifest["kind"])
    with peer.admin() as admin:
        if wanted["lenient_http"] == 422:
            with pytest.raises(ObjectRefused):
                admin.create(type_, manifest)
        elif wanted["unknown_fields"]:
            with pytest.raises(FieldsDropped) as caught:
                admin.create(type_, manifest)
            assert sorted(caught.value.paths) == wanted["unknown_fields"]
        else:
            assert admin.create(type_, manifest).uid
            return
        assert admin.find(type_, manifest["metadata"]["name"], there.namespace) is None


def test_what_is_created_is_adopted_by_its_proof_only(cluster: Cluster, there: Lab):
    first = ensure(cluster, BFB, bfb(there.namespace), proves=has_labels(PROOF))
    assert ensure(cluster, BFB, bfb(there.namespace), proves=has_labels(PROOF)).uid == first.uid
    with pytest.raises(ObjectForeign):
        ensure(cluster, BFB, bfb(there.namespace), proves=has_labels({"drydock-proof": "0" * 40}))


def test_changes_are_applied_and_fields_of_others_are_kept(cluster: Cluster, there: Lab, peer: Server):
    made = cluster.create(BFB, bfb(there.namespace))
    manifest = copy.deepcopy(bfb(there.namespace))
    manifest["metadata"]["labels"]["size"] = "small"
    applied = cluster.apply(BFB, manifest, current=made)
    assert applied.labels["size"] == "small"
    with peer.admin() as admin:
        body = {"metadata": {"labels": {"size": "big", "theirs": "yes"}}}
        admin._changed(
            admin._request("patch", BFB, "one", there.namespace), "PATCH", BFB.path(there.namespace, "one"),
            [("fieldManager", "somebody")], body, "application/merge-patch+json",
        )  # fmt: skip
    with pytest.raises(ManagerConflict) as caught:
        cluster.apply(BFB, manifest, current=cluster.get(BFB, "one", there.namespace))
    assert [one.name for one in caught.value.owners] == ["somebody"]
    assert cluster.get(BFB, "one", there.namespace).labels["size"] == "big"
    after = cluster.apply(BFB, bfb(there.namespace), current=cluster.get(BFB, "one", there.namespace))
    assert after.labels == {**PROOF, "size": "big", "theirs": "yes"}


def test_nothing_that_was_deleted_is_created_again(cluster: Cluster, there: Lab):
    made = cluster.create(BFB, bfb(there.namespace))
    assert cluster.delete(BFB, "one", there.namespace, uid=made.uid) is None
    with pytest.raises(ObjectAbsent):
        cluster.apply(BFB, bfb(there.namespace), current=made)
    assert cluster.find(BFB, "one", there.namespace) is None
    again = cluster.create(BFB, bfb(there.namespace))
    with pytest.raises(KubeError):
        cluster.apply(BFB, bfb(there.namespace), current=made)
    assert cluster.delete(BFB, "one", there.namespace, uid=made.uid) is None
    assert cluster.get(BFB, "one", there.namespace).uid == again.uid


def test_a_finalizer_delays_the_deletion_and_is_not_touched(cluster: Cluster, there: Lab, peer: Server):
    manifest = bfb(there.namespace)
    manifest["metadata"]["finalizers"] = ["test.example.com/held"]
    made = cluster.create(BFB, manifest)
    for _ in range(2):
        left = cluster.delete(BFB, "one", there.namespace, uid=made.uid)
        assert left is not None
        assert (left.deleting, left.phase, left.finalizers) == (True, "Deleting", ("test.example.com/held",))
    with pytest.raises(ObjectChanged, match="held"):
        ensure(cluster, BFB, manifest, proves=has_labels(PROOF))
    with pytest.raises(ObjectChanged):
        cluster.apply(BFB, manifest, current=left)
    with peer.admin() as admin:
        operations = [{"op": "remove", "path": "/metadata/finalizers"}]
        request, path = admin._request("patch", BFB, "one", there.namespace), BFB.path(there.namespace, "one")
        admin._changed(request, "PATCH", path, [], operations, "application/json-patch+json")
    assert cluster.delete(BFB, "one", there.namespace, uid=made.uid) is None


def test_annotations_of_an_object_of_others_are_set_and_removed(cluster: Cluster, there: Lab):
    made = cluster.create(BFB, bfb(there.namespace))
    marked = cluster.annotate(BFB, made, {"test.example.com/wait": "false"})
    assert marked.annotations == {"test.example.com/wait": "false"}
    with pytest.raises(ObjectChanged):
        cluster.annotate(BFB, made, {"test.example.com/wait": None})
    assert not cluster.annotate(BFB, marked, {"test.example.com/wait": None}).annotations


def test_the_account_may_do_what_its_role_says_and_nothing_else(cluster: Cluster, there: Lab):
    secret = SECRET.manifest("login", there.namespace, stringData={"password": "hunter2"})
    assert cluster.create(SECRET, secret).name == "login"
    with pytest.raises(RequestForbidden) as caught:
        cluster.list(SECRET, there.namespace)
    assert (caught.value.verb, caught.value.resource) == ("list", "secrets")
    with pytest.raises(RequestForbidden):
        cluster.get(CONFIG_MAP, "x", there.namespace)
    with pytest.raises(RequestForbidden):
        cluster.list(BFB, "default")


def test_a_wrong_token_is_refused(there: Lab):
    access = there.credential.access()
    from blueprints.kube import Credential, connect

    wrong = Credential(server=access.server, ca=access.ca, token="wrong")
    with connect(wrong, deadline=60) as cluster, pytest.raises(CredentialRefused):
        cluster.get(BFB, "one", there.namespace)


def test_a_watch_follows_a_listing_in_pages_and_resumes(cluster: Cluster, there: Lab):
    for name in ("a", "b", "c"):
        cluster.create(BFB, bfb(there.namespace, name))
    assert len(list(cluster.pages(BFB, there.namespace, limit=2))) == 2
    with there.connect() as other:
        news = follow(other, BFB, there.namespace)
        listed = next(news)
        assert isinstance(listed, Listed)
        assert [one.name for one in listed.objects] == ["a", "b", "c"]
        cluster.create(BFB, bfb(there.namespace, "d"))
        added = next(news)
        assert isinstance(added, Changed)
        assert (added.object.name, added.deleted) == ("d", False)
        news.close()
    uid = cluster.get(BFB, "a", there.namespace).uid
    cluster.delete(BFB, "a", there.namespace, uid=uid)
    with there.connect() as other:
        news = follow(other, BFB, there.namespace, bookmark=added.bookmark)
        gone = next(news)
        assert isinstance(gone, Changed)
        assert (gone.object.uid, gone.deleted) == (uid, True)
        news.close()


def test_a_version_that_the_server_no_longer_has_means_list_again(cluster: Cluster, there: Lab):
    cluster.create(BFB, bfb(there.namespace))
    old = Bookmark(resource_version="1", listed_at=clock.now().timestamp())
    news = follow(cluster, BFB, there.namespace, bookmark=old)
    found = next(news)
    news.close()
    assert isinstance(found, Listed | Changed)
    assert found.bookmark is not None
    assert found.bookmark.resource_version != "1"


def test_a_server_that_is_stopped_and_started_again_loses_nothing(tmp_path_factory: pytest.TempPathFactory):
    """On a server of its own, because others use the shared ones."""
    own = start("24.10", tmp_path_factory.mktemp("kube") / "server")
    try:
        with lab(own, RULES) as there, there.connect() as cluster, there.connect(deadline=5) as other:
            cluster.create(BFB, bfb(there.namespace, "before"))
            news = follow(other, BFB, there.namespace)
            assert isinstance(next(news), Listed)
            own.stop()
            down = list(itertools.islice(news, 2))
            assert all(isinstance(one, Pause) and isinstance(one.error, ApiUnavailable) for one in down)
            with pytest.raises(ApiUnavailable):
                cluster.get(BFB, "before", there.namespace)
            own.resume()
            cluster.create(BFB, bfb(there.namespace, "after"))
            found = next(one for one in news if not isinstance(one, Pause))
            names = [found.object.name] if isinstance(found, Changed) else [one.name for one in found.objects]  # type: ignore[union-attr]
            assert "after" in names
            news.close()
    finally:
        own.stop()
