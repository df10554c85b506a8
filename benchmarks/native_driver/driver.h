/* The load driver of scripts/bench: shared declarations.
 *
 * One process, one job, JSON lines on stdout: {"event":"begin"} when the measured window opens,
 * {"event":"end"} when it closes (the harness samples the brokers' CPU at both), and one
 * {"event":"result", ...} at the end. Times are CLOCK_MONOTONIC microseconds.
 */
#ifndef VARVE_BENCH_DRIVER_H
#define VARVE_BENCH_DRIVER_H

#include <librdkafka/rdkafka.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>

struct options {
    const char *bootstrap;
    const char *topic;
    int partitions;
    int replication_factor;
    int record_bytes;
    int batch_bytes;
    int in_flight;
    int linger_ms;
    int producers;
    double rate;           /* records per second, paced mode */
    double seconds;        /* length of the measured window */
    double warmup_seconds; /* load before the window opens */
    int64_t total_records; /* produce: stop after so many (0: by time) */
    int64_t expect_records;
    int timeout_ms;
};

/* Log-linear histogram of microseconds: 128 steps per power of two, below 0.8 % error, 58 KB. */
enum { HISTOGRAM_SUB = 128, HISTOGRAM_POWERS = 57 };
struct histogram {
    uint64_t counts[HISTOGRAM_POWERS * HISTOGRAM_SUB];
    uint64_t total;
    int64_t max_us;
};

void histogram_add(struct histogram *h, int64_t value_us);
void histogram_merge(struct histogram *into, const struct histogram *from);
int64_t histogram_percentile(const struct histogram *h, double percent);
/* Prints `"name":{"count":..,"p50":..,"p90":..,"p99":..,"p99_9":..,"max":..}` without a trailing comma. */
void histogram_print(const char *name, const struct histogram *h);

int64_t now_us(void);
void sleep_until_us(int64_t when_us);
void emit_event(const char *event);
/* Prints the message to stderr and ends the process with status 1. */
void fail(const char *format, ...) __attribute__((format(printf, 1, 2), noreturn));

void conf_set(rd_kafka_conf_t *conf, const char *key, const char *value);
void conf_set_int(rd_kafka_conf_t *conf, const char *key, int64_t value);
rd_kafka_conf_t *client_conf(const struct options *options);
/* High watermark of partition 0. */
int64_t log_end(rd_kafka_t *rk, const struct options *options);

int run_create(const struct options *options);
int run_delete(const struct options *options);
int run_leader(const struct options *options);
int run_first_ack(const struct options *options);
int run_produce(const struct options *options);
int run_latency(const struct options *options);
int run_paced(const struct options *options);
int run_consume(const struct options *options);
int run_check(const struct options *options);

#endif
