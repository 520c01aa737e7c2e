"""How trials are planned, computed and kept."""
