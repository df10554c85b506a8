"""What makes `format("varve")` known to Spark, which imports each installed package `pyspark_*` for its DefaultSource.

pyproject.toml installs this folder as a package of its own, beside `pipeline`. An error in this import would
break every Python data source of the session, so it imports nothing of Spark that is newer than 4.0.
"""

from pipeline.datasource import VarveDataSource as DefaultSource

__all__ = ["DefaultSource"]
