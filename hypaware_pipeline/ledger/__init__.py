"""What was exported: the only point of truth."""

from hypaware_pipeline.ledger.chains import SourceChain, Unproven
from hypaware_pipeline.ledger.intents import Intent
from hypaware_pipeline.ledger.ledger import Ledger
from hypaware_pipeline.ledger.place import LEDGER_URL_VARIABLE, LedgerPlace
from hypaware_pipeline.ledger.planning import Failure, PlanMemory
from hypaware_pipeline.ledger.receipts import ReceiptKey, Recorded
from hypaware_pipeline.ledger.stored_sets import StoredSet
from hypaware_pipeline.ledger.transactions import Clock

__all__ = [
    "LEDGER_URL_VARIABLE",
    "Clock",
    "Failure",
    "Intent",
    "Ledger",
    "LedgerPlace",
    "PlanMemory",
    "ReceiptKey",
    "Recorded",
    "SourceChain",
    "StoredSet",
    "Unproven",
]
