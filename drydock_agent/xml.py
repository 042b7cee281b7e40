"""Parse the XML that tools print, without features such as entities that an attacker could exploit."""

from __future__ import annotations

import re
from xml.etree import ElementTree

_DOCTYPE = re.compile(r"<!DOCTYPE\s+[A-Za-z_][\w.-]*(\s+SYSTEM\s+\"[^\"<>\[]*\")?\s*>")

_BYTES, _ELEMENTS = 4 << 20, 200_000


class BadXml(ValueError):
    """The XML is malformed, too large or uses forbidden features. The message says which."""


def parse(text: str, root: str) -> ElementTree.Element:
    """Return the root element `root` of a document. Skips text before it, such as a warning.

    Raises BadXml for entities and other declarations, for documents that are too large, and for truncated ones.
    """
    if len(text) > _BYTES:
        raise BadXml(f"The document has more than {_BYTES >> 20} MiB")
    begin = min(
        (at for at in (text.find("<?xml"), text.find("<!DOCTYPE"), text.find(f"<{root}")) if at >= 0), default=-1
    )
    if begin < 0:
        raise BadXml(f"There is no <{root}> in it")
    # The plain DOCTYPE that nvidia-smi writes is left out. Nothing else may be declared.
    body = _DOCTYPE.sub("", text[begin:], count=1)
    if "<!DOCTYPE" in body or "<!ENTITY" in body or "<!ATTLIST" in body or "<!ELEMENT" in body:
        raise BadXml("The document has declarations, such as entities, which are refused")
    body = re.sub(r"\A<\?xml[^>]*\?>", "", body).strip()
    if body.count("<") > 2 * _ELEMENTS:
        raise BadXml(f"The document has more than {_ELEMENTS} elements")
    try:
        found = ElementTree.fromstring(body)  # noqa: S314
    except (ElementTree.ParseError, ValueError, RecursionError) as error:
        raise BadXml(f"The document is truncated or malformed: {error}") from None
    if found.tag != root:
        raise BadXml(f"The document is <{found.tag:.40}>, not <{root}>")
    return found
