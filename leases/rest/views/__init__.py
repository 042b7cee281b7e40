"""The addresses. Each method is one call of the client that speaks for the token."""
