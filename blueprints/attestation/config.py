"""The settings for attestation of a blueprint, and the measurements that an operator registers for one host."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, model_validator

from blueprints.contract import Fields
from drydock.core.errors import InvalidRequest
from drydock_client import attestation
from drydock_client.attestation import AttestationError

TRAITS = frozenset({"tpm", "tdx"})
"""The traits that a host has only with evidence."""


_TCTI = r"^[a-z0-9]{1,20}(:[!-~]{0,200})?$"


def without_claims(traits: Iterable[str]) -> frozenset[str]:
    """Return traits without those that need evidence, because a registration is not evidence."""
    return frozenset(traits) - TRAITS


def _authorities(pem: str) -> str:
    try:
        if not attestation.load_authorities(pem.encode()):
            raise AttestationError("ca", "There are no certificates.")
    except AttestationError as error:
        raise ValueError(f"{error.what} Give the certificates in PEM format, one after the other") from None
    return pem


def _root(pem: str) -> str:
    try:
        if pem:
            attestation.root_fingerprint(pem.encode())
    except AttestationError as error:
        raise ValueError(f"{error.what} Give one certificate in PEM format") from None
    return pem


def _mr_td(digits: str) -> str:
    try:
        return attestation.mr_td_of(digits) if digits else ""
    except AttestationError as error:
        raise ValueError(error.what) from None


def _pcrs(given: dict[str, str]) -> dict[str, str]:
    try:
        read = [attestation.pcr_of(f"{number}={value}") for number, value in given.items()]
    except AttestationError as error:
        raise ValueError(error.what) from None
    return {str(number): value for number, value in read}


class TpmPolicy(Fields):
    """How the TPMs of hosts are attested."""

    ca: Annotated[str, AfterValidator(_authorities)] = Field(
        max_length=200_000,
        description="Certificates (PEM) of the authorities that issue the certificates of endorsement keys: those of "
        "the vendors of the TPMs. Each of them is trusted by itself.",
    )
    pcrs: tuple[Annotated[int, Field(ge=0, le=23)], ...] = Field(
        default=(0, 2, 7), min_length=1, max_length=24,
        description="PCRs that must not change: by default those of the firmware (0), its option ROMs (2) and Secure "
        "Boot (7).",
    )  # fmt: skip
    bank: Literal["sha256", "sha384"] = Field(default="sha256", description="Hash of the PCRs.")
    tcti: str = Field(
        default="device:/dev/tpmrm0", pattern=_TCTI,
        description="How tpm2-tools on the hosts reach their TPM (TPM2TOOLS_TCTI).",
    )  # fmt: skip

    @model_validator(mode="after")
    def _names_each_once(self) -> Self:
        if len(set(self.pcrs)) != len(self.pcrs):
            raise ValueError("pcrs names a PCR twice")
        return self


class TdxPolicy(Fields):
    """How hosts that are themselves confidential virtual machines are attested."""

    root: Annotated[str, AfterValidator(_root)] = Field(
        default="", max_length=20_000, description="Root certificate (PEM) that quotes must lead to. Empty: Intel's."
    )


class Attestation(Fields):
    """Evidence that hosts must give when they are enrolled, and before each lease."""

    tpm: TpmPolicy | None = Field(default=None, description="Evidence by a TPM 2.0. The host then has the trait tpm.")
    tdx: TdxPolicy | None = Field(
        default=None, description="Evidence by Intel TDX, for hosts that are TDs. The host then has the trait tdx."
    )

    @model_validator(mode="after")
    def _asks_for_something(self) -> Self:
        if self.tpm is None and self.tdx is None:
            raise ValueError("attestation needs tpm, tdx or both")
        return self

    @property
    def traits(self) -> frozenset[str]:
        """Return the traits of hosts that have given all of this evidence."""
        return frozenset(name for name in TRAITS if getattr(self, name) is not None)


class ExpectedEvidence(Fields):
    """The values that the evidence of one host must show. Omitted ones are recorded when the host is enrolled."""

    tcti: str = Field(
        default="", pattern=f"{_TCTI}|^$", description="How its TPM is reached. Empty: as the blueprint says."
    )
    ek_certificate: str = Field(
        default="", pattern=r"^([0-9a-f]{64})?$",
        description="SHA-256 of the certificate of the TPM's endorsement key, in lower-case hexadecimal digits.",
    )  # fmt: skip
    pcrs: Annotated[dict[str, str], AfterValidator(_pcrs)] = Field(
        default_factory=dict, max_length=24, description='Values of PCRs, such as {"7": "65CA..."}.'
    )
    mr_td: Annotated[str, AfterValidator(_mr_td)] = Field(
        default="", max_length=200, description="MR_TD of the host, if it is a TD: 96 hexadecimal digits."
    )


def check_expected(policy: Attestation | None, expected: ExpectedEvidence | None) -> None:
    """Refuse expected evidence that the blueprint does not ask for. Raises InvalidRequest."""
    if expected is None:
        return
    tpm, tdx = (None, None) if policy is None else (policy.tpm, policy.tdx)
    digits = {"sha256": 64, "sha384": 96}["sha256" if tpm is None else tpm.bank]
    wrong = {
        "The blueprint asks for no evidence of a TPM.": tpm is None
        and (expected.pcrs or expected.ek_certificate or expected.tcti),
        "The blueprint asks for no evidence of TDX.": tdx is None and expected.mr_td,
        f"The PCRs of the blueprint have {digits} hexadecimal digits.": tpm is not None
        and any(len(value) != digits for value in expected.pcrs.values()),
    }
    for sentence, holds in wrong.items():
        if holds:
            hint = "Omit it, or set `attestation` in the config of the blueprint."
            raise InvalidRequest(sentence, field="attestation", hint=hint)
