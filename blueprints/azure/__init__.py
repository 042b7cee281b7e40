"""The kind `azure`: machines at Microsoft Azure."""
