"""What the synthetic people and programs say. Invented for this project."""

from typing import Any, Final

WORDS: Final = tuple(
    (  # noqa: SIM905  sixty quoted words are no easier to read
        "export partition receipt ledger snapshot manifest column reader writer cursor sink batch retry lease token schema cache"
        " day stream index row bitmap footer page codec offset sequence commit vector session message tool branch review fix test"
        " build parser timeout queue café naïve Grüße 日本語 🙂 deploy metric trace span quota budget scan merge split hash"
    ).split()
)

TOOLS: Final[list[dict[str, Any]]] = [
    {"name": name, "description": text, "input_schema": {"type": "object", "properties": {argument: {"type": "string"}}}}
    for name, text, argument in (
        ("read_file", "Shows the content of a file.", "path"),
        ("write_file", "Replaces the content of a file.", "path"),
        ("run", "Runs a command and shows what it prints.", "command"),
        ("search", "Finds a text in all files of the repository.", "pattern"),
        ("list_files", "Lists the files below a directory.", "directory"),
        ("fetch", "Gets a page by its address.", "address"),
        ("plan", "Notes the steps still to take.", "steps"),
        ("ask", "Asks the person a question.", "question"),
    )
]

REQUESTS: Final = (
    "The nightly export skips rows that arrive after midnight. Find out why and write a test first.",
    "Rename the batch id everywhere and keep the old name readable.",
    "Why does the reader hold the whole file in memory? Measure it, then make it stream.",
    "Add a command that lists what was refused, with the reasons.",
    "The page about retries contradicts the code. Correct whichever is wrong.",
    "Make the date parser refuse days that do not exist.",
)

ANSWERS: Final = (
    "I read the module first: the cursor is compared before the commit, so a late row is never looked at.",
    "The test fails as described. Now the comparison moves behind the commit.",
    "Done: 14 files changed, the old name is still accepted with a warning.",
    "The peak is 1.8 GB, nearly all of it one column. Reading it as a dictionary brings it down to 210 MB.",
    "All tests pass. Two of them were passing before for the wrong reason; I corrected these as well.",
)

LOG_MESSAGES: Final = (
    "request finished",
    "cache miss, loading from disk",
    "connection reset by peer, trying again",
    "configuration reloaded",
    "slow query",
)

OPERATIONS: Final = ("GET /v1/messages", "POST /v1/messages", "load_snapshot", "write_object", "resolve_policy")
"""Span names."""

METRICS: Final = (("requests", "sum", "1"), ("latency", "histogram", "ms"), ("memory", "gauge", "By"))
"""Name, type and unit."""

SERVICES: Final = ("gateway", "worker", "web")
