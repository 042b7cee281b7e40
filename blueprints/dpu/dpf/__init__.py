"""The kind `dpf`: a DPU that DPF installs on a leased card."""
