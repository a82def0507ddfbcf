"""Reads a dashboard with the types of Grafana's own library, and prints each part that these types do not have.

Grafana ignores a part that it does not know, such as a misspelt option. The library drops it when it writes the dashboard again.
"""

import json
import sys

from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.cog.plugins import register_default_plugins
from grafana_foundation_sdk.models.dashboard import Dashboard


def differences(before, after, path):
    if isinstance(before, dict) and isinstance(after, dict):
        for name, value in before.items():
            if name in after:
                yield from differences(value, after[name], f"{path}.{name}")
            else:
                yield f"{path}.{name} is unknown"
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for at, (one, other) in enumerate(zip(before, after)):
            yield from differences(one, other, f"{path}[{at}]")
    elif before != after:
        yield f"{path} is {before!r}, but {after!r} for Grafana"


register_default_plugins()
with open(sys.argv[1], encoding="utf-8") as file:
    dashboard = json.load(file)
written = json.loads(JSONEncoder().encode(Dashboard.from_json(dashboard)))
for difference in differences(dashboard, written, "dashboard"):
    print(difference)
