"""The kind `webroot`: a site of an nginx of its own, in a leased storage."""
