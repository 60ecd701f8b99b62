"""What to do about HypAware's own exports, for who begins to export with this project.

Why its spool comes up: HypAware moves rows from there into tables when one of its sinks ticks. Who takes the sinks away takes
that away too.

Why a request sink is left alone: it sends rows to a server, such as that of a team, and nothing here does the same.
"""

import json
import shutil
from collections.abc import Mapping
from typing import Any

from hypaware_pipeline.config.hypaware import HypAwareConfig

_REFRESH = ("cache", "refresh")
"""HypAware's command that moves every dataset's spool into its tables."""


def advice(hypaware: HypAwareConfig, env: Mapping[str, str]) -> list[str]:
    """What to do, a sentence or two each."""
    sinks = hypaware.layer.sinks
    blobs = {name: entry for name, entry in sinks.items() if "plugin" not in entry}
    requests = {name: entry["plugin"] for name, entry in sinks.items() if "plugin" in entry}
    said = []
    if blobs:
        named = ", ".join(f"'{name}' ({_described(entry)})" for name, entry in blobs.items())
        said.append(
            f"HypAware exports by itself too: {named}. To leave that to this project, remove them from sinks in {hypaware.path} "
            "(those of its central config are its server's to remove) and run `hyp daemon restart`. What they wrote stays."
        )
    if requests:
        named = ", ".join(f"'{name}' ({plugin})" for name, plugin in requests.items())
        said.append(f"HypAware sends rows to a server: {named}. Nothing here does that in its place; leave it as it is.")
    else:
        said.append(_about_the_spool(env))
    return said


def _described(entry: Mapping[str, Any]) -> str:
    place = (entry.get("config") or {}).get("dir")
    return f"{entry.get('writer')} to {entry.get('destination')}" + (f", {place}" if isinstance(place, str) else "")


def _about_the_spool(env: Mapping[str, str]) -> str:
    found = shutil.which("hyp", path=env.get("PATH", ""))
    command = json.dumps([found or "hyp", *_REFRESH], ensure_ascii=False)
    where = "" if found else " (there is no `hyp` on the PATH here; write out where it is)"
    return (
        "HypAware puts new rows into a spool, and without a sink of its own moves them into tables only when somebody asks or at "
        f'512 MB. To have that done ahead of every scheduled export, add "before_tick": {command} to the sink\'s config{where}; '
        f"a cron job runs `hyp {' '.join(_REFRESH)}` itself."
    )
