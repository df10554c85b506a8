/* The producing jobs: throughput, one record in flight, and a steady pace.
 *
 * Each record's delivery report is waited for and counted; a record without one, or with an error, is an
 * error of the run. Request round trips are taken by an interceptor in librdkafka's broker thread.
 */
#include "driver.h"

#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { API_PRODUCE = 0, FLUSH_TIMEOUT_US = 60 * 1000000 };

struct producer {
    const struct options *options;
    rd_kafka_t *rk;
    rd_kafka_topic_t *topic;
    rd_kafka_queue_t *queue;
    pthread_mutex_t lock; /* guards `rtt` and `requests`: two broker threads may report */
    struct histogram rtt;
    int64_t requests;
    struct histogram latency; /* record: produce() to delivery report, inside the window */
    int64_t window_records;   /* acknowledged inside the window */
    _Atomic int64_t acknowledged, errors;
    _Atomic bool window_open, stop;
    int64_t last_ack_us, longest_gap_us, gap_began_us; /* paced job */
    char first_error[160];
};

static rd_kafka_resp_err_t on_response(rd_kafka_t *rk, int fd, const char *broker, int32_t broker_id, int16_t api_key,
                                       int16_t api_version, int32_t correlation_id, size_t size, int64_t rtt_us,
                                       rd_kafka_resp_err_t error, void *opaque) {
    (void)rk, (void)fd, (void)broker, (void)broker_id, (void)api_version, (void)correlation_id, (void)size, (void)error;
    struct producer *p = opaque;
    if (api_key == API_PRODUCE && atomic_load(&p->window_open)) {
        pthread_mutex_lock(&p->lock);
        p->requests++;
        histogram_add(&p->rtt, rtt_us);
        pthread_mutex_unlock(&p->lock);
    }
    return RD_KAFKA_RESP_ERR_NO_ERROR;
}

static rd_kafka_resp_err_t on_new(rd_kafka_t *rk, const rd_kafka_conf_t *conf, void *opaque, char *error, size_t size) {
    (void)conf, (void)error, (void)size;
    return rd_kafka_interceptor_add_on_response_received(rk, "bench", on_response, opaque);
}

static struct producer *producer_new(const struct options *options, int in_flight, int linger_ms, bool idempotent) {
    struct producer *p = calloc(1, sizeof *p);
    if (!p) fail("out of memory");
    p->options = options;
    pthread_mutex_init(&p->lock, NULL);
    rd_kafka_conf_t *conf = client_conf(options);
    conf_set(conf, "acks", "all");
    conf_set(conf, "enable.idempotence", idempotent ? "true" : "false");
    conf_set_int(conf, "max.in.flight.requests.per.connection", in_flight);
    conf_set_int(conf, "linger.ms", linger_ms);
    conf_set_int(conf, "batch.size", options->batch_bytes);
    conf_set_int(conf, "batch.num.messages", 1000000); /* so that bytes alone decide */
    conf_set_int(conf, "queue.buffering.max.messages", 200000);
    conf_set_int(conf, "queue.buffering.max.kbytes", 65536);
    rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR);
    rd_kafka_conf_interceptor_add_on_new(conf, "bench", on_new, p);
    char error[256];
    p->rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof error);
    if (!p->rk) fail("%s", error);
    p->topic = rd_kafka_topic_new(p->rk, options->topic, NULL);
    p->queue = rd_kafka_queue_get_main(p->rk);
    return p;
}

static void producer_close(struct producer *p) {
    rd_kafka_queue_destroy(p->queue);
    rd_kafka_topic_destroy(p->topic);
    rd_kafka_destroy(p->rk);
    free(p);
}

static void count_report(struct producer *p, const rd_kafka_message_t *message, int64_t now) {
    if (message->err) {
        if (atomic_fetch_add(&p->errors, 1) == 0)
            snprintf(p->first_error, sizeof p->first_error, "%s", rd_kafka_err2str(message->err));
        return;
    }
    atomic_fetch_add(&p->acknowledged, 1);
    if (!atomic_load(&p->window_open)) return;
    p->window_records++;
    histogram_add(&p->latency, rd_kafka_message_latency(message));
    if (p->last_ack_us && now - p->last_ack_us > p->longest_gap_us) {
        p->longest_gap_us = now - p->last_ack_us;
        p->gap_began_us = p->last_ack_us;
    }
    p->last_ack_us = now;
}

static void poll_reports(struct producer *p, int timeout_ms) {
    rd_kafka_event_t *event = rd_kafka_queue_poll(p->queue, timeout_ms);
    if (!event) return;
    int64_t now = now_us();
    const rd_kafka_message_t *message;
    while ((message = rd_kafka_event_message_next(event))) count_report(p, message, now);
    rd_kafka_event_destroy(event);
}

static void *report_thread(void *argument) {
    struct producer *p = argument;
    while (!atomic_load(&p->stop)) poll_reports(p, 50);
    return NULL;
}

/* Waits until every produced record was reported. What was not is an error of the run. */
static void drain(struct producer *p, int64_t produced) {
    int64_t deadline = now_us() + FLUSH_TIMEOUT_US;
    while (p->acknowledged + p->errors < produced && now_us() < deadline) sleep_until_us(now_us() + 5000);
    int64_t missing = produced - p->acknowledged - p->errors;
    if (missing && !p->errors) snprintf(p->first_error, sizeof p->first_error, "no delivery report in time");
    p->errors += missing;
}

static char *random_payload(int size) {
    char *payload = malloc((size_t)size);
    if (!payload) fail("out of memory");
    uint32_t x = 2463534242u; /* xorshift: incompressible, the same in each run */
    for (int i = 0; i < size; i++) {
        x ^= x << 13, x ^= x >> 17, x ^= x << 5;
        payload[i] = (char)x;
    }
    return payload;
}

static void print_result(const struct producer *p, int64_t produced, double window_seconds, int64_t log_growth) {
    printf("{\"event\":\"result\",\"records\":%lld,\"bytes\":%lld,\"seconds\":%.6f,\"requests\":%lld,\"produced\":%lld,"
           "\"acknowledged\":%lld,\"errors\":%lld,\"log_growth\":%lld,\"longest_gap_us\":%lld,"
           "\"gap_began_us\":%lld,\"first_error\":\"%s\",",
           (long long)p->window_records, (long long)p->window_records * p->options->record_bytes, window_seconds,
           (long long)p->requests, (long long)produced, (long long)p->acknowledged, (long long)p->errors,
           (long long)log_growth, (long long)p->longest_gap_us, (long long)p->gap_began_us, p->first_error);
    histogram_print("request_us", &p->rtt);
    printf(",");
    histogram_print("record_us", &p->latency);
    printf("}\n");
    fflush(stdout);
}

int run_produce(const struct options *options) {
    struct producer *p = producer_new(options, options->in_flight, options->linger_ms, false);
    char *payload = random_payload(options->record_bytes);
    int64_t before = log_end(p->rk, options), produced = 0;
    pthread_t reporter;
    pthread_create(&reporter, NULL, report_thread, p);
    int64_t began = now_us(), open_at = began + (int64_t)(options->warmup_seconds * 1e6), opened = 0, closed = 0;
    int64_t close_at = open_at + (int64_t)(options->seconds * 1e6);
    for (int64_t now = began;; produced++) {
        if (options->total_records ? produced == options->total_records : now >= close_at) break;
        if (!opened && now >= open_at) {
            atomic_store(&p->window_open, true);
            emit_event("begin");
            opened = now_us();
        }
        /* No copy: the one payload outlives the producer. Blocks while the queue is full. */
        if (rd_kafka_produce(p->topic, 0, RD_KAFKA_MSG_F_BLOCK, payload, (size_t)options->record_bytes, NULL, 0, NULL))
            fail("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
        if (produced % 16 == 0) now = now_us();
    }
    if (options->total_records) drain(p, produced); /* the window ends with the last acknowledgement */
    atomic_store(&p->window_open, false);
    closed = now_us();
    if (!opened) opened = closed;
    emit_event("end");
    drain(p, produced);
    atomic_store(&p->stop, true);
    pthread_join(reporter, NULL);
    print_result(p, produced, (double)(closed - opened) / 1e6, log_end(p->rk, options) - before);
    producer_close(p);
    free(payload);
    return 0;
}

/* One record in flight: the next is produced when the last was reported. */
static void *latency_thread(void *argument) {
    struct producer *p = argument;
    char *payload = random_payload(p->options->record_bytes);
    int64_t produced = 0;
    while (!atomic_load(&p->stop)) {
        if (rd_kafka_produce(p->topic, 0, 0, payload, (size_t)p->options->record_bytes, NULL, 0, NULL))
            fail("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
        produced++;
        int64_t deadline = now_us() + FLUSH_TIMEOUT_US;
        while (p->acknowledged + p->errors < produced) {
            poll_reports(p, 1000);
            if (now_us() > deadline) fail("no delivery report within %d s", FLUSH_TIMEOUT_US / 1000000);
        }
    }
    free(payload);
    return NULL;
}

int run_latency(const struct options *options) {
    int n = options->producers;
    struct producer **producers = calloc((size_t)n, sizeof *producers);
    pthread_t *threads = calloc((size_t)n, sizeof *threads);
    if (!producers || !threads) fail("out of memory");
    for (int i = 0; i < n; i++) producers[i] = producer_new(options, 1, 0, false);
    int64_t before = log_end(producers[0]->rk, options);
    for (int i = 0; i < n; i++) pthread_create(&threads[i], NULL, latency_thread, producers[i]);
    sleep_until_us(now_us() + (int64_t)(options->warmup_seconds * 1e6));
    emit_event("begin");
    int64_t opened = now_us();
    for (int i = 0; i < n; i++) atomic_store(&producers[i]->window_open, true);
    sleep_until_us(opened + (int64_t)(options->seconds * 1e6));
    for (int i = 0; i < n; i++) atomic_store(&producers[i]->window_open, false);
    int64_t closed = now_us();
    emit_event("end");
    struct producer *sum = calloc(1, sizeof *sum);
    if (!sum) fail("out of memory");
    sum->options = options;
    for (int i = 0; i < n; i++) {
        struct producer *p = producers[i];
        atomic_store(&p->stop, true);
        pthread_join(threads[i], NULL);
        sum->window_records += p->window_records;
        sum->requests += p->requests;
        sum->acknowledged += p->acknowledged;
        sum->errors += p->errors;
        if (p->first_error[0]) memcpy(sum->first_error, p->first_error, sizeof sum->first_error);
        histogram_merge(&sum->rtt, &p->rtt);
        histogram_merge(&sum->latency, &p->latency);
    }
    int64_t log_growth = log_end(producers[0]->rk, options) - before;
    print_result(sum, sum->acknowledged + sum->errors, (double)(closed - opened) / 1e6, log_growth);
    for (int i = 0; i < n; i++) producer_close(producers[i]);
    free(sum), free(producers), free(threads);
    return 0;
}

/* Open loop at `rate` records/s, idempotent, client defaults else; the first 8 bytes are the sequence. */
int run_paced(const struct options *options) {
    struct producer *p = producer_new(options, 5, options->linger_ms, true);
    char *payload = random_payload(options->record_bytes);
    int64_t before = log_end(p->rk, options);
    pthread_t reporter;
    pthread_create(&reporter, NULL, report_thread, p);
    int64_t produced = 0, opened = 0;
    int64_t began = now_us(), total = (int64_t)(options->rate * (options->warmup_seconds + options->seconds));
    for (; produced < total; produced++) {
        sleep_until_us(began + (int64_t)((double)produced * 1e6 / options->rate));
        if (!opened && now_us() >= began + (int64_t)(options->warmup_seconds * 1e6)) {
            atomic_store(&p->window_open, true);
            emit_event("begin");
            opened = now_us();
        }
        memcpy(payload, &produced, sizeof produced);
        if (rd_kafka_produce(p->topic, 0, RD_KAFKA_MSG_F_COPY | RD_KAFKA_MSG_F_BLOCK, payload,
                             (size_t)options->record_bytes, NULL, 0, NULL))
            fail("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
    }
    if (!opened) opened = now_us();
    drain(p, produced); /* a gap that lasts to the end of the run counts in full */
    atomic_store(&p->window_open, false);
    int64_t closed = now_us();
    emit_event("end");
    atomic_store(&p->stop, true);
    pthread_join(reporter, NULL);
    print_result(p, produced, (double)(closed - opened) / 1e6, log_end(p->rk, options) - before);
    producer_close(p);
    free(payload);
    return 0;
}
