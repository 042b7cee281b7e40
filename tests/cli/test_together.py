"""`drydock lease --with`: what the option stands for, and devices whose variables the command gets."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from drydock.cli.toolkit import together
from drydock.core.errors import InvalidRequest


def test_the_option_stands_for_requests_with_the_times_of_the_first():
    given = {"type": "host", "ttl": "2h", "name": "mine", "exclusive": True}
    words = ["accelerator:class=gpu,memory_mib=40000,count=2", "accelerator", "storage:slots=3,exclusive=true"]
    assert together.companions(given, words, 1) == [
        {"ttl": "2h", "type": "accelerator", "count": 2, "requirements": {"class": "gpu", "memory_mib": 40000}},
        {"ttl": "2h", "type": "accelerator"},
        {"ttl": "2h", "type": "storage", "slots": 3, "exclusive": True},
    ]
    assert together.companions(given, None, 3) == []


@pytest.mark.parametrize("word", ["accelerator:gpu", ":class=gpu", "", "accelerator:class=gpu,"])
def test_a_malformed_option_says_how_to_write_it(word):
    with pytest.raises(InvalidRequest) as refused:
        together.companions({"type": "host"}, [word], 1)
    assert refused.value.field == "with"
    assert "--with accelerator:class=gpu,count=2" in refused.value.hint


def test_a_count_beside_it_is_refused():
    with pytest.raises(InvalidRequest) as refused:
        together.companions({"type": "host"}, ["accelerator"], 2)
    assert "--count" in refused.value.message


def test_they_share_a_host_unless_something_else_is_wanted():
    assert together.rule("", "", "", [{}], 1) == {"same": "host"}
    assert together.rule("parent", "", "", [{}], 1) == {"same": "parent"}
    assert together.rule("whole", "", "", [{}], 1) == {"same": "whole"}
    assert together.rule("", "resource", "prefer", [], 2) == {"different": "resource", "near": "prefer"}


def test_one_lease_cannot_be_near_others():
    with pytest.raises(InvalidRequest) as refused:
        together.rule("", "", "require", [], 1)
    assert (refused.value.field, refused.value.hint) == ("near", "Request them with --with or --count.")


def test_variables_of_several_devices_are_joined():
    infos: Any = [
        SimpleNamespace(facts={}),
        SimpleNamespace(facts={"environment": {"CUDA_VISIBLE_DEVICES": "GPU-1", "ONE": "x"}}),
        SimpleNamespace(facts={"environment": {"CUDA_VISIBLE_DEVICES": "GPU-2"}}),
    ]
    assert together.variables(infos) == {"CUDA_VISIBLE_DEVICES": "GPU-1,GPU-2", "ONE": "x"}


def test_a_command_runs_once_on_the_first_lease_of_a_group(cli, host):
    done = cli("lease", host, "--with", f"{host}:slots=1", "--same", "resource", "--", "echo", "once")
    assert done.stdout == "once\n"
    assert cli.json("leases") == []


def test_near_is_one_host_and_excludes_other_rules(cli, host):
    done = cli("lease", host, "--with", f"{host}:slots=1", "--near", "prefer", "--", "echo", "once")
    assert done.stdout == "once\n"
    for given in (("--near", "require"), ("--near", "closer", "--count", "2")):
        assert "near" in cli("lease", host, *given, "--keep", code=2).stderr
    said = cli("lease", host, "--count", "2", "--near", "prefer", "--same", "parent", "--keep", code=2).stderr
    assert "near cannot be combined with same=parent" in said
    assert cli.json("leases") == []


def test_a_group_is_explained_by_hosts_and_blueprints(cli, host):
    words = ("explain", host, "--with", f"{host}:slots=1")
    found = cli.json(*words)
    # An earlier test of the same installation may have left a warm host.
    assert found["outcome"] in ("build", "granted")
    assert [one["answer"] for one in found["verdicts"]] == [found["outcome"]]
    said = cli(*words).stdout
    assert ("would build what is missing" in said) == (found["outcome"] == "build")
    assert "near needs several leases" in cli("explain", host, "--near", "prefer", code=2).stderr


def test_an_unknown_requirement_is_named(cli, host):
    said = cli("lease", host, "--with", f"{host}:colour=red", "--keep", code=2).stderr
    assert "colour" in said
