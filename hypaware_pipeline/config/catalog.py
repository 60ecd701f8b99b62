"""The plugins HypAware has, as data: what a config may name, and what each of them provides and requires.

Why HypAware's plugins and not only ours: its own file lists them all, and must be judged as HypAware judges it. A sink of ours
that names one this project has no code for is told so, rather than that there is no such plugin.

What is here is what the manifests of HypAware 1.24 say of sinks, capabilities and datasets; `@hypaware/webhook` has no manifest
yet, but HypAware's validation knows it.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

ENCODER = "hypaware.encoder"
BLOB_STORE = "hypaware.blob-store"
TABLE_FORMAT = "hypaware.table-format"
HTTP_ENDPOINT = "hypaware.http-endpoint"

QUERYABLE = "queryable"
"""The one tag of what a sink supports: what it wrote can be queried where it lies."""


@dataclass(frozen=True, slots=True)
class CatalogPlugin:
    """What a plugin's manifest says, as far as a config is judged by it.

    Attributes:
        provides: Versions by capability.
        requires: Version ranges by capability, to be provided by its partner in a sink or by another active plugin.
        supports: Tags of what it writes, or of what it stores.
        datasets: The column a source opt-out is judged by (None where there is none), by dataset.
        pickers: Names under which HypAware lets people choose its sources.
    """

    name: str
    version: str = "1.0.0"
    provides: Mapping[str, str] = field(default_factory=dict)
    requires: Mapping[str, str] = field(default_factory=dict)
    supports: frozenset[str] = frozenset()
    datasets: Mapping[str, str | None] = field(default_factory=dict)
    pickers: tuple[str, ...] = ()


class Catalog:
    """Plugins by name.

    Args:
        plugins: Those a config may name; of two with one name the later counts.
        offered: Names for messages that say what to use instead; all by default.
    """

    def __init__(self, plugins: Iterable[CatalogPlugin], *, offered: Iterable[str] | None = None) -> None:
        self._plugins = {plugin.name: plugin for plugin in plugins}
        self._offered = frozenset(self._plugins if offered is None else offered)

    def __contains__(self, name: object) -> bool:
        """Whether there is a plugin of that name."""
        return name in self._plugins

    def __getitem__(self, name: str) -> CatalogPlugin:
        """The plugin of that name."""
        return self._plugins[name]

    def __iter__(self) -> Iterator[CatalogPlugin]:
        """All of them."""
        return iter(self._plugins.values())

    @property
    def offered(self) -> str:
        """What there is, for a message."""
        return listed(self._offered)

    def providers(self, capability: str) -> str:
        """What to use for a capability, as the end of a message."""
        having = [plugin.name for plugin in self if plugin.name in self._offered and capability in plugin.provides]
        return f"use {' or '.join(having)}" if having else "there is none yet"

    def datasets(self) -> frozenset[str]:
        """Every dataset a plugin declares."""
        return frozenset(name for plugin in self for name in plugin.datasets)


def listed(names: Iterable[str]) -> str:
    """Names for a message."""
    return ", ".join(sorted(names)) or "nothing"


_AI_GATEWAY = "hypaware.ai-gateway"
_CONTEXT_GRAPH = "hypaware.context-graph"
_QUERYABLE = frozenset({QUERYABLE})

HYPAWARE_PLUGINS: tuple[CatalogPlugin, ...] = (
    CatalogPlugin("@hypaware/format-parquet", provides={ENCODER: "1.0.0"}, requires={BLOB_STORE: "^1.0.0"}, supports=_QUERYABLE),
    CatalogPlugin("@hypaware/format-jsonl", provides={ENCODER: "1.0.0"}, requires={BLOB_STORE: "^1.0.0"}),
    CatalogPlugin(
        "@hypaware/format-iceberg",
        provides={TABLE_FORMAT: "1.0.0"},
        requires={BLOB_STORE: "^1.0.0", ENCODER: "^1.0.0"},
        supports=_QUERYABLE,
    ),
    CatalogPlugin("@hypaware/local-fs", provides={BLOB_STORE: "1.0.0"}, supports=_QUERYABLE),
    CatalogPlugin("@hypaware/s3", provides={BLOB_STORE: "1.0.0"}, supports=_QUERYABLE),
    CatalogPlugin("@hypaware/central", provides={HTTP_ENDPOINT: "1.0.0"}),
    CatalogPlugin("@hypaware/webhook", provides={HTTP_ENDPOINT: "1.0.0"}),
    CatalogPlugin("@hypaware/otel", datasets={"logs": None, "traces": None, "metrics": None}, pickers=("otel",)),
    CatalogPlugin(
        "@hypaware/ai-gateway",
        "2.0.0",
        provides={_AI_GATEWAY: "2.0.0"},
        datasets={"ai_gateway_messages": "client_name"},
        pickers=("raw-anthropic", "raw-openai"),
    ),
    CatalogPlugin(
        "@hypaware/claude",
        "2.0.0",
        requires={_AI_GATEWAY: "^2.0.0"},
        datasets={"claude_telemetry_events": None},
        pickers=("claude",),
    ),
    CatalogPlugin("@hypaware/gascity", datasets={"gascity_messages": None}),
    CatalogPlugin("@hypaware/context-graph", "0.1.0", provides={_CONTEXT_GRAPH: "1.0.0"}, datasets={"node": None, "edge": None}),
    CatalogPlugin(
        "@hypaware/context-graph-enrich",
        "0.1.0",
        requires={_CONTEXT_GRAPH: "^1.0.0"},
        datasets={"enrichment_prospects": None, "enrichment_resolutions": None, "enrichment_committed": None},
    ),
    *(
        CatalogPlugin(f"@hypaware/{name}")
        for name in (
            "ai-gateway-graph",
            "claude-account",
            "claude-desktop",
            "codex",
            "completion-anthropic",
            "completion-openai",
            "embedder-openai",
            "hermes",
            "openclaw",
            "vector-search",
        )
    ),
)

HYPAWARE_CATALOG = Catalog(HYPAWARE_PLUGINS)
"""What HypAware itself knows."""
