"""Bytes to places. No store knows what the bytes mean."""
