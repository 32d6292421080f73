"""The join in plain Python: json and a dict. Arguments: the client's file, the server's file."""
import collections
import json
import platform
import sys

client, server = sys.argv[1:3]
calls, seen = {}, collections.Counter()
with open(server, "rb") as f:
    for line in f:
        record = json.loads(line)
        name = record["request_id"]
        seen[name] += 1
        if "task" in record:
            calls[name] = record["task"]["wall_ns"]
sent, ends = collections.Counter(), {}
with open(client, "rb") as f:
    for line in f:
        record = json.loads(line)
        name = record["metadata"]["x_request_id"]
        sent[name] += 1
        if record["status"] == 200:
            ends[name] = record["responses"][-1]["perf_ns"] - record["start_perf_ns"]


def quantiles(values):
    """Linear between the neighbours of rank (n-1)p."""
    values.sort()
    out = []
    for p in (.5, .9, .95, .99):
        rank = (len(values) - 1) * p
        i = int(rank)
        out.append(values[i] + (rank - i) * (values[min(i + 1, len(values) - 1)] - values[i]))
    return out


matched = [name for name, n in sent.items() if n == 1 and name in seen]
good = [name for name in matched if name in ends]
print(json.dumps({
    "client": sent.total(), "server": seen.total(), "matched": len(matched),
    "client_only": sum(n == 1 and name not in seen for name, n in sent.items()),
    "server_only": sum(n for name, n in seen.items() if name not in sent),
    "ambiguous": sum(n for n in sent.values() if n > 1),
    "latency_ms": quantiles([ends[name] / 1e6 for name in good]),
    "task_call_ms": quantiles([calls[name] / 1e6 for name in good]),
    "version": platform.python_version(),
}))
