"""The pages of docs/: every block runs, every generated part is current, and the site is whole."""
