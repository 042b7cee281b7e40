"""The kind `dpf_card`: a card that DPF can install."""
