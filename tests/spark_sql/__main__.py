"""`make spark-sql`: Spark reads state by `spark.read.format("tidegate")`, for which it needs pyarrow."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tests.support.state_folder import PATH_OPTIONS, ROWS, SCHEMA, write_state
from tidegate.spark.java import java_home
from tidegate.spark.state_source import TidegateStateSource, read_state

GOLDEN = Path(__file__).parents[1] / "golden" / "format-1" / "checkpoints"
SETTINGS = {
    "spark.ui.enabled": "false",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
}


def main() -> int:
    """Exit code 0 when all is as it should be."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["JAVA_HOME"] = str(java_home())
    builder = SparkSession.builder.master("local[2]").appName("spark-sql")
    for name, value in SETTINGS.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("OFF")
    spark.dataSource.register(TidegateStateSource)
    with tempfile.TemporaryDirectory(prefix="tidegate-spark-sql-") as name:
        try:
            check(spark, write_state(Path(name) / "savepoint"))
        finally:
            spark.stop()
    print("spark-sql: 4 checks passed")
    return 0


def load(spark: SparkSession, **options: object) -> Any:
    """The data source with these options."""
    reader = spark.read.format("tidegate")
    for name, value in options.items():
        reader = reader.option(name, str(value))
    return reader.load()


def check(spark: SparkSession, folder: Path) -> None:
    """Types and values, parts, the same rows as without pyarrow, and the message for a step that is not there."""
    frame = load(spark, path=folder, **PATH_OPTIONS, partitions=3)
    assert frame.schema.simpleString() == SCHEMA, frame.schema.simpleString()
    assert frame.rdd.getNumPartitions() > 1
    found = sorted(map(tuple, frame.selectExpr("k", "d", "cast(at as string)", "l", "place", "m", "a").collect()))
    assert found == list(ROWS), found

    golden: dict[str, str | int] = {"path": str(GOLDEN), "step": "totals", "partitions": 4}
    rows = sorted(map(tuple, load(spark, **golden).collect()), key=repr)
    assert len(rows) == 12, rows
    assert rows == sorted(map(tuple, read_state(spark, **golden).collect()), key=repr)

    try:
        load(spark, path=GOLDEN, step="nothing")
    except AnalysisException as error:
        assert "no state of a step 'nothing'; it has: best, closing" in str(error), error
    else:
        raise AssertionError("a step that is not there was read")


if __name__ == "__main__":
    sys.exit(main())
