"""The join in Polars. Arguments: the client's file, the server's file, threads.

The schema is given, as for DuckDB; the query is lazy, with the streaming engine.
"""
import json
import os
import sys

client, server, threads = sys.argv[1:]
os.environ["POLARS_MAX_THREADS"] = threads
import polars as pl  # noqa: E402  reads the variable

sent = pl.scan_ndjson(client, schema={
    "metadata": pl.Struct({"x_request_id": pl.String}), "start_perf_ns": pl.Int64, "status": pl.Int64,
    "responses": pl.List(pl.Struct({"perf_ns": pl.Int64}))})
sent = sent.select(
    id=pl.col("metadata").struct.field("x_request_id"), status="status",
    latency=(pl.col("responses").list.last().struct.field("perf_ns") - pl.col("start_perf_ns")) / 1e6,
).group_by("id").agg(pl.len().alias("sent"), pl.col("status").first(), pl.col("latency").first())
seen = pl.scan_ndjson(server, schema={"request_id": pl.String, "task": pl.Struct({"wall_ns": pl.Int64})})
seen = seen.select(id="request_id", call=pl.col("task").struct.field("wall_ns") / 1e6)
seen = seen.group_by("id").agg(pl.len().alias("seen"), pl.col("call").max())

once, met = pl.col("sent") == 1, pl.col("seen").is_not_null()
good = once & met & (pl.col("status") == 200)
quantiles = [pl.col(c).filter(good).quantile(p, "linear").alias(f"{c}{p}") for c in ("latency", "call") for p in (.5, .9, .95, .99)]
row = sent.join(seen, on="id", how="full", coalesce=True).select(
    pl.col("sent").sum(), pl.col("seen").sum(),
    (once & met).sum().alias("matched"), (once & ~met).sum().alias("client_only"),
    pl.col("seen").filter(pl.col("sent").is_null()).sum().alias("server_only"),
    pl.col("sent").filter(pl.col("sent") > 1).sum().alias("ambiguous"), *quantiles,
).collect(engine="streaming").row(0)
names = ("client", "server", "matched", "client_only", "server_only", "ambiguous")
print(json.dumps(dict(zip(names, row[:6])) | {"latency_ms": row[6:10], "task_call_ms": row[10:], "version": pl.__version__}))
