"""How values travel: the Arrow type of each column type.

Why one table for both sides: what reads a cache and what encodes rows must agree, and neither may import the other. Imported on
demand only, since it brings pyarrow.
"""

from collections.abc import Mapping

import pyarrow as pa

from hypaware_pipeline.model import ColumnType

ARROW_TYPES: Mapping[ColumnType, pa.DataType] = {
    ColumnType.STRING: pa.string(),
    ColumnType.INT32: pa.int32(),
    ColumnType.INT64: pa.int64(),
    ColumnType.DOUBLE: pa.float64(),
    ColumnType.BOOLEAN: pa.bool_(),
    ColumnType.TIMESTAMP: pa.timestamp("us", "UTC"),
    ColumnType.JSON: pa.string(),
}
"""The plain Arrow type of each column type; STRING and JSON may come dictionary-encoded instead."""
