/* Topics, leaders, and the wait of a starting cluster. */
#include "driver.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { RETRY_PAUSE_US = 20000 };

static rd_kafka_t *admin_new(const struct options *options) {
    rd_kafka_conf_t *conf = client_conf(options);
    conf_set(conf, "acks", "all");
    conf_set(conf, "linger.ms", "0");
    /* A starting cluster refuses connections at first: ask again at once. */
    conf_set(conf, "reconnect.backoff.ms", "10");
    conf_set(conf, "reconnect.backoff.max.ms", "20");
    conf_set(conf, "retry.backoff.ms", "10");
    conf_set(conf, "topic.metadata.refresh.fast.interval.ms", "10");
    conf_set(conf, "log_level", "0");
    rd_kafka_conf_set_events(conf, RD_KAFKA_EVENT_DR | RD_KAFKA_EVENT_ERROR);
    char error[256];
    rd_kafka_t *rk = rd_kafka_new(RD_KAFKA_PRODUCER, conf, error, sizeof error);
    if (!rk) fail("%s", error);
    return rk;
}

static rd_kafka_resp_err_t topic_result(rd_kafka_event_t *event, char *text, size_t size) {
    rd_kafka_resp_err_t error = rd_kafka_event_error(event);
    snprintf(text, size, "%s", error ? rd_kafka_event_error_string(event) : "");
    if (error) return error;
    size_t count = 0;
    const rd_kafka_topic_result_t **results =
        rd_kafka_event_type(event) == RD_KAFKA_EVENT_CREATETOPICS_RESULT
            ? rd_kafka_CreateTopics_result_topics(rd_kafka_event_CreateTopics_result(event), &count)
            : rd_kafka_DeleteTopics_result_topics(rd_kafka_event_DeleteTopics_result(event), &count);
    if (count != 1) return RD_KAFKA_RESP_ERR__BAD_MSG;
    error = rd_kafka_topic_result_error(results[0]);
    if (error) {
        const char *reason = rd_kafka_topic_result_error_string(results[0]);
        snprintf(text, size, "%s", reason ? reason : rd_kafka_err2str(error));
    }
    return error;
}

static rd_kafka_resp_err_t create_once(rd_kafka_t *rk, const struct options *options, int timeout_ms, char *text,
                                       size_t size) {
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    rd_kafka_AdminOptions_t *admin = rd_kafka_AdminOptions_new(rk, RD_KAFKA_ADMIN_OP_CREATETOPICS);
    rd_kafka_AdminOptions_set_request_timeout(admin, timeout_ms, NULL, 0);
    rd_kafka_NewTopic_t *topic =
        rd_kafka_NewTopic_new(options->topic, options->partitions, options->replication_factor, text, size);
    if (!topic) fail("%s", text);
    /* Kafka keeps a deleted topic's files for a minute; rows of a benchmark must not fill the disk. */
    rd_kafka_NewTopic_set_config(topic, "file.delete.delay.ms", "500");
    rd_kafka_CreateTopics(rk, &topic, 1, admin, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, timeout_ms + 1000);
    rd_kafka_resp_err_t error = event ? topic_result(event, text, size) : RD_KAFKA_RESP_ERR__TIMED_OUT;
    if (!event) snprintf(text, size, "no answer");
    if (event) rd_kafka_event_destroy(event);
    rd_kafka_NewTopic_destroy(topic);
    rd_kafka_AdminOptions_destroy(admin);
    rd_kafka_queue_destroy(queue);
    return error;
}

/* Partition 0's leader, or -1 while there is none. */
static int leader_of(rd_kafka_t *rk, const struct options *options, char *address, size_t size) {
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, options->topic, NULL);
    const struct rd_kafka_metadata *metadata = NULL;
    int leader = -1;
    if (!rd_kafka_metadata(rk, 0, topic, &metadata, 5000)) {
        const struct rd_kafka_metadata_topic *t = metadata->topics;
        if (metadata->topic_cnt == 1 && t->partition_cnt >= options->partitions)
            for (int i = 0; i < t->partition_cnt; i++)
                if (t->partitions[i].id == 0 && !t->partitions[i].err) leader = t->partitions[i].leader;
        for (int i = 0; i < metadata->broker_cnt; i++)
            if (metadata->brokers[i].id == leader)
                snprintf(address, size, "%s:%d", metadata->brokers[i].host, metadata->brokers[i].port);
        rd_kafka_metadata_destroy(metadata);
    }
    rd_kafka_topic_destroy(topic);
    return leader;
}

static int wait_for_leader(rd_kafka_t *rk, const struct options *options, char *address, size_t size) {
    int64_t deadline = now_us() + (int64_t)options->timeout_ms * 1000;
    for (;;) {
        int leader = leader_of(rk, options, address, size);
        if (leader >= 0) return leader;
        if (now_us() > deadline) fail("topic %s has no leader after %d ms", options->topic, options->timeout_ms);
        sleep_until_us(now_us() + RETRY_PAUSE_US);
    }
}

int run_create(const struct options *options) {
    rd_kafka_t *rk = admin_new(options);
    char text[256] = "", address[128] = "";
    int64_t began = now_us();
    rd_kafka_resp_err_t error = create_once(rk, options, options->timeout_ms, text, sizeof text);
    if (error) fail("create %s: %s", options->topic, text);
    int leader = wait_for_leader(rk, options, address, sizeof address);
    printf("{\"event\":\"result\",\"seconds\":%.6f,\"leader\":%d,\"address\":\"%s\"}\n", (double)(now_us() - began) / 1e6,
           leader, address);
    rd_kafka_destroy(rk);
    return 0;
}

int run_delete(const struct options *options) {
    rd_kafka_t *rk = admin_new(options);
    char text[256] = "";
    rd_kafka_queue_t *queue = rd_kafka_queue_new(rk);
    rd_kafka_DeleteTopic_t *topic = rd_kafka_DeleteTopic_new(options->topic);
    rd_kafka_DeleteTopics(rk, &topic, 1, NULL, queue);
    rd_kafka_event_t *event = rd_kafka_queue_poll(queue, options->timeout_ms);
    if (!event) fail("delete %s: no answer", options->topic);
    if (topic_result(event, text, sizeof text)) fail("delete %s: %s", options->topic, text);
    rd_kafka_event_destroy(event);
    rd_kafka_DeleteTopic_destroy(topic);
    rd_kafka_queue_destroy(queue);
    rd_kafka_destroy(rk);
    printf("{\"event\":\"result\"}\n");
    return 0;
}

int run_leader(const struct options *options) {
    rd_kafka_t *rk = admin_new(options);
    char address[128] = "";
    int leader = wait_for_leader(rk, options, address, sizeof address);
    printf("{\"event\":\"result\",\"leader\":%d,\"address\":\"%s\"}\n", leader, address);
    rd_kafka_destroy(rk);
    return 0;
}

/* Started with the cluster: creates a replicated topic as soon as somebody does it, and times the first
 * acknowledged record. Refused connections and "not enough brokers" are what starting looks like. */
int run_first_ack(const struct options *options) {
    rd_kafka_t *rk = admin_new(options);
    char text[256] = "";
    int64_t deadline = now_us() + (int64_t)options->timeout_ms * 1000;
    emit_event("begin");
    for (;;) {
        rd_kafka_resp_err_t error = create_once(rk, options, 1000, text, sizeof text);
        if (!error || error == RD_KAFKA_RESP_ERR_TOPIC_ALREADY_EXISTS) break;
        if (now_us() > deadline) fail("create %s: %s", options->topic, text);
        sleep_until_us(now_us() + RETRY_PAUSE_US);
    }
    int64_t created = now_us();
    rd_kafka_topic_t *topic = rd_kafka_topic_new(rk, options->topic, NULL);
    rd_kafka_queue_t *queue = rd_kafka_queue_get_main(rk);
    char *payload = calloc(1, (size_t)options->record_bytes);
    if (!payload) fail("out of memory");
    if (rd_kafka_produce(topic, 0, RD_KAFKA_MSG_F_COPY, payload, (size_t)options->record_bytes, NULL, 0, NULL))
        fail("produce: %s", rd_kafka_err2str(rd_kafka_last_error()));
    bool acknowledged = false;
    while (!acknowledged) {
        if (now_us() > deadline) fail("no acknowledgement after %d ms", options->timeout_ms);
        rd_kafka_event_t *event = rd_kafka_queue_poll(queue, 100);
        if (event && rd_kafka_event_type(event) == RD_KAFKA_EVENT_DR) {
            const rd_kafka_message_t *message = rd_kafka_event_message_next(event);
            if (message->err) fail("produce: %s", rd_kafka_err2str(message->err));
            acknowledged = true;
        }
        if (event) rd_kafka_event_destroy(event);
    }
    printf("{\"event\":\"result\",\"acknowledged_us\":%lld,\"created_us\":%lld}\n", (long long)now_us(),
           (long long)created);
    free(payload);
    rd_kafka_queue_destroy(queue);
    rd_kafka_topic_destroy(topic);
    rd_kafka_destroy(rk);
    return 0;
}
