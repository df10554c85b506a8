import java.time.Duration;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.concurrent.atomic.AtomicLong;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.LongDeserializer;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.KStream;
import org.apache.kafka.streams.kstream.Materialized;
import org.apache.kafka.streams.kstream.Produced;

/**
 * Counts words with Kafka Streams for a while, and watches the repartition topic: its records are deleted once they are
 * read (DeleteRecords, repartition.purge.interval.ms), so what it keeps must not grow with what went through it, and the
 * counts must be right. Arguments: bootstrap servers, seconds, folder for the state.
 */
public final class WordCount {
    private static final int PARTITIONS = 4;
    private static final int LINES_PER_SECOND = 1000;
    private static final int WORDS_PER_LINE = 4;
    private static final int WORDS = 500;
    /** How far the job may lag behind on a slow machine when the last line is in. */
    private static final int CATCH_UP_SECONDS = 90;
    /** A repartitioned record carries this much beside its word, so that segments fill. */
    private static final String PADDING = "x".repeat(200);
    /** The least that Kafka allows. Whole segments go, so each replica keeps up to one of them, and the one being written. */
    private static final long SEGMENT_BYTES = 1 << 20;
    /** Records that the job has committed are purged within a purge interval, with a margin for a slow machine. */
    private static final long MAX_UNPURGED_RECORDS = 10L * LINES_PER_SECOND * WORDS_PER_LINE;
    /** Disk of a replica, beside what the job has still to read. */
    private static final long MAX_DISK_BYTES_PER_REPLICA = 6 * SEGMENT_BYTES;
    private static final long MAX_RECORD_BYTES = 256;

    private final String bootstrap;
    private final Admin admin;
    private final String application = Scenario.freshName("wordcount");
    private final String input = application + "-lines";
    private final String output = application + "-counts";
    private final String repartition = application + "-words-repartition";
    private final Map<String, Long> expected = new HashMap<>();
    private long maxUnpurged;
    private long maxUnread;
    private long maxDisk;

    private WordCount(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Scenario.settings(bootstrap));
    }

    public static void main(String[] arguments) {
        int seconds = Integer.parseInt(arguments[1]);
        WordCount job = new WordCount(arguments[0]);
        Map<String, Scenario.Body> scenarios = new LinkedHashMap<>();
        scenarios.put("word count, its repartition topic stays small", () -> job.run(seconds, arguments[2]));
        Scenario.runAll(scenarios, List.of(), Duration.ofSeconds(seconds + 2 * CATCH_UP_SECONDS));
    }

    private String run(int seconds, String folder) throws Exception {
        admin.createTopics(List.of(new NewTopic(input, PARTITIONS, (short) 3), new NewTopic(output, PARTITIONS, (short) 3))).all().get();
        try (KafkaStreams streams = new KafkaStreams(topology().build(), settings(folder))) {
            AtomicLong failures = new AtomicLong();
            streams.setUncaughtExceptionHandler(failure -> {
                failure.printStackTrace();
                failures.incrementAndGet();
                return org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse.SHUTDOWN_CLIENT;
            });
            streams.start();
            feed(seconds);
            Scenario.checkEquals(0L, failures.get(), "failed stream threads");
            checkCounts();
            long through = expected.values().stream().mapToLong(Long::longValue).sum();
            Scenario.eventually(() -> offsets(OffsetSpec.latest()) == offsets(OffsetSpec.earliest()), "the last records to be purged");
            return String.format("%d s, %d records through the repartition topic; at most %d read and not purged, %d unread, %.1f MB in a replica's folder",
                seconds, through, maxUnpurged, maxUnread, maxDisk / 1e6);
        }
    }

    private Properties settings(String folder) {
        return Scenario.settings(bootstrap,
            StreamsConfig.APPLICATION_ID_CONFIG, application,
            StreamsConfig.STATE_DIR_CONFIG, folder,
            StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.AT_LEAST_ONCE,
            StreamsConfig.REPARTITION_PURGE_INTERVAL_MS_CONFIG, "1000",
            StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "1000",
            StreamsConfig.REPLICATION_FACTOR_CONFIG, "3",
            StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest",
            StreamsConfig.topicPrefix("segment.bytes"), String.valueOf(SEGMENT_BYTES),
            StreamsConfig.topicPrefix("file.delete.delay.ms"), "1000");
    }

    private StreamsBuilder topology() {
        StreamsBuilder builder = new StreamsBuilder();
        KStream<String, String> lines = builder.stream(input, Consumed.with(Serdes.String(), Serdes.String()));
        lines.flatMapValues(line -> List.of(line.split(" ")))
            .map((key, word) -> org.apache.kafka.streams.KeyValue.pair(word, PADDING))
            .groupByKey(Grouped.with("words", Serdes.String(), Serdes.String()))
            .count(Materialized.as("counts"))
            .toStream()
            .to(output, Produced.with(Serdes.String(), Serdes.Long()));
        return builder;
    }

    /** Lines at a steady rate, and once a second a look at the repartition topic. */
    private void feed(int seconds) throws Exception {
        try (KafkaProducer<String, String> producer = new KafkaProducer<>(
                Scenario.settings(bootstrap, "linger.ms", "20"), new StringSerializer(), new StringSerializer())) {
            long started = System.nanoTime();
            for (int second = 0; second < seconds; second++) {
                for (int line = 0; line < LINES_PER_SECOND; line++) {
                    producer.send(new ProducerRecord<>(input, line % PARTITIONS, null, line(second * LINES_PER_SECOND + line)));
                }
                producer.flush();
                lookAtRepartitionTopic();
                long sleepMs = (second + 1) * 1000L - (System.nanoTime() - started) / 1_000_000;
                Thread.sleep(Math.max(0, sleepMs));
            }
        }
    }

    private String line(int number) {
        StringBuilder line = new StringBuilder();
        for (int index = 0; index < WORDS_PER_LINE; index++) {
            String word = "w" + (number * 31L + index * 17L) % WORDS;
            expected.merge(word, 1L, Long::sum);
            line.append(index == 0 ? "" : " ").append(word);
        }
        return line.toString();
    }

    private void lookAtRepartitionTopic() throws Exception {
        if (!admin.listTopics().names().get().contains(repartition)) {
            return; // the job is only starting
        }
        long earliest = offsets(OffsetSpec.earliest());
        long committed = admin.listConsumerGroupOffsets(application).partitionsToOffsetAndMetadata().get().entrySet().stream()
            .filter(kept -> kept.getKey().topic().equals(repartition) && kept.getValue() != null)
            .mapToLong(kept -> kept.getValue().offset())
            .sum();
        long unread = offsets(OffsetSpec.latest()) - committed;
        long unpurged = committed - earliest;
        long disk = largestReplica();
        maxUnread = Math.max(maxUnread, unread);
        maxUnpurged = Math.max(maxUnpurged, unpurged);
        maxDisk = Math.max(maxDisk, disk);
        Scenario.check(unpurged <= MAX_UNPURGED_RECORDS, "the repartition topic keeps " + unpurged + " records that are read");
        Scenario.check(disk <= MAX_DISK_BYTES_PER_REPLICA + unread * MAX_RECORD_BYTES,
            "a replica of it takes " + disk + " bytes, and only " + unread + " records are unread");
    }

    /** The sum over the partitions of the repartition topic. */
    private long offsets(OffsetSpec which) {
        Map<TopicPartition, OffsetSpec> asked = new HashMap<>();
        for (int index = 0; index < PARTITIONS; index++) {
            asked.put(new TopicPartition(repartition, index), which);
        }
        try {
            return admin.listOffsets(asked).all().get().values().stream().mapToLong(found -> found.offset()).sum();
        } catch (Exception wrong) {
            throw new AssertionError("the repartition topic could not be looked at: " + wrong, wrong);
        }
    }

    private long largestReplica() throws Exception {
        List<Integer> nodes = admin.describeCluster().nodes().get().stream().map(node -> node.id()).toList();
        return admin.describeLogDirs(nodes).allDescriptions().get().values().stream()
            .flatMap(folders -> folders.values().stream())
            .flatMap(folder -> folder.replicaInfos().entrySet().stream())
            .filter(replica -> replica.getKey().topic().equals(repartition))
            .mapToLong(replica -> replica.getValue().size())
            .max().orElse(0);
    }

    /** The last count of each word is how often it was sent: nothing failed, so at-least-once is exactly once here. */
    private void checkCounts() throws Exception {
        Map<String, Long> counted = new HashMap<>();
        Properties settings = Scenario.settings(bootstrap, "auto.offset.reset", "earliest");
        try (KafkaConsumer<String, Long> consumer = new KafkaConsumer<>(settings, new StringDeserializer(), new LongDeserializer())) {
            List<TopicPartition> partitions = new java.util.ArrayList<>();
            for (int index = 0; index < PARTITIONS; index++) {
                partitions.add(new TopicPartition(output, index));
            }
            consumer.assign(partitions);
            Scenario.eventually(CATCH_UP_SECONDS, () -> {
                consumer.poll(Duration.ofMillis(200)).forEach(record -> counted.put(record.key(), record.value()));
                return counted.equals(expected);
            }, "the right counts");
        }
    }
}
