"""The contracts others implement, and how a configured pair becomes a sink."""
