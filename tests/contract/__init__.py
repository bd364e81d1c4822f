"""One class of promises per seam, inherited by the tests of each implementation."""
