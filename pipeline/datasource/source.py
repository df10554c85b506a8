"""The data source as Spark meets it: a name, a schema, and the readers and writers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSource

from pipeline.datasource.errors import InvalidFrame

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

    from pipeline.datasource.options import ReadOptions
    from pipeline.datasource.readers import BatchReader, StreamReader
    from pipeline.datasource.writers import BatchWriter, StreamWriter


class VarveDataSource(DataSource):
    """`format("varve")`: reads topics of a Kafka-protocol cluster and appends to them. README.md has the options.

    Spark imports this module in every session that uses any Python data source. What needs pyarrow, or a Spark newer
    than 4.1, is therefore imported where it is used.
    """

    @classmethod
    def name(cls) -> str:
        return "varve"

    def schema(self) -> StructType:
        from pipeline.datasource.columns import columns
        from pipeline.datasource.options import ReadOptions

        return columns(ReadOptions.parse(self.options).includes_headers)

    def reader(self, schema: StructType) -> BatchReader:
        from pipeline.datasource.readers import BatchReader

        return BatchReader(self._read_options(schema))

    def streamReader(self, schema: StructType) -> StreamReader:
        from pipeline.datasource.readers import StreamReader

        return StreamReader(self._read_options(schema))

    def writer(self, schema: StructType, overwrite: bool) -> BatchWriter:
        from pipeline.datasource.options import WriteOptions
        from pipeline.datasource.writers import BatchWriter

        return BatchWriter(WriteOptions.parse(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> StreamWriter:
        """`overwrite` is Spark's word for outputMode("complete"): every batch appends the whole result."""
        from pipeline.datasource.options import WriteOptions
        from pipeline.datasource.writers import StreamWriter

        return StreamWriter(WriteOptions.parse(self.options), schema)

    def _read_options(self, asked: StructType) -> ReadOptions:
        from pipeline.datasource.options import ReadOptions

        ours = self.schema().simpleString()
        if asked.simpleString() != ours:
            raise InvalidFrame(f"the source's schema is {ours}; schema() asked for {asked.simpleString()}")
        return ReadOptions.parse(self.options)
