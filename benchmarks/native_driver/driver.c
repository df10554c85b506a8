/* Options, clock, histogram and dispatch of the load driver. */
#include "driver.h"

#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

int64_t now_us(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

void sleep_until_us(int64_t when_us) {
    int64_t left_us = when_us - now_us();
    if (left_us <= 0) return;
    struct timespec t = {.tv_sec = left_us / 1000000, .tv_nsec = (left_us % 1000000) * 1000};
    nanosleep(&t, NULL);
}

void emit_event(const char *event) {
    printf("{\"event\":\"%s\",\"monotonic_us\":%lld}\n", event, (long long)now_us());
    fflush(stdout);
}

void fail(const char *format, ...) {
    va_list arguments;
    va_start(arguments, format);
    vfprintf(stderr, format, arguments);
    va_end(arguments);
    fputc('\n', stderr);
    exit(1);
}

static size_t histogram_index(uint64_t value) {
    if (value < HISTOGRAM_SUB) return value;
    int power = 63 - __builtin_clzll(value); /* >= 7 */
    uint64_t step = (value >> (power - 7)) - HISTOGRAM_SUB;
    return (size_t)(power - 6) * HISTOGRAM_SUB + step;
}

static int64_t histogram_value(size_t index) {
    if (index < HISTOGRAM_SUB) return (int64_t)index;
    int power = (int)(index / HISTOGRAM_SUB) + 6;
    uint64_t low = ((uint64_t)HISTOGRAM_SUB + index % HISTOGRAM_SUB) << (power - 7);
    return (int64_t)(low + ((1ULL << (power - 7)) >> 1)); /* middle of the step */
}

void histogram_add(struct histogram *h, int64_t value_us) {
    if (value_us < 0) value_us = 0;
    h->counts[histogram_index((uint64_t)value_us)]++;
    h->total++;
    if (value_us > h->max_us) h->max_us = value_us;
}

void histogram_merge(struct histogram *into, const struct histogram *from) {
    for (size_t i = 0; i < HISTOGRAM_POWERS * HISTOGRAM_SUB; i++) into->counts[i] += from->counts[i];
    into->total += from->total;
    if (from->max_us > into->max_us) into->max_us = from->max_us;
}

int64_t histogram_percentile(const struct histogram *h, double percent) {
    uint64_t wanted = (uint64_t)((double)h->total * percent / 100.0 + 0.5), seen = 0;
    if (wanted == 0) wanted = 1;
    for (size_t i = 0; i < HISTOGRAM_POWERS * HISTOGRAM_SUB; i++) {
        seen += h->counts[i];
        if (seen >= wanted) return histogram_value(i);
    }
    return 0;
}

void histogram_print(const char *name, const struct histogram *h) {
    printf("\"%s\":{\"count\":%llu,\"p50\":%lld,\"p90\":%lld,\"p99\":%lld,\"p99_9\":%lld,\"max\":%lld}", name,
           (unsigned long long)h->total, (long long)histogram_percentile(h, 50),
           (long long)histogram_percentile(h, 90), (long long)histogram_percentile(h, 99),
           (long long)histogram_percentile(h, 99.9), (long long)h->max_us);
}

void conf_set(rd_kafka_conf_t *conf, const char *key, const char *value) {
    char error[256];
    if (rd_kafka_conf_set(conf, key, value, error, sizeof error) != RD_KAFKA_CONF_OK) fail("%s: %s", key, error);
}

void conf_set_int(rd_kafka_conf_t *conf, const char *key, int64_t value) {
    char text[32];
    snprintf(text, sizeof text, "%lld", (long long)value);
    conf_set(conf, key, text);
}

rd_kafka_conf_t *client_conf(const struct options *options) {
    rd_kafka_conf_t *conf = rd_kafka_conf_new();
    conf_set(conf, "bootstrap.servers", options->bootstrap);
    conf_set(conf, "client.id", "varve-bench");
    conf_set(conf, "socket.nagle.disable", "true"); /* its default differs between versions */
    conf_set(conf, "log_level", "3");
    return conf;
}

int64_t log_end(rd_kafka_t *rk, const struct options *options) {
    int64_t low = 0, high = 0, deadline = now_us() + 10 * 1000000;
    rd_kafka_resp_err_t error;
    /* A new or moved leader answers "not leader" for a moment. */
    while ((error = rd_kafka_query_watermark_offsets(rk, options->topic, 0, &low, &high, 5000))) {
        if (now_us() > deadline) fail("watermarks of %s-0: %s", options->topic, rd_kafka_err2str(error));
        sleep_until_us(now_us() + 50000);
    }
    return high;
}

static const struct {
    const char *name;
    int (*run)(const struct options *);
} JOBS[] = {{"create", run_create},   {"delete", run_delete},   {"leader", run_leader},
            {"first-ack", run_first_ack}, {"produce", run_produce}, {"latency", run_latency},
            {"paced", run_paced},     {"consume", run_consume}, {"check", run_check}};

enum { JOB_COUNT = sizeof JOBS / sizeof JOBS[0] };

static void parse_options(int argc, char **argv, struct options *o) {
    static const struct option LONG[] = {
        {"bootstrap", 1, 0, 'b'},   {"topic", 1, 0, 't'},          {"partitions", 1, 0, 'p'},
        {"replication-factor", 1, 0, 'r'}, {"record-bytes", 1, 0, 's'}, {"batch-bytes", 1, 0, 'B'},
        {"in-flight", 1, 0, 'f'},   {"linger-ms", 1, 0, 'l'},      {"producers", 1, 0, 'n'},
        {"rate", 1, 0, 'R'},        {"seconds", 1, 0, 'S'},        {"warmup-seconds", 1, 0, 'W'},
        {"total-records", 1, 0, 'T'}, {"expect-records", 1, 0, 'E'}, {"timeout-ms", 1, 0, 'm'}, {0, 0, 0, 0}};
    for (int c; (c = getopt_long(argc, argv, "", LONG, NULL)) != -1;) {
        switch (c) {
        case 'b': o->bootstrap = optarg; break;
        case 't': o->topic = optarg; break;
        case 'p': o->partitions = atoi(optarg); break;
        case 'r': o->replication_factor = atoi(optarg); break;
        case 's': o->record_bytes = atoi(optarg); break;
        case 'B': o->batch_bytes = atoi(optarg); break;
        case 'f': o->in_flight = atoi(optarg); break;
        case 'l': o->linger_ms = atoi(optarg); break;
        case 'n': o->producers = atoi(optarg); break;
        case 'R': o->rate = atof(optarg); break;
        case 'S': o->seconds = atof(optarg); break;
        case 'W': o->warmup_seconds = atof(optarg); break;
        case 'T': o->total_records = atoll(optarg); break;
        case 'E': o->expect_records = atoll(optarg); break;
        case 'm': o->timeout_ms = atoi(optarg); break;
        default: exit(2);
        }
    }
    if (!o->topic) fail("--topic is missing");
    if (o->record_bytes < 8 || o->producers < 1 || o->partitions < 1 || o->rate <= 0) fail("an option is out of range");
}

int main(int argc, char **argv) {
    struct options options = {.bootstrap = "localhost:19092", .partitions = 1, .replication_factor = 3,
                              .record_bytes = 1024, .batch_bytes = 16384, .in_flight = 5, .linger_ms = 5,
                              .producers = 1, .rate = 500, .seconds = 5, .warmup_seconds = 1, .timeout_ms = 60000};
    if (argc == 2 && !strcmp(argv[1], "version")) {
        printf("%s\n", rd_kafka_version_str());
        return 0;
    }
    if (argc < 2) fail("usage: driver JOB --bootstrap HOST:PORT --topic NAME ...");
    parse_options(argc - 1, argv + 1, &options);
    for (int i = 0; i < JOB_COUNT; i++)
        if (!strcmp(argv[1], JOBS[i].name)) return JOBS[i].run(&options);
    fail("no such job: %s", argv[1]);
}
