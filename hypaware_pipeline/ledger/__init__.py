"""What was exported: the only point of truth."""

from hypaware_pipeline.ledger.ledger import Clock, Failure, Ledger, PlanMemory, ReceiptKey

__all__ = ["Clock", "Failure", "Ledger", "PlanMemory", "ReceiptKey"]
