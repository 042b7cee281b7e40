"""The kind `webroot`: a site served by an nginx of its own, in leased storage."""
