"""Every validator's refusal is a sentence for people, whatever is wrong."""

from __future__ import annotations

import contextlib
import importlib
import pkgutil
from collections.abc import Iterator
from typing import Any

import pytest
import typer
from django import forms
from django.contrib import admin
from paramiko.ssh_exception import NoValidConnectionsError
from pydantic import BaseModel, ValidationError
from typer.main import get_command
from typer.testing import CliRunner

import leases.admin
from blueprints import registry
from blueprints.amounts import Amounts, amount, shortfall
from drydock.cli.program import app
from drydock.cli.toolkit import options
from drydock.cli.toolkit.exits import refusal
from drydock.core.errors import InvalidRequest, Problem
from interfaces.errors import failed_connection
from leases.rest import bodies, queries
from leases.validation.requests import LeaseRequest, invalid

WRONG: tuple[Any, ...] = (
    None, True, "", " ", "mine", "\0", "x" * 5000, "a/../b;c", -1, 0, 1e300, 3.5, 10**30, [], [1], [""], {}, {"a": 1},
    {"": None}, b"x",
)  # fmt: skip
WRONG_WORDS = (
    "", " ", "mine", "x" * 5000, "a/../b;c", "-1", "0", "1e300", "3.5", str(10**30), "[]", "{}", "{", "1h1",
    "2030-13-99",
)  # fmt: skip
UNWANTED = (
    "should",
    "is no ",
    "is known",
    "not known here",
    "Input",
    " millicores",
    "pattern",
    "^[",
    "validation error",
)


def models() -> list[type[BaseModel]]:
    found: list[type[BaseModel]] = [LeaseRequest]
    for module in (bodies, queries):
        found += [
            one
            for one in vars(module).values()
            if isinstance(one, type) and issubclass(one, BaseModel) and one is not BaseModel
        ]
    for name in registry.names():
        kind = registry.kind(name)
        found += [kind.Config, kind.Requirements, kind.Attributes]
    return sorted(set(found), key=lambda one: (one.__module__, one.__qualname__))


def _problems(model: type[BaseModel], name: str, value: Any) -> tuple[Problem, ...]:
    try:
        model.model_validate({name: value})
    except ValidationError as error:
        return invalid(error, model=model).problems
    except InvalidRequest as error:
        return error.problems
    return ()


@pytest.mark.parametrize("model", models(), ids=lambda one: f"{one.__module__}.{one.__qualname__}")
def test_no_wrong_value_of_any_field_is_answered_in_a_librarys_words(model):
    odd = []
    for name in (*model.model_fields, "usr"):
        for value in WRONG:
            for problem in _problems(model, name, value):
                if any(word in problem.message for word in UNWANTED) or len(problem.message) > 600:
                    odd.append(f"{name}={value!r:.40}: {problem.field}: {problem.message}")
    assert not odd, "\n".join(sorted(set(odd))[:40])


def test_an_unknown_field_names_those_that_are_known():
    with pytest.raises(ValidationError) as found:
        bodies.Extension.model_validate({"usr": 1})
    (problem,) = invalid(found.value, model=bodies.Extension).problems
    assert (problem.field, problem.message) == ("usr", "Unknown field 'usr'. Known: ttl, until.")


def _commands(group: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    for name, command in group.commands.items():
        if hasattr(command, "commands"):
            yield from _commands(command, (*path, name))
        else:
            yield (*path, name), command


COMMANDS = dict(_commands(get_command(app)))
USAGE = typer.BadParameter.__mro__[1]


def _refused(command: Any, path: tuple[str, ...], words: list[str]) -> str:
    """Parse the words, without running the command: what is said, or an empty text where they are taken."""
    try:
        command.make_context(" ".join(path), words)
    except typer.BadParameter as error:
        error.message = refusal(error)
        return error.format_message()
    except USAGE as error:  # the program ends with 2 then
        return error.format_message()
    except typer.Exit:
        pass
    return ""


@pytest.mark.parametrize("path", COMMANDS, ids=" ".join)
def test_no_wrong_option_of_a_command_is_answered_in_a_librarys_words(path):
    command, odd = COMMANDS[path], []
    for option in command.params:
        for value in WRONG_WORDS:
            if option.param_type_name == "argument":
                words = [value] if not value.startswith("-") else ["--", value]
            elif option.is_flag:
                words = [f"{option.opts[0]}={value}"]
            else:
                words = [option.opts[0], value]
            said = _refused(command, path, words)
            if any(word in said for word in UNWANTED) or len(said) > 6000:
                odd.append(f"{words!r:.80}: {said}")
    assert not odd, "\n".join(sorted(set(odd))[:40])
    assert "No such option: --usr" in _refused(command, path, ["--usr"])


def test_an_option_that_is_not_a_number_says_what_was_given_and_what_is_allowed():
    run = CliRunner().invoke(app, ["offers", "--limit", "mine"])
    assert run.exit_code == 2
    assert "'mine' must be a whole number." in " ".join(run.output.split())
    run = CliRunner().invoke(app, ["offers", "--limit", "0"])
    assert "'0' must be at least 1." in " ".join(run.output.split())


@pytest.mark.parametrize("read", [options.moment, options.document])
def test_what_commands_read_themselves_is_refused_in_words_for_people(read):
    refused = []
    for value in WRONG_WORDS:
        with contextlib.suppress(OSError):
            try:
                read(value)
            except InvalidRequest as error:
                refused += [(problem.field, problem.message) for problem in error.problems] or [("", error.message)]
    assert refused
    assert not [said for _, said in refused if any(word in said for word in UNWANTED)], refused


@pytest.mark.parametrize("read", [options.words, options.variables, options.values])
def test_names_with_values_are_refused_in_words_for_people(read):
    refused = []
    for value in (*WRONG_WORDS, "=", "=x", "a=" + "y" * 9000, "a={", "a=[1"):
        try:
            read([value]) if read is options.variables else read([value], "fields")
        except InvalidRequest as error:
            refused += [error.message, error.hint]
    assert refused
    assert not [said for said in refused if any(word in said for word in UNWANTED)], refused


def _forms() -> list[type[forms.BaseForm]]:
    """Every form of the console's own modules, and the form of every model that the console shows."""
    found: set[type[forms.BaseForm]] = set()
    for module in pkgutil.walk_packages(leases.admin.__path__, "leases.admin."):
        for one in vars(importlib.import_module(module.name)).values():
            if isinstance(one, type) and issubclass(one, forms.BaseForm) and one.__module__.startswith("leases."):
                found.add(one)
    return sorted(found, key=lambda one: (one.__module__, one.__qualname__))


def _changes(page: Any, request: Any) -> bool:
    return bool(page.has_add_permission(request) or page.has_change_permission(request))


def _complaints(form: forms.BaseForm, name: str) -> list[str]:
    try:
        return [str(said) for said in form.errors.get(name, ())]
    except InvalidRequest as error:
        return [problem.message for problem in error.problems]


@pytest.mark.django_db
def test_no_wrong_value_of_a_form_is_answered_in_a_librarys_words(admin_user, rf):
    request = rf.get("/")
    request.user = admin_user
    made = [(form.__name__, form) for form in _forms() if not issubclass(form, forms.ModelForm)]
    made += [
        (model.__name__, page.get_form(request))
        for model, page in admin.site._registry.items()
        if _changes(page, request)
    ]
    odd, asked = [], 0
    for label, form in made:
        for name in form.base_fields:
            for value in WRONG_WORDS:
                said = _complaints(form({name: value}), name)
                asked += bool(said)
                odd += [
                    f"{label}.{name}={value!r:.40}: {one}"
                    for one in said if any(word in one for word in UNWANTED)
                ]  # fmt: skip
    assert asked > 100
    assert not odd, "\n".join(sorted(set(odd))[:40])


@pytest.mark.parametrize(
    ("name", "number", "bare", "said"),
    [
        ("cpu_millicores", 10_000_000, False, "10000 vCPUs"), ("cpu_millicores", 1000, False, "1 vCPU"),
        ("cpu_millicores", 500, True, "0.5"), ("ram_mib", 4096, False, "4 GiB of RAM"),
        ("disk_mib", 512, True, "512 MiB"), ("slots", 1, False, "1 slot"), ("leases", 3, False, "3 leases"),
        ("gpu", 2, False, "2 gpu"),
    ],
)  # fmt: skip
def test_amounts_are_said_in_the_units_of_people(name, number, bare, said):
    assert amount(name, number, bare=bare) == said


def test_a_shortage_says_what_is_asked_and_what_is_there():
    short = Amounts(cpu_millicores=10_000_000).shortage(Amounts(cpu_millicores=2000))
    assert shortfall(short) == "10000 vCPUs requested; at most 2 available"


def test_a_failed_connection_says_why_and_where():
    refused = ConnectionRefusedError(111, "Connection refused")
    said = NoValidConnectionsError({("127.0.0.2", 2201): refused})
    assert failed_connection(said, "box", 2201) == "connection refused (127.0.0.2:2201)"
    assert failed_connection(refused, "::1", 22) == "connection refused ([::1]:22)"
    assert failed_connection(OSError("no route."), "box", 22) == "no route (box:22)"
