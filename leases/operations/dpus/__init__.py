"""Operations on leased DPUs."""
