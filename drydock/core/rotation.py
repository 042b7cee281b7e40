"""Rotation of the encryption key: rewriting stored secrets with the first of DRYDOCK_ENCRYPTION_KEYS.

Every encrypted field of every installed model is covered, found by introspection. Each row is written by its own
statement, so no lock outlives one update, and only if it still has the ciphertext that was read, so a secret that is
stored in the meantime is never overwritten. Rows that already use the first key are not written: an interrupted
rotation continues where it stopped when it is started again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

from django.apps import apps
from django.db import models

from drydock.core import crypto
from drydock.core.crypto import Ciphertext, Undecryptable
from drydock.core.fields import EncryptedTextField

BATCH = 200
_ATTEMPTS = 5
"""Maximum number of attempts to rewrite a row that others keep changing at the same time."""
_NAMED = 20


@dataclasses.dataclass
class Progress:
    """The progress of rotating one model."""

    model: str
    rows: int = 0
    """Number of rows read that have a secret."""
    rotated: int = 0
    """Number of rows rewritten with the first key."""
    left: int = 0
    """Number of rows that still use another key."""
    unreadable: list[str] = dataclasses.field(default_factory=list)
    """Ids of the first 20 rows that none of the keys can decrypt. They are included in `left`."""


def encrypted_models() -> dict[type[models.Model], list[str]]:
    """Return every installed model that stores secrets, with the names of its encrypted columns."""
    stored = [one for one in apps.get_models(include_auto_created=True) if one._meta.managed and not one._meta.proxy]
    return {model: names for model in stored if (names := encrypted_columns(model))}


def encrypted_columns(model: type[models.Model]) -> list[str]:
    """Return the names of the encrypted fields in a model's own table."""
    return [field.attname for field in model._meta.local_concrete_fields if isinstance(field, EncryptedTextField)]


def rotate_all(*, batch: int = BATCH, dry_run: bool = False) -> Iterator[Progress]:
    """Rotate every model in turn, yielding its progress after each batch of rows.

    With `dry_run`, nothing is written, and `left` is the number of rows that a rotation would write.
    """
    for model in encrypted_models():
        yield from rotate_model(model, batch=batch, dry_run=dry_run)


def rotate_model(model: type[models.Model], *, batch: int = BATCH, dry_run: bool = False) -> Iterator[Progress]:
    """Rotate one model, yielding its progress after each batch, at least once. See `rotate_all`."""
    names = encrypted_columns(model)
    progress = Progress(model=model._meta.label)
    holding = models.Q(*(models.Q((f"{name}__isnull", False)) for name in names), _connector=models.Q.OR)
    rows = model._base_manager.filter(holding).order_by("pk").values_list("pk", *names)
    last: Any = None
    while found := list((rows if last is None else rows.filter(pk__gt=last))[:batch]):
        for pk, *sealed in found:
            _count(progress, pk, _rotate(model, pk, dict(zip(names, sealed, strict=True)), dry_run=dry_run))
        last = found[-1][0]
        yield progress
    if last is None:
        yield progress


def _count(progress: Progress, pk: Any, outcome: str) -> None:
    progress.rows += 1
    progress.rotated += outcome == "rotated"
    progress.left += outcome in ("left", "unreadable")
    if outcome == "unreadable" and len(progress.unreadable) < _NAMED:
        progress.unreadable.append(str(pk))


def _rotate(model: type[models.Model], pk: Any, held: dict[str, Ciphertext | None], *, dry_run: bool) -> str:
    """Rewrite a row that was read. Return "current", "rotated", "left" or "unreadable"."""
    for _ in range(_ATTEMPTS):
        old = {name: value for name, value in held.items() if value is not None and not crypto.is_current(value)}
        if not old:
            return "current"
        try:
            fresh = {name: crypto.rotate(value) for name, value in old.items()}
        except Undecryptable:
            return "unreadable"
        if dry_run:
            return "left"
        if _replace(model, pk, old, fresh):
            return "rotated"
        # Somebody wrote the row since it was read: it is read anew.
        now = model._base_manager.filter(pk=pk).values_list(*held).first()
        if now is None:
            return "current"
        held = dict(zip(held, now, strict=True))
    return "left"


def _replace(model: type[models.Model], pk: Any, old: dict[str, Any], fresh: dict[str, Ciphertext]) -> int:
    """Write the row if it still has the ciphertext that was read. Return the number of rows written."""
    # Encrypted fields have no lookup that compares: here the ciphertext itself is compared.
    unchanged = [
        models.expressions.RawSQL(f'"{_column(model, name)}" = %s', [str(value)], models.BooleanField())  # noqa: S611
        for name, value in old.items()
    ]
    return model._base_manager.filter(models.Q(pk=pk), *unchanged).update(**fresh)


def _column(model: type[models.Model], name: str) -> str:
    return next(str(field.column) for field in model._meta.local_concrete_fields if field.attname == name)
