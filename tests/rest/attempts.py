"""Attempts that must be refused, and what they send."""

from __future__ import annotations

import io
import tarfile

from django.apps import apps

from leases.models import Lease

METACHARACTERS = ["printf", "%s", "$(touch /tmp/hit); `id` | & > x < y \n '\"\\ * ? ~ # ü", "", "-rf", "--"]
MINE = ("blueprints", "leases", "rest", "auth")


def counts():
    """How many rows of ours there are, and how leases stand."""
    found = {model.__name__: model.objects.count() for app in MINE for model in apps.get_app_config(app).get_models()}
    return found | {"states": list(Lease.objects.order_by("id").values_list("id", "state", "until", "name"))}


class Attempts:
    """Tries what must be refused, and says at the end what was not, or not as it should be."""

    def __init__(self, api):
        self.api, self.wrong, self.before = api, [], counts()

    def __call__(self, method, path, status, field=None, body=None, **given):
        answer = self.api.raw(method, path, body, **given)
        sent = f"{method} {path} {str(given.get('content', body))[:80]!r}"
        if answer.status_code != status or answer.headers["Content-Type"] != "application/problem+json":
            self.wrong.append(f"{sent}: {answer.status_code}, not {status}: {answer.content[:200]!r}")
            return answer
        said = answer.json()
        if said["status"] != status or not said["detail"] or said["type"] != f"urn:drydock:problem:{said['code']}":
            self.wrong.append(f"{sent}: {said}")
        if field is not None and field not in [one["field"] for one in said["errors"]] + [said["field"]]:
            self.wrong.append(f"{sent}: it names {said['field']!r}, not {field!r}: {said['detail']}")
        return answer

    def done(self):
        assert not self.wrong, "\n".join(self.wrong)
        assert counts() == self.before


def archive(*entries):
    """A tar archive of (name, content) or TarInfo."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as made:
        for one in entries:
            info = one if isinstance(one, tarfile.TarInfo) else tarfile.TarInfo(one[0])
            content = b"" if isinstance(one, tarfile.TarInfo) else one[1]
            info.size = len(content)
            made.addfile(info, io.BytesIO(content))
    return out.getvalue()


def entry(name, kind, target=""):
    info = tarfile.TarInfo(name)
    info.type, info.linkname = kind, target
    return info
