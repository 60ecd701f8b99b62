"""What was exported: the only point of truth."""

from hypaware_pipeline.ledger.ledger import Clock, Ledger, PlanMemory, ReceiptKey

__all__ = ["Clock", "Ledger", "PlanMemory", "ReceiptKey"]
