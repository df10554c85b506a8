/* The reading jobs: catch-up throughput of one assigned partition, and the check of a paced run. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { BATCH_RECORDS = 20000 };

struct reader {
    rd_kafka_t *rk;
    rd_kafka_queue_t *queue;
    rd_kafka_message_t **batch;
};

static void reader_open(struct reader *r, const struct options *options) {
    rd_kafka_conf_t *conf = client_conf(options);
    conf_set(conf, "group.id", "varve-bench"); /* demanded by the API; partitions are assigned, no group is joined */
    conf_set(conf, "enable.auto.commit", "false");
    conf_set(conf, "auto.offset.reset", "error");
    /* The queue must never be what stops fetching: librdkafka then backs off for up to a second. */
    conf_set_int(conf, "queued.min.messages", 2000000);
    conf_set_int(conf, "queued.max.messages.kbytes", 262144);
    char error[256];
    r->rk = rd_kafka_new(RD_KAFKA_CONSUMER, conf, error, sizeof error);
    if (!r->rk) fail("%s", error);
    rd_kafka_poll_set_consumer(r->rk);
    r->queue = rd_kafka_queue_get_consumer(r->rk);
    r->batch = malloc(BATCH_RECORDS * sizeof *r->batch);
    if (!r->batch) fail("out of memory");
}

static void reader_assign(struct reader *r, const struct options *options) {
    rd_kafka_topic_partition_list_t *partitions = rd_kafka_topic_partition_list_new(1);
    rd_kafka_topic_partition_list_add(partitions, options->topic, 0)->offset = 0;
    rd_kafka_resp_err_t error = rd_kafka_assign(r->rk, partitions);
    if (error) fail("assign: %s", rd_kafka_err2str(error));
    rd_kafka_topic_partition_list_destroy(partitions);
}

static void reader_close(struct reader *r) {
    free(r->batch);
    rd_kafka_queue_destroy(r->queue);
    rd_kafka_consumer_close(r->rk);
    rd_kafka_destroy(r->rk);
}

struct pass {
    int64_t records, bytes, errors, timed_records, timed_bytes, first_us, last_us;
};

/* Reads offsets 0..expected-1, each exactly once and in order; anything else is an error of the run. The clock
 * runs from the first records to the last, so what came with the first batch is not in the timed amount. */
static struct pass read_through(const struct options *options, int64_t expected, uint8_t *seen) {
    struct reader r;
    struct pass pass = {0};
    reader_open(&r, options);
    reader_assign(&r, options);
    int64_t next_offset = 0, progress_us = now_us();
    while (next_offset < expected) {
        ssize_t n = rd_kafka_consume_batch_queue(r.queue, 100, r.batch, BATCH_RECORDS);
        int64_t now = now_us();
        if (n < 0) fail("consume: %s", rd_kafka_err2str(rd_kafka_last_error()));
        if (n == 0 && now - progress_us > (int64_t)options->timeout_ms * 1000) {
            pass.errors += expected - next_offset;
            break;
        }
        for (ssize_t i = 0; i < n; i++) {
            rd_kafka_message_t *message = r.batch[i];
            if (message->err) {
                fprintf(stderr, "consume: %s\n", rd_kafka_message_errstr(message));
                pass.errors++;
            } else {
                if (message->offset != next_offset) pass.errors++;
                next_offset = message->offset + 1;
                pass.records++;
                pass.bytes += (int64_t)message->len;
                if (seen && message->len >= sizeof(int64_t)) {
                    int64_t sequence;
                    memcpy(&sequence, message->payload, sizeof sequence);
                    if (sequence >= 0 && sequence < options->expect_records) {
                        if (seen[sequence] < UINT8_MAX) seen[sequence]++;
                    } else {
                        pass.errors++;
                    }
                }
            }
            rd_kafka_message_destroy(message);
        }
        if (n > 0) {
            if (!pass.first_us) pass.first_us = now, pass.timed_records = -pass.records, pass.timed_bytes = -pass.bytes;
            pass.last_us = progress_us = now;
        }
    }
    pass.timed_records += pass.records, pass.timed_bytes += pass.bytes;
    reader_close(&r);
    return pass;
}

int run_consume(const struct options *options) {
    struct pass sum = {0};
    double seconds = 0;
    int passes = 0;
    emit_event("begin");
    for (int64_t began = now_us(); now_us() < began + (int64_t)(options->seconds * 1e6) || passes == 0; passes++) {
        struct pass pass = read_through(options, options->expect_records, NULL);
        sum.records += pass.records, sum.bytes += pass.bytes, sum.errors += pass.errors;
        sum.timed_records += pass.timed_records, sum.timed_bytes += pass.timed_bytes;
        seconds += (double)(pass.last_us - pass.first_us) / 1e6;
        if (pass.errors) break;
    }
    emit_event("end");
    printf("{\"event\":\"result\",\"records\":%lld,\"bytes\":%lld,\"timed_records\":%lld,\"timed_bytes\":%lld,"
           "\"seconds\":%.6f,\"passes\":%d,\"errors\":%lld}\n",
           (long long)sum.records, (long long)sum.bytes, (long long)sum.timed_records, (long long)sum.timed_bytes,
           seconds, passes, (long long)sum.errors);
    return 0;
}

/* Are the sequences 0..expect_records-1 of a paced run all in the log, each once? */
int run_check(const struct options *options) {
    struct reader r;
    reader_open(&r, options);
    int64_t end_offset = log_end(r.rk, options);
    reader_close(&r);
    uint8_t *seen = calloc((size_t)options->expect_records + 1, 1);
    if (!seen) fail("out of memory");
    struct pass pass = read_through(options, end_offset, seen);
    int64_t missing = 0, duplicates = 0;
    for (int64_t i = 0; i < options->expect_records; i++) {
        if (!seen[i]) missing++;
        if (seen[i] > 1) duplicates += seen[i] - 1;
    }
    printf("{\"event\":\"result\",\"records\":%lld,\"missing\":%lld,\"duplicates\":%lld,\"errors\":%lld}\n",
           (long long)pass.records, (long long)missing, (long long)duplicates, (long long)pass.errors);
    free(seen);
    return 0;
}
