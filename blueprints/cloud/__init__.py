"""What the clouds share, below their kinds: the provider contract, its values, its errors."""
