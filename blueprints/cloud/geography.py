"""Continents of the countries in which clouds have regions, for requests that name a continent."""

from __future__ import annotations

CONTINENTS: dict[str, str] = {
    **dict.fromkeys(("US", "CA", "MX"), "NA"),
    **dict.fromkeys(("BR", "CL", "CO", "AR", "PE"), "SA"),
    **dict.fromkeys(
        ("IE", "GB", "FR", "DE", "SE", "IT", "ES", "CH", "NL", "BE", "FI", "PL", "NO", "AT", "DK", "GR", "PT", "CZ"),
        "EU",
    ),
    **dict.fromkeys(
        ("IN", "JP", "KR", "SG", "HK", "TW", "ID", "MY", "TH", "CN", "AE", "BH", "IL", "QA", "SA", "KW", "TR"), "AS"
    ),
    **dict.fromkeys(("AU", "NZ"), "OC"),
    **dict.fromkeys(("ZA", "KE", "EG", "NG"), "AF"),
}
"""ISO 3166 alpha-2 -> AF, AS, EU, NA, OC or SA (M49 of the United Nations; Turkey and the Gulf count as Asia)."""


def countries_of(continents: tuple[str, ...]) -> tuple[str, ...]:
    """The countries of these continents."""
    return tuple(country for country, continent in CONTINENTS.items() if continent in continents)
