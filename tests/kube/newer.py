"""The fields that DPF 26.10 has beyond the CRDs of 26.4, as far as tests need them: DPUs from a BlueFieldSoftware.

From the CRDs of NVIDIA/doca-platform, `config/provisioning/crd/bases` and `config/dpuservice/crd/bases`, 2026.
"""

from __future__ import annotations

from typing import Any

_REFERENCE = {"type": "object", "properties": {"name": {"type": "string", "minLength": 1}}}
_TEXT = {"type": "string"}
_ADDRESS = {"type": "string", "minLength": 1}


def changed(crd: dict[str, Any]) -> None:
    """Change a CRD of 26.4 into that of 26.10."""
    schema = crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    match crd["spec"]["names"]["kind"]:
        case "BlueFieldSoftware":
            schema["spec"] = {
                "type": "object",
                "required": ["osIso"],
                "properties": dict.fromkeys(("osIso", "pldmFwBundle", "platformPldmFwBundle", "nicFw"), _ADDRESS),
            }
            schema["status"]["properties"]["phase"]["enum"].append("Extracting")
            schema["status"]["properties"]["versions"] = {
                "type": "object", "properties": {"fwBundleVersion": _TEXT, "osISOVersion": _TEXT}
            }  # fmt: skip
        case "DPUSet":
            schema["spec"]["properties"]["dpuTemplate"]["properties"]["spec"]["properties"] |= {
                "blueFieldSoftware": _REFERENCE
            }
        case "DPU":
            schema["spec"]["required"].remove("bfb")
        case "DPUDeployment":
            dpus = schema["spec"]["properties"]["dpus"]
            dpus["required"].remove("bfb")
            dpus["properties"]["blueFieldSoftware"] = _TEXT
