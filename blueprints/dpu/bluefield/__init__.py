"""The kind `bluefield`: a DPU that Drydock installs on a leased card by the card's own BMC."""
