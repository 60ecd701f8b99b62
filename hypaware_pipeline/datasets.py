"""What is known of each dataset, and how an open one describes itself.

Why a table of columns at all: a column that HypAware added last week is missing from older tables, and a dataset without rows has
no table. The union of what is declared here and what the tables have is what a destination gets.

Why the lookup key differs from the cache's partitioning: it is the order in which people look things up (a session, a trace, a
service over time), so that a reader of one of them touches few row groups.
"""

from collections.abc import Iterable

from hypaware_pipeline.model import Column, ColumnType, Dataset, DatasetName

PRIMARY_TIMESTAMP_CANDIDATES = ("timestamp", "created_at", "recorded_at", "date")
"""HypAware's rule for datasets that declare no primary timestamp: the first of these the table has."""

_TYPES = {
    "S": ColumnType.STRING,
    "I": ColumnType.INT32,
    "L": ColumnType.INT64,
    "D": ColumnType.DOUBLE,
    "B": ColumnType.BOOLEAN,
    "T": ColumnType.TIMESTAMP,
    "J": ColumnType.JSON,
}


def _columns(text: str) -> tuple[Column, ...]:
    """`name T, name T …` with one-letter types."""
    pairs = (entry.split() for entry in text.split(",") if entry.strip())
    return tuple(Column(name, _TYPES[letter]) for name, letter in pairs)


_SCOPE_AND_RESOURCE = "resource J, scope_name S, scope_version S, scope_attributes J"

_KNOWN: tuple[Dataset, ...] = (
    Dataset(
        name=DatasetName("ai_gateway_messages"),
        columns=_columns(
            "gateway_id S, schema_version I, session_id S, conversation_id S, user_id S, provider S, model S, system_text S, "
            "tools J, conversation_started_at T, conversation_source S, client_name S, cwd S, git_branch S, git_remote S, "
            "head_sha S, repo_root S, client_version S, entrypoint S, user_type S, permission_mode S, is_sidechain B, "
            "agent_id S, parent_thread_id S, message_id S, previous_message_id J, provider_uuid S, parent_uuid S, "
            "logical_parent_uuid S, source_tool_assistant_uuid S, request_id S, prompt_id S, message_index I, "
            "message_created_at T, role S, part_id S, part_index I, part_type S, provider_type S, provider_subtype S, "
            "content_text S, tool_name S, tool_call_id S, tool_args J, caller_type S, tool_result_for S, thinking_signature "
            "S, attachment_type S, hook_event S, is_error B, is_compact_summary B, compact_metadata J, status J, attributes "
            "J, raw_frame J, date S"
        ),
        primary_timestamp="message_created_at",
        natural_key=("part_id",),
        lookup_key=("session_id", "conversation_id", "message_created_at", "message_index", "part_index"),
        ingest_signal="proxy",
        attribution_column="client_name",
    ),
    Dataset(
        name=DatasetName("logs"),
        columns=_columns(
            "serviceName S, timestamp T, observedTimestamp T, severityNumber I, severityText S, body J, traceId S, spanId S, "
            f"flags I, droppedAttributesCount I, {_SCOPE_AND_RESOURCE}, attributes J"
        ),
        primary_timestamp="timestamp",
        lookup_key=("serviceName", "timestamp"),
        ingest_signal="logs",
    ),
    Dataset(
        name=DatasetName("traces"),
        columns=_columns(
            "serviceName S, traceId S, spanId S, parentSpanId S, name S, kind I, traceState S, startTimestamp T, endTimestamp "
            "T, durationMs D, flags I, droppedAttributesCount I, droppedEventsCount I, droppedLinksCount I, status J, "
            f"{_SCOPE_AND_RESOURCE}, attributes J, events J, links J"
        ),
        primary_timestamp="startTimestamp",
        natural_key=("traceId", "spanId"),
        lookup_key=("traceId", "startTimestamp", "spanId"),
        ingest_signal="traces",
    ),
    Dataset(
        name=DatasetName("metrics"),
        columns=_columns(
            "serviceName S, metricName S, description S, unit S, metricType S, aggregationTemporality I, isMonotonic B, "
            "startTimestamp T, timestamp T, flags I, value D, valueInt L, valueType S, count L, sum D, min D, max D, "
            "bucketCounts J, explicitBounds J, scale I, zeroCount L, zeroThreshold D, positive J, negative J, quantileValues "
            f"J, exemplars J, {_SCOPE_AND_RESOURCE}, metadata J, attributes J"
        ),
        primary_timestamp="timestamp",
        natural_key=("serviceName", "metricName"),
        lookup_key=("serviceName", "metricName", "timestamp"),
        ingest_signal="metrics",
    ),
    Dataset(
        name=DatasetName("claude_telemetry_events"),
        columns=_columns(
            "event_name S, event_timestamp T, session_id S, tool_name S, decision S, source S, cost_usd D, cwd S, attributes J"
        ),
        primary_timestamp="event_timestamp",
        lookup_key=("session_id", "event_timestamp"),
        ingest_signal="claude_telemetry",
    ),
    Dataset(
        name=DatasetName("gascity_messages"),
        columns=_columns("city S, provider_session_id S, event_time T, event_kind S, template S, content_text S, metadata J"),
        primary_timestamp="event_time",
        lookup_key=("provider_session_id", "event_time"),
    ),
    Dataset(
        name=DatasetName("node"),
        columns=_columns(
            "node_id S, node_type S, natural_key S, label S, props J, first_seen T, source_dataset S, source_keys J, "
            "projector S, projector_version I"
        ),
        primary_timestamp="first_seen",
        natural_key=("node_id",),
        lookup_key=("node_type", "node_id"),
    ),
    Dataset(
        name=DatasetName("edge"),
        columns=_columns(
            "edge_id S, edge_type S, src_id S, dst_id S, src_type S, dst_type S, props J, first_seen T, source_dataset S, "
            "source_keys J, projector S, projector_version I"
        ),
        primary_timestamp="first_seen",
        natural_key=("edge_id",),
        lookup_key=("src_id", "edge_type", "dst_id"),
    ),
    Dataset(
        name=DatasetName("enrichment_prospects"),
        columns=_columns(
            "prospect_id S, prospect_type S, label S, props J, confidence D, evidence S, anchor_type S, anchor_key S, "
            "source_dataset S, source_keys J, extractor S, extractor_version I, created_at T"
        ),
        primary_timestamp="created_at",
        natural_key=("prospect_id",),
        lookup_key=("prospect_id",),
    ),
    Dataset(
        name=DatasetName("enrichment_resolutions"),
        columns=_columns("prospect_id S, decision S, committed_ids J, note S, curator S, curator_version I, resolved_at T"),
        primary_timestamp="resolved_at",
        natural_key=("prospect_id",),
        lookup_key=("prospect_id",),
    ),
    Dataset(
        name=DatasetName("enrichment_committed"),
        columns=_columns(
            "item_id S, item_type S, label S, props J, confidence D, anchor_type S, anchor_key S, source_dataset S, "
            "source_keys J, curator S, curator_version I, committed_at T"
        ),
        primary_timestamp="committed_at",
        natural_key=("item_id",),
        lookup_key=("item_id",),
    ),
)

KNOWN_DATASETS: dict[DatasetName, Dataset] = {dataset.name: dataset for dataset in _KNOWN}
"""The datasets HypAware's bundled plugins declare, by name."""


def resolve_dataset(name: DatasetName, table_columns: Iterable[Column]) -> Dataset:
    """Unite what is declared of a dataset with the columns its tables have.

    Declared columns come first, in their order; columns only the tables have follow, in theirs. Where both know a column the
    declared type wins. An open dataset takes everything from its tables, its primary timestamp by HypAware's rule.
    """
    declared = KNOWN_DATASETS.get(name)
    columns = {column.name: column for column in (declared.columns if declared else ())}
    for column in table_columns:
        columns.setdefault(column.name, column)
    if declared is not None:
        return Dataset(
            name=declared.name,
            columns=tuple(columns.values()),
            primary_timestamp=declared.primary_timestamp,
            natural_key=declared.natural_key,
            lookup_key=declared.lookup_key,
            ingest_signal=declared.ingest_signal,
            attribution_column=declared.attribution_column,
        )
    primary = next((candidate for candidate in PRIMARY_TIMESTAMP_CANDIDATES if candidate in columns), None)
    return Dataset(
        name=name,
        columns=tuple(columns.values()),
        primary_timestamp=primary,
        lookup_key=(primary,) if primary else (),
        known=False,
    )
