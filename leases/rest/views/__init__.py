"""The views of the API. Most methods are a single call to the client that acts for the token."""
