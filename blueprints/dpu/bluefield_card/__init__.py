"""The kind `bluefield_card`: a card that Drydock reaches by the card's own BMC."""
