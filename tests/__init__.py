"""The tests; every folder is a package, so that files of one name in two folders do not clash."""
