"""Plug-ins: a broken or doubled one is left out and reported."""

from __future__ import annotations

import importlib.metadata

from blueprints import registry
from drydock.core import plugins


def entries(*pairs):
    return lambda group: [importlib.metadata.EntryPoint(name, value, group) for name, value in pairs]


def test_good_ones_are_loaded_and_bad_ones_reported(monkeypatch):
    found = entries(("good", "json:dumps"), ("gone", "no_such_module:x"), ("lost", "json:no_such_name"))
    monkeypatch.setattr(plugins.importlib.metadata, "entry_points", found)
    loaded = plugins.load_plugins("group")
    assert list(loaded.objects) == ["good"]
    assert {problem.name for problem in loaded.problems} == {"gone", "lost"}
    assert "no_such_module" in loaded.problems[0].message


def test_two_of_one_name_are_both_left_out(monkeypatch):
    found = entries(("same", "json:dumps"), ("same", "json:loads"), ("other", "json:loads"), ("other", "json:loads"))
    monkeypatch.setattr(plugins.importlib.metadata, "entry_points", found)
    loaded = plugins.load_plugins("group")
    assert list(loaded.objects) == ["other"]
    assert [problem.name for problem in loaded.problems] == ["same", "same"]


def test_kinds_are_read_once_until_a_package_is_added(monkeypatch, tmp_path):
    reads = []

    def read(group):
        reads.append(group)
        return [importlib.metadata.EntryPoint("sand", "sand:Castle", group)]

    monkeypatch.setattr(registry, "entry_points", read)
    monkeypatch.syspath_prepend(tmp_path)
    registry.forget()
    try:
        assert "sand" in registry.names()
        assert registry.names() == registry.names()
        assert len(reads) == 1
        (tmp_path / "another").mkdir()
        registry.names()
        assert len(reads) == 2
    finally:
        monkeypatch.undo()
        registry.forget()
