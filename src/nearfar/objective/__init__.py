"""The mathematics: pure functions of (L, batch)."""
