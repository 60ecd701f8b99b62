"""Record batches to bytes. No encoder knows a store."""
