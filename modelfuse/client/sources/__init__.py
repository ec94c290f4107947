"""Where data comes from: one reader a kind of data string, in numpy, so that a split needs no torch."""
