import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Random;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.concurrent.atomic.AtomicReference;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.CommitFailedException;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.ConsumerRecords;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.KafkaException;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.errors.ProducerFencedException;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** Transactions of the Java clients, by the transaction.version of the cluster. Arguments: as of Clients. */
public final class Transactions {
    private static final int PARTITIONS = 3;
    private static final int RECORDS = 1500;
    private static final int MEMBERS = 3;
    private static final int LIMIT_SECONDS = 150;
    private final String bootstrap;
    private final Admin admin;

    private Transactions(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Scenario.settings(bootstrap));
    }

    public static void main(String[] arguments) {
        Transactions clients = new Transactions(arguments[0]);
        Map<String, Scenario.Body> scenarios = new LinkedHashMap<>();
        scenarios.put("transactions commit and abort", clients::commitAndAbort);
        scenarios.put("a second producer fences the first", clients::fence);
        scenarios.put("a transaction is described and aborted by an administrator", clients::administration);
        for (String protocol : List.of("classic", "consumer")) {
            scenarios.put("two stages, exactly once, members come and go, " + protocol, () -> clients.stages(protocol));
        }
        Scenario.runAll(scenarios, Scenario.after(arguments, 1), Duration.ofSeconds(2 * LIMIT_SECONDS));
    }

    private String topic(String what) throws Exception {
        String name = Scenario.freshName(what);
        admin.createTopics(List.of(new NewTopic(name, PARTITIONS, (short) 3))).all().get();
        return name;
    }

    private KafkaProducer<String, String> producer(String transactionalId) {
        Properties settings = Scenario.settings(bootstrap, "transactional.id", transactionalId, "transaction.timeout.ms", "20000");
        KafkaProducer<String, String> producer = new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
        producer.initTransactions();
        return producer;
    }

    private KafkaConsumer<String, String> consumer(String... more) {
        Properties settings = Scenario.settings(bootstrap, more);
        settings.put("isolation.level", "read_committed");
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    /** All committed values, up to the end that readers of committed data are told. */
    private List<String> values(String topic) {
        List<String> found = new ArrayList<>();
        try (KafkaConsumer<String, String> consumer = consumer()) {
            List<TopicPartition> partitions = IntStream.range(0, PARTITIONS).mapToObj(index -> new TopicPartition(topic, index)).toList();
            consumer.assign(partitions);
            Map<TopicPartition, Long> ends = consumer.endOffsets(partitions);
            while (partitions.stream().anyMatch(each -> consumer.position(each) < ends.get(each))) {
                consumer.poll(Duration.ofMillis(200)).forEach(record -> found.add(record.value()));
            }
        }
        return found;
    }

    private String commitAndAbort() throws Exception {
        String topic = topic("committed");
        Set<String> expected = new TreeSet<>();
        try (KafkaProducer<String, String> producer = producer(topic)) {
            for (int number = 0; number < 40; number++) {
                producer.beginTransaction();
                for (int at = 0; at < 5; at++) {
                    String value = number + "/" + at;
                    producer.send(new ProducerRecord<>(topic, at % PARTITIONS, null, value));
                    if (number % 3 != 0) {
                        expected.add(value);
                    }
                }
                if (number % 3 == 0) {
                    producer.flush();
                    producer.abortTransaction();
                } else {
                    producer.commitTransaction();
                }
            }
        }
        List<String> found = values(topic);
        Scenario.checkEquals(expected, new TreeSet<>(found), "committed values");
        Scenario.checkEquals(expected.size(), found.size(), "values, each once");
        return "";
    }

    private String fence() throws Exception {
        String topic = topic("fenced");
        try (KafkaProducer<String, String> zombie = producer(topic)) {
            zombie.beginTransaction();
            zombie.send(new ProducerRecord<>(topic, 0, null, "zombie")).get();
            try (KafkaProducer<String, String> successor = producer(topic)) {
                successor.beginTransaction();
                successor.send(new ProducerRecord<>(topic, 0, null, "successor")).get();
                boolean isFenced = false;
                try {
                    zombie.send(new ProducerRecord<>(topic, 1, null, "zombie"));
                    zombie.commitTransaction();
                } catch (ProducerFencedException fenced) {
                    isFenced = true;
                } catch (KafkaException wrapped) {
                    isFenced = String.valueOf(wrapped).contains("epoch") || wrapped.getCause() instanceof ProducerFencedException;
                }
                Scenario.check(isFenced, "the first producer is fenced");
                successor.commitTransaction();
            }
        }
        Scenario.checkEquals(List.of("successor"), values(topic), "values");
        return "";
    }

    private String administration() throws Exception {
        String topic = topic("described");
        try (KafkaProducer<String, String> producer = producer(topic)) {
            producer.beginTransaction();
            producer.send(new ProducerRecord<>(topic, 0, null, "open")).get();
            var described = admin.describeTransactions(List.of(topic)).description(topic).get();
            Scenario.checkEquals("Ongoing", described.state().toString(), "state");
            Scenario.checkEquals(Set.of(new TopicPartition(topic, 0)), described.topicPartitions(), "partitions");
            Scenario.check(admin.listTransactions().all().get().stream().anyMatch(each -> each.transactionalId().equals(topic)), "it is listed");
            var producers = admin.describeProducers(List.of(new TopicPartition(topic, 0))).partitionResult(new TopicPartition(topic, 0)).get().activeProducers();
            Scenario.checkEquals(1, producers.size(), "producers");
            Scenario.checkEquals(0L, producers.get(0).currentTransactionStartOffset().getAsLong(), "start offset");
            producer.abortTransaction();
        }
        Scenario.checkEquals(List.of(), values(topic), "values");
        return "";
    }

    /** Records go through two stages. Each stage is a group whose members read, write and commit in transactions; now and
     * then a member aborts, closes without leaving a word, or begins anew. */
    private String stages(String protocol) throws Exception {
        String source = topic("stage-0");
        String middle = topic("stage-1");
        String target = topic("stage-2");
        try (KafkaProducer<String, String> producer = producer(source)) {
            for (int first = 0; first < RECORDS; first += 100) {
                producer.beginTransaction();
                for (int number = first; number < first + 100; number++) {
                    producer.send(new ProducerRecord<>(source, number % PARTITIONS, null, String.valueOf(number)));
                }
                producer.commitTransaction();
            }
        }
        AtomicInteger restarts = new AtomicInteger();
        AtomicReference<Throwable> failure = new AtomicReference<>();
        List<Thread> threads = new ArrayList<>();
        for (String[] stage : List.of(new String[] {source, middle}, new String[] {middle, target})) {
            for (int member = 0; member < MEMBERS; member++) {
                Random random = new Random(31L * member + stage[0].hashCode());
                String name = stage[0] + "-" + member;
                Thread thread = new Thread(() -> {
                    try {
                        while (!Thread.interrupted()) {
                            live(name, stage[0], stage[1], protocol, random);
                            restarts.incrementAndGet();
                        }
                    } catch (org.apache.kafka.common.errors.InterruptException ended) {
                        Thread.currentThread().interrupt();
                    } catch (Throwable wrong) {
                        wrong.printStackTrace();
                        failure.set(wrong);
                    }
                });
                thread.setDaemon(true);
                thread.start();
                threads.add(thread);
            }
        }
        try {
            Scenario.eventually(LIMIT_SECONDS, () -> failure.get() != null || values(target).size() >= RECORDS, "all records");
        } finally {
            threads.forEach(Thread::interrupt);
            for (Thread thread : threads) {
                thread.join(20_000);
            }
        }
        Scenario.check(failure.get() == null, "a member failed: " + failure.get());
        List<String> found = values(target);
        Set<String> distinct = new TreeSet<>(found);
        Scenario.checkEquals(RECORDS, distinct.size(), "distinct records");
        Scenario.checkEquals(RECORDS, found.size(), "records, each once");
        return restarts.get() + " restarts of members";
    }

    /** A member, until it has had enough. */
    private void live(String name, String from, String to, String protocol, Random random) {
        String[] settings = {"group.id", from + "-group", "group.protocol", protocol, "max.poll.records", "20"};
        int left = 5 + random.nextInt(20);
        try (KafkaProducer<String, String> producer = producer(name); KafkaConsumer<String, String> consumer = consumer(settings)) {
            consumer.subscribe(List.of(from));
            while (left > 0 && !Thread.currentThread().isInterrupted()) {
                ConsumerRecords<String, String> records = consumer.poll(Duration.ofMillis(200));
                if (records.isEmpty()) {
                    continue;
                }
                left--;
                if (!transform(producer, consumer, records, to, random)) {
                    return;
                }
            }
        }
    }

    /** Whether the producer can go on. */
    private static boolean transform(
        KafkaProducer<String, String> producer, KafkaConsumer<String, String> consumer, ConsumerRecords<String, String> records, String to, Random random
    ) {
        try {
            producer.beginTransaction();
            Map<TopicPartition, OffsetAndMetadata> behind = new HashMap<>();
            for (ConsumerRecord<String, String> record : records) {
                producer.send(new ProducerRecord<>(to, record.partition(), null, record.value()));
                behind.put(new TopicPartition(record.topic(), record.partition()), new OffsetAndMetadata(record.offset() + 1));
            }
            producer.sendOffsetsToTransaction(behind, consumer.groupMetadata());
            if (random.nextInt(6) == 0) {
                producer.abortTransaction();
                rewind(consumer, records.partitions());
            } else {
                producer.commitTransaction();
            }
            return true;
        } catch (ProducerFencedException fenced) {
            return false;
        } catch (org.apache.kafka.common.errors.InterruptException ended) {
            throw ended;
        } catch (CommitFailedException rebalanced) {
            producer.abortTransaction();
            rewind(consumer, records.partitions());
            return true;
        } catch (KafkaException abortable) {
            producer.abortTransaction();
            rewind(consumer, records.partitions());
            return true;
        }
    }

    private static void rewind(KafkaConsumer<String, String> consumer, Collection<TopicPartition> partitions) {
        Set<TopicPartition> assigned = consumer.assignment();
        Map<TopicPartition, OffsetAndMetadata> committed = consumer.committed(assigned);
        for (TopicPartition partition : partitions) {
            if (assigned.contains(partition)) {
                OffsetAndMetadata kept = committed.get(partition);
                consumer.seek(partition, kept == null ? 0 : kept.offset());
            }
        }
    }
}
