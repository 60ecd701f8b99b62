"""What was exported: the only point of truth."""

from hypaware_pipeline.ledger.ledger import Ledger
from hypaware_pipeline.ledger.place import LEDGER_URL_VARIABLE, LedgerPlace
from hypaware_pipeline.ledger.planning import Failure, PlanMemory
from hypaware_pipeline.ledger.receipts import ReceiptKey, Recorded
from hypaware_pipeline.ledger.transactions import Clock

__all__ = ["LEDGER_URL_VARIABLE", "Clock", "Failure", "Ledger", "LedgerPlace", "PlanMemory", "ReceiptKey", "Recorded"]
