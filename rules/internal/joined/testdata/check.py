"""Compares the tables in joined/ with the JSON lines in ledger/, column by column, as
DuckDB, Polars and pandas read them: how many values there are and their sum, of
texts the sum of their lengths."""

import json
import math
from glob import glob

import duckdb
import pandas as pd
import polars as pl

TABLES = sorted(glob("joined/*.parquet"))


def flat(value, prefix=""):
    for key, v in value.items():
        if isinstance(v, dict):
            yield from flat(v, prefix + key + "_")
        else:
            yield prefix + key, v


def lines():
    """What every column must be."""
    columns = {}
    for name in TABLES:
        sample = name.removeprefix("joined/").removesuffix(".parquet")
        with open(f"ledger/{sample}.jsonl", encoding="utf-8") as f:
            for line in f:
                e = json.loads(line)
                row = {"sample": sample, "unplanned": False, "hidden_retries": 0}
                if "client" in e:
                    row["client_disagrees"] = False
                row |= flat(e)
                for key, v in row.items():
                    columns.setdefault(key, []).append(len(v) if isinstance(v, str) else v)
    return {key: (len(v), math.fsum(v) if isinstance(v[0], float) else sum(v)) for key, v in columns.items()}


def by_duckdb():
    rows = duckdb.read_parquet(TABLES)
    for name, kind in zip(rows.columns, rows.types):
        column = f'"{name}"'  # join is a word of SQL
        value = {"VARCHAR": f"length({column})", "BOOLEAN": f"{column}::INT"}.get(str(kind), column)
        yield name, rows.aggregate(f"count({column}), sum({value})").fetchall()[0]


def by_polars():
    table = pl.read_parquet(TABLES)
    for column in table:
        values = column.str.len_chars() if column.dtype == pl.String else column
        yield column.name, (column.count(), values.sum())


def by_pandas():
    table = pd.read_parquet("joined", dtype_backend="numpy_nullable")
    for name, column in table.items():
        values = column.str.len() if column.dtype == "string" else column
        yield name, (column.count(), values.sum())


def same(a, b):
    return a[0] == b[0] and (math.isclose(a[1], b[1], rel_tol=1e-9) if isinstance(a[1], float) else a[1] == (b[1] or 0))


want = lines()
for reader in by_duckdb, by_polars, by_pandas:
    got = dict(reader())
    for name in want.keys() | got.keys():
        if not same(want.get(name, (0, 0)), got.get(name, (None, None))):
            print(f"{reader.__name__}: {name}: {got.get(name)}, the lines have {want.get(name)}")
    print(f"{reader.__name__}: {len(got)} columns")
