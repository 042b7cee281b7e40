"""A container as a command: what podman is told, and what is left when it cannot be told anything."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from interfaces.command import JobSpec, container
from tests.interfaces.conftest import Peer
from tests.interfaces.test_jobs import over

STAND_IN = """#!/bin/sh
# Stands in for podman: the sub-commands that Drydock uses, an image being a folder of programs.
echo "$*" >>{log}
case $1 in
  rm) [ -f {state}/$6 ] && kill -KILL -"$(cat {state}/$6)" 2>/dev/null; rm -f {state}/$6; exit 0;;
  image) [ -e {state}/pulled ];;
  pull) case $3 in *missing*) echo "manifest unknown" >&2; exit 125;; esac; : >{state}/pulled;;
  run)
    name=$3; shift 3
    while :; do case $1 in --env) shift 2;; --workdir|--label) shift 2;; --*) shift;; *) break;; esac; done
    shift
    echo $$ >{state}/$name
    "$@"; code=$?
    rm -f {state}/$name
    exit $code;;
esac
"""


def stand_in(folder: Path) -> str:
    """A program that answers as podman does, in a folder of its own; its path. It logs what it was asked."""
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o777)
    program = folder / "podman"
    program.write_text(STAND_IN.format(log=folder / "log", state=folder))
    program.chmod(0o755)
    (folder / "log").touch()
    (folder / "log").chmod(0o666)
    return str(program)


def test_the_words_are_exact_and_hold_no_value() -> None:
    words = container.words(
        lease="dd-1-l5", image="docker.io/library/alpine:3", command=["sh", "-c", "echo $A"], variables=["B", "A"],
        cwd="/srv",
    )  # fmt: skip
    assert words[:2] == ["/bin/sh", "-c"]
    assert words[3:] == [
        "sh", "podman", "dd-1-l5", "docker.io/library/alpine:3", "--rm", "--init", "--pull=never", "--log-driver=none",
        "--label", "drydock.lease=dd-1-l5", "--env", "A", "--env", "B", "--workdir", "/srv",
        "docker.io/library/alpine:3", "sh", "-c", "echo $A",
    ]  # fmt: skip


@pytest.mark.parametrize(("command", "last"), [("a | b", ["/bin/sh", "-c", "a | b"]), ([], ["x"]), ("", ["x"])])
def test_a_line_is_for_the_containers_shell_and_nothing_is_what_the_image_says(command, last) -> None:
    assert container.words(lease="l", image="x", command=command)[-len(last) :] == last


@pytest.mark.parametrize(
    "name",
    [
        "alpine", "alpine:3.20", "docker.io/library/alpine", "localhost:5000/a/b-c_d:latest",
        "quay.io/x/y@sha256:" + 64 * "a",
    ],
)  # fmt: skip
def test_names_of_images(name) -> None:
    assert container.is_image(name)


@pytest.mark.parametrize(
    "name",
    [
        "",
        "-x",
        "--privileged",
        "a b",
        "Upper/Case",
        "a//b",
        "x:",
        "x@sha256:1",
        "$(id)",
        "a" * 300,
        "docker-daemon:private",
        "containers-storage:x",
        "oci-archive:x",
        "dir:x",
    ],
)
def test_what_names_no_image(name) -> None:
    assert not container.is_image(name)


@pytest.mark.parametrize(("name", "is_its"), [
    ("PATH", True), ("HOME", True), ("XDG_RUNTIME_DIR", True), ("CONTAINER_HOST", True), ("CONTAINERS_CONF", True),
    ("LD_PRELOAD", True), ("DRYDOCK_JOB", True), ("TOKEN", False), ("MY_PATH", False), ("CONTAINERIZED", False),
    ("GCONV_PATH", True), ("BASH_ENV", True), ("SHELLOPTS", True), ("OPENSSL_CONF", True), ("GIO_MODULE_DIR", True),
    ("LANG", False), ("TZ", False), ("HTTP_PROXY", False),
])  # fmt: skip
def test_variables_that_lead_podman_astray(name, is_its) -> None:
    assert container.is_podmans(name) is is_its


@pytest.fixture
def podman(tmp_path_factory, monkeypatch):
    """The stand-in, for the real one pulls images over a network that no test has."""
    folder = Path("/tmp") / f"dd-podman-{os.getpid()}"
    monkeypatch.setattr(container, "PODMAN", stand_in(folder))
    yield folder
    for one in folder.iterdir():
        one.unlink()
    folder.rmdir()


def run(peer: Peer, **given):
    variables = given.pop("env", {})
    words = container.words(lease="dd-x-l1", variables=variables, **given)
    peer.command.jobs.start(JobSpec(id="c", words=words, env=variables))
    over(peer.command.jobs, "c")
    return peer.command.jobs.remains("c", 1000, 1000)


def test_a_container_is_pulled_and_run_with_its_variables(peer: Peer, podman) -> None:
    left = run(peer, image="alpine", command="echo $SECRET; exit 4", env={"SECRET": "it's"})
    assert (left.job.exit_code, left.head, left.cause) == (4, b"it's\n", "")
    asked = (podman / "log").read_text().splitlines()
    assert [line.split()[0] for line in asked] == ["rm", "image", "pull", "run"]
    assert "it's" not in "\n".join(asked)


def test_an_image_that_cannot_be_pulled_says_so(peer: Peer, podman) -> None:
    left = run(peer, image="missing")
    assert (left.job.exit_code, left.cause) == (125, "image")
    assert b"manifest unknown" in left.head


def test_a_host_without_podman_says_so(peer: Peer, monkeypatch) -> None:
    monkeypatch.setattr(container, "PODMAN", "no-such-podman")
    left = run(peer, image="alpine")
    assert (left.job.exit_code, left.cause) == (125, "podman")
    assert peer.command.check(container.removal("dd-x-l1")).ok


def test_a_container_ends_and_goes(peer: Peer, podman) -> None:
    words = container.words(lease="dd-x-l1", image="alpine", command="sleep 300")
    peer.command.jobs.start(JobSpec(id="c", words=words))
    while not (podman / "dd-x-l1").exists():
        time.sleep(0.05)
    peer.command.jobs.cancel("c")
    peer.command.check(container.removal("dd-x-l1"))
    assert not (podman / "dd-x-l1").exists()
