"""The client side: everything that needs torch or a data set."""
