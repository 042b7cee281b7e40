"""Model fields whose values are encrypted in the database.

Listing rows decrypts nothing: a value is decrypted only when its attribute is read, which raises `Undecryptable` if the
key is unknown. A row that is saved without reading the attribute keeps its ciphertext.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from django.core.exceptions import FieldError, ImproperlyConfigured
from django.core.serializers.json import DjangoJSONEncoder
from django.db import models
from django.db.models.query_utils import DeferredAttribute

from drydock.core.crypto import Ciphertext, decrypt, encrypt, looks_sealed

# Django's own classes take no parameters at run time; its stubs do.
if TYPE_CHECKING:
    _TextField = models.TextField[Any, Any]
else:
    _TextField = models.TextField


class _OpenedOnAccess(DeferredAttribute):
    """Decrypts the stored text when the attribute is first read."""

    def __get__(self, instance: Any, cls: Any = None) -> Any:
        value = super().__get__(instance, cls)
        if isinstance(value, Ciphertext):
            value = instance.__dict__[self.field.attname] = self.field.opened(value)  # type: ignore[attr-defined]
        return value

    def __set__(self, instance: Any, value: Any) -> None:
        # With this the descriptor goes before the instance's own attributes.
        instance.__dict__[self.field.attname] = value


class EncryptedTextField(_TextField):
    """An encrypted text. It cannot be searched, compared, indexed or made unique."""

    descriptor_class = _OpenedOnAccess

    def __init__(self, *args: Any, **options: Any) -> None:
        for refused in ("unique", "db_index", "primary_key"):
            if options.get(refused):
                raise ImproperlyConfigured(
                    f"{type(self).__name__} cannot have {refused}, because equal values differ when encrypted."
                )
        super().__init__(*args, **options)

    def opened(self, sealed: str) -> Any:
        """Return the value of a ciphertext."""
        return decrypt(sealed)

    def sealed(self, value: Any) -> Ciphertext:
        """Return the ciphertext of a value."""
        return encrypt(str(value))

    def from_db_value(self, value: str | None, *_: Any) -> Ciphertext | None:
        """Return the stored value, still encrypted."""
        return None if value is None else Ciphertext(value)

    def to_python(self, value: Any) -> Any:
        """Return the value, as a Ciphertext if it is encrypted, as values in fixtures are."""
        return Ciphertext(value) if isinstance(value, str) and looks_sealed(value) else value

    def pre_save(self, model_instance: models.Model, add: bool) -> Any:
        """Return the attribute unchanged, without decrypting a ciphertext that was never read."""
        return model_instance.__dict__.get(self.attname)

    def get_prep_value(self, value: Any) -> str | None:
        """Return the ciphertext to store, encrypting plain text."""
        if value is None:
            return None
        return str(value if isinstance(value, Ciphertext) else self.sealed(value))

    def value_to_string(self, obj: models.Model) -> str:
        """Return ciphertext, so that fixtures contain no secrets."""
        return self.get_prep_value(obj.__dict__.get(self.attname)) or ""

    def get_lookup(self, lookup_name: str) -> Any:
        """Refuse every lookup except `isnull`."""
        if lookup_name == "isnull":
            return super().get_lookup(lookup_name)
        raise FieldError(f"{self.name} is encrypted and supports only the lookup __isnull.")


class EncryptedJSONField(EncryptedTextField):
    """A JSON value, encrypted as a whole."""

    def opened(self, sealed: str) -> Any:
        """Return the JSON value of a ciphertext."""
        return json.loads(decrypt(sealed))

    def sealed(self, value: Any) -> Ciphertext:
        """Return the ciphertext of a JSON value."""
        return encrypt(json.dumps(value, cls=DjangoJSONEncoder))
