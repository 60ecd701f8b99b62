"""The database of receipts, the first day and sink starts."""
