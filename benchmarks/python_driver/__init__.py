"""The load driver's jobs on confluent-kafka, for machines without a C compiler or librdkafka's headers.

The jobs, options and output are those of `native_driver/*.c`, with one gap: librdkafka's interceptors are C only.
Requests are therefore not counted where one holds many records (`requests` is null), and request round trips are
not reported.
"""
