"""The kind `azure`: machines on Microsoft Azure."""
