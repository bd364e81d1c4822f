"""The app on a real port."""
