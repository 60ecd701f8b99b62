"""What was exported: the only point of truth."""

from hypaware_pipeline.ledger.ledger import Clock, Failure, Ledger, PlanMemory, ReceiptKey, Recorded
from hypaware_pipeline.ledger.place import LEDGER_URL_VARIABLE, LedgerPlace

__all__ = ["LEDGER_URL_VARIABLE", "Clock", "Failure", "Ledger", "LedgerPlace", "PlanMemory", "ReceiptKey", "Recorded"]
