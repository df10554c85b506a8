"""`format("varve")`: a Kafka source and sink for Spark in Python, without a jar. See README.md."""

from pipeline.datasource.source import VarveDataSource

__all__ = ["VarveDataSource"]
