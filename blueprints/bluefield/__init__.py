"""BlueField cards, as the kinds that lease them share them, however the cards are reached.

This package has the attributes of a card and the lock on its serial number (`cards`), what the BMC of a card says
(`reading`, pure), the login with its limits (`logins`), and the connection of a step to the BMC (`access`). `session`
is imported when it is used, because it needs the extra `redfish`.
"""

from blueprints.bluefield.cards import MATCHES, CardAttributes, CardRequirements, hold_card, usual_memory_gib

__all__ = ["MATCHES", "CardAttributes", "CardRequirements", "hold_card", "usual_memory_gib"]
