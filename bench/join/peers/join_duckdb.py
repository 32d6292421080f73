"""The join in DuckDB. Arguments: the client's file, the server's file, threads.

The schema is given, so nothing is spent on its detection and members that do not
matter are not materialized.
"""
import json
import sys

import duckdb

client, server, threads = sys.argv[1:]
con = duckdb.connect(config={"threads": int(threads), "preserve_insertion_order": False})
row = con.execute("""
with client as (
  select metadata.x_request_id as id, count(*) as n, any_value(status) as status,
         any_value(responses[-1].perf_ns - start_perf_ns) as latency
  from read_ndjson(?, maximum_object_size = 268435456, columns = {
    metadata: 'STRUCT(x_request_id VARCHAR)', start_perf_ns: 'BIGINT', status: 'BIGINT',
    responses: 'STRUCT(perf_ns BIGINT)[]'})
  group by metadata.x_request_id
), server as (
  select request_id as id, count(*) as n, max(task.wall_ns) as call
  from read_ndjson(?, maximum_object_size = 268435456, columns = {
    request_id: 'VARCHAR', task: 'STRUCT(wall_ns BIGINT)'})
  group by request_id
), joined as (
  select client.n as sent, server.n as seen, status, latency / 1e6 as latency, call / 1e6 as call
  from client full outer join server on client.id = server.id
)
select coalesce(sum(sent), 0), coalesce(sum(seen), 0),
       count(*) filter (sent = 1 and seen is not null),
       count(*) filter (sent = 1 and seen is null),
       coalesce(sum(seen) filter (sent is null), 0),
       coalesce(sum(sent) filter (sent > 1), 0),
       quantile_cont(latency, [0.5, 0.9, 0.95, 0.99]) filter (sent = 1 and seen is not null and status = 200),
       quantile_cont(call, [0.5, 0.9, 0.95, 0.99]) filter (sent = 1 and seen is not null and status = 200)
from joined""", [client, server]).fetchone()
names = ("client", "server", "matched", "client_only", "server_only", "ambiguous", "latency_ms", "task_call_ms")
answer = {name: value if isinstance(value, list) else int(value) for name, value in zip(names, row)}
print(json.dumps(answer | {"version": duckdb.__version__}))
