"""Who is slow: a rank, a host or a link, told from what was measured of each; no torch here."""
