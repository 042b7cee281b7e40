"""Hostile input from the shell: a line says what was wrong and where, the exit code which sort; nothing changes."""

from __future__ import annotations

import json
import re

import pytest

pytestmark = pytest.mark.timeout(300)

ELSE = str(1 << 70)
ODD = "a\udcffb"
"""Bytes that are no UTF-8, as Python reads them from the command line."""

REFUSED = [
    (("lease", "spaceship", "--keep"), 2, "type: Resource type 'spaceship' does not exist"),
    (("lease", "x" * 10_000, "--keep"), 2, "type"),
    (("lease", "fake", "--keep", "--slots", "-1"), 2, "slots"),
    (("lease", "fake", "--keep", "--slots", ELSE), 2, "slots"),
    (("lease", "fake", "--keep", "--vcpus", "nan"), 2, "vcpus"),
    (("lease", "fake", "--keep", "--ram", "4 parsecs"), 2, "ram: '4 parsecs' is not a valid size"),
    (("lease", "fake", "--keep", "--ram", "9" * 10_000), 2, "ram"),
    (("lease", "fake", "--keep", "--ttl", "1 fortnight"), 2, "ttl"),
    (("lease", "fake", "--keep", "--ttl", "1" * 10_000), 2, "ttl"),
    (("lease", "fake", "--keep", "--until", "2001-01-01T00:00Z"), 2, "until: it is in the past"),
    (("lease", "fake", "--keep", "--until", "9999-12-31T23:59:59-12:00"), 2, "until"),
    (("lease", "fake", "--keep", "--priority", "101"), 2, "priority"),
    (("lease", "fake", "--keep", "--label", "a"), 2, "label: 'a' is not of the form KEY=VALUE"),
    (("lease", "fake", "--keep", "--label", f"a={ODD}"), 2, "labels.a"),
    (("lease", "fake", "--keep", "--name", "\x1b[31mred"), 2, "name"),
    (("lease", "fake", "--keep", "--key", "k" * 300), 2, "idempotency_key"),
    (("lease", "fake", "--keep", "-r", "wings=2"), 2, "requirements.wings"),
    (("lease", "fake", "--keep", "-r", "wings=" + "[" * 500 + "]" * 500), 2, "32 levels"),
    (("lease", "fake", "--keep", "--blueprint", "nowhere"), 2, "allowed_blueprints"),
    (("lease", "fake", "--keep", "--charge", "strangers"), 2, "charged_group"),
    (("lease", "fake", "--keep", "--wait", "soon"), 2, "wait"),
    (("lease", "fake", "--keep", "--public-key", "/dev/null/none"), 2, "public_key"),
    (("lease", "fake", "--keep", "--env", "a b=c", "--", "true"), 2, "env"),
    (("lease", "fake", "--keep", "--count", "2", "--same", "galaxy"), 2, "same"),
    (("lease", "fake", "--keep", "--owner", "nobody-known"), 2, "owner"),
    (("release", ELSE), 2, "64 bits"),
    (("release", "999999"), 3, "Lease 999999 does not exist"),
    (("release", "-1"), 2, ""),
    (("show", "one"), 3, "not a lease number or name"),
    (("extend", "999999", "1h"), 3, "Lease 999999 does not exist"),
    (("run", "999999", "--", "true"), 3, "Lease 999999 does not exist"),
    (("cp", "999999:/etc/passwd", "-"), 3, "Lease 999999 does not exist"),
    (("job", "show", ELSE), 2, "64 bits"),
    (("leases", "--label", ODD), 2, "label: The value contains the character U+DCFF"),
    (("leases", "--state", "asleep"), 2, ""),
    (("events", "--after", ELSE), 2, ""),
    (("resources", "show", "999999"), 3, "Resource 999999 does not exist"),
    (("blueprints", "add", "Bad Name", "fake"), 2, "name"),
    (("blueprints", "add", "bad\n", "fake"), 2, "name"),
    (("blueprints", "add", "new", "warp_drive"), 3, "kind: Kind 'warp_drive' does not exist"),
    (("blueprints", "add", "new", "fake", "boot_polls=-1"), 2, "config.boot_polls"),
    (("blueprints", "add", "new", "fake", "wings=2"), 2, "config.wings"),
    (("blueprints", "add", "new", "local_host", "folder=relative"), 2, "config.folder"),
    (("blueprints", "add", "new", "local_host", f"region={ODD}"), 2, "config.region"),
    (("blueprints", "add", "new", "fake", "--max", ELSE), 2, "max_resources"),
    (("blueprints", "add", "new", "fake", "--audience", "aliens"), 2, "audience"),
    (("blueprints", "add", "new", "fake", "--file", "/nonexistent"), 2, "file: /nonexistent cannot be read"),
    (("blueprints", "add", "new", "fake", "--file", "/proc/self/exe"), 2, "file"),
    (("blueprints", "add", "new", "working_copy", "url=ext::sh -c reboot"), 2, "config"),
    (("blueprints", "show", ODD), 2, "name"),
    (("credentials", "add", "bad name", "--file", "-"), 2, ""),
    (("quotas", "set", "--user", "nobody-known", "max_slots=1"), 2, ""),
    (("no-such-command",), 2, ""),
]


def test_every_mistake_is_told_in_a_line_and_changes_nothing(cli, fakes):
    fakes()
    before = _everything(cli)
    as_json = [["--json"] * (number % 4 == 0 and "--" not in words) for number, (words, _, _) in enumerate(REFUSED)]
    done = cli.each([[*words, *more] for (words, _, _), more in zip(REFUSED, as_json, strict=True)])
    wrong = [
        f"{one.args!a:.100}: {problem}"
        for one, (_, code, said) in zip(done, REFUSED, strict=True)
        if (problem := _problem(one, code, said))
    ]
    assert not wrong, "\n".join(wrong)
    assert _everything(cli) == before


def _problem(done, code: int, said: str) -> str:
    told = done.stdout + done.stderr
    if done.returncode != code:
        return f"exit code {done.returncode}, wanted {code}: {told[:300]}"
    if (
        "is a bug in Drydock" in told
        or len(told) > 6000
        or re.search(r"[\x00-\x08\x0e-\x1a\x1c-\x1f\ud800-\udfff]", told)
    ):
        return f"unfit for people: {told[:300]!a}"
    if done.stdout.startswith("{"):
        json.loads(done.stdout)
        told = told.replace('", "message": "', ": ").replace('"', "")
    return "" if " ".join(said.split()) in " ".join(told.split()) else f"lacks {said!r}: {told[:300]}"


def _everything(cli):
    looks = (("leases", "--all", "--json"), ("blueprints", "--json"), ("events", "-n", "1", "--json"))
    return [done.stdout for done in cli.each(looks)]


def test_ten_megabytes_on_standard_input_are_refused_in_a_line(cli, fakes):
    name = fakes()
    huge = json.dumps({"note": "x" * (10 << 20)})
    said = cli("blueprints", "change", name, "--file", "-", code=2, stdin=huge).stderr
    assert "larger than 256 KiB" in said
    assert len(said) < 500
    deep = '{"a":' * 50_000 + "1" + "}" * 50_000
    assert "file: " in cli("blueprints", "change", name, "--file", "-", code=2, stdin=deep).stderr


@pytest.mark.slow
def test_what_no_blueprint_can_ever_give_is_refused_with_every_verdict(cli, fakes):
    name = fakes("capacity=" + json.dumps({"slots": 2}))
    words = ("explain", "fake", "--slots", "900000", "--blueprint", name)
    assert cli.json(*words, code=6)["outcome"] == "refuse"
    assert name in cli(*words, code=6).stdout
