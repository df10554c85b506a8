import static java.util.stream.Collectors.toList;

import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Properties;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Future;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.regex.Pattern;
import java.util.stream.IntStream;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.consumer.ConsumerRebalanceListener;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.apache.kafka.clients.consumer.KafkaConsumer;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.serialization.StringDeserializer;
import org.apache.kafka.common.serialization.StringSerializer;

/** The Java producer, and the consumer in both group protocols. Arguments: bootstrap servers, parts of names of scenarios (default: all). */
public final class Clients {
    private static final int PARTITIONS = 6;
    private static final int RECORDS = 600;
    private final String bootstrap;
    private final Admin admin;

    private Clients(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Scenario.settings(bootstrap));
    }

    public static void main(String[] arguments) {
        Clients clients = new Clients(arguments[0]);
        Map<String, Scenario.Body> scenarios = new LinkedHashMap<>();
        for (String codec : List.of("none", "gzip", "snappy", "lz4", "zstd")) {
            scenarios.put("produce and read back, " + codec, () -> clients.produceAndReadBack(codec));
        }
        scenarios.put("seek, pause, offsets by time", clients::seekPauseAndTimes);
        for (String protocol : List.of("classic", "consumer")) {
            scenarios.put("group commits and resumes, " + protocol, () -> clients.commitAndResume(protocol));
            scenarios.put("group rebalances, " + protocol, () -> clients.rebalance(protocol));
            scenarios.put("static member returns, " + protocol, () -> clients.staticMember(protocol));
            scenarios.put("pattern subscription, " + protocol, () -> clients.pattern(protocol));
        }
        scenarios.put("group rebalances cooperatively, classic", clients::cooperative);
        Scenario.runAll(scenarios, Scenario.after(arguments, 1), Scenario.LIMIT);
    }

    // -- helpers ---------------------------------------------------------------------------------------------

    private String topic(String what) throws Exception {
        String name = Scenario.freshName(what);
        admin.createTopics(List.of(new NewTopic(name, PARTITIONS, (short) 3))).all().get();
        return name;
    }

    private KafkaProducer<String, String> producer(String codec) {
        Properties settings = Scenario.settings(bootstrap, "compression.type", codec, "linger.ms", "5");
        return new KafkaProducer<>(settings, new StringSerializer(), new StringSerializer());
    }

    private KafkaConsumer<String, String> consumer(String group, String protocol, String... more) {
        Properties settings = Scenario.settings(bootstrap, more);
        settings.put("group.id", group);
        settings.put("group.protocol", protocol);
        settings.put("auto.offset.reset", "earliest");
        settings.put("enable.auto.commit", "false");
        return new KafkaConsumer<>(settings, new StringDeserializer(), new StringDeserializer());
    }

    private void fill(String topic, String codec) throws Exception {
        try (KafkaProducer<String, String> producer = producer(codec)) {
            List<Future<RecordMetadata>> sent = new ArrayList<>();
            for (int number = 0; number < RECORDS; number++) {
                ProducerRecord<String, String> record = new ProducerRecord<>(
                    topic, number % PARTITIONS, Scenario.FIRST_TIMESTAMP_MS + number, "k" + number, "value " + number);
                record.headers().add("number", String.valueOf(number).getBytes());
                sent.add(producer.send(record));
            }
            for (int number = 0; number < RECORDS; number++) {
                Scenario.checkEquals((long) (number / PARTITIONS), sent.get(number).get().offset(), "offset of " + number);
            }
        }
    }

    /** Values until there are `count`, or the time to wait has passed. */
    private static List<ConsumerRecord<String, String>> read(KafkaConsumer<String, String> consumer, int count) {
        List<ConsumerRecord<String, String>> found = new ArrayList<>();
        long deadline = System.nanoTime() + Duration.ofSeconds(Scenario.WAIT_SECONDS).toNanos();
        while (found.size() < count && System.nanoTime() < deadline) {
            consumer.poll(Duration.ofMillis(200)).forEach(found::add);
        }
        return found;
    }

    private static List<TopicPartition> partitions(String topic) {
        return IntStream.range(0, PARTITIONS).mapToObj(index -> new TopicPartition(topic, index)).collect(toList());
    }

    // -- scenarios -------------------------------------------------------------------------------------------

    private String produceAndReadBack(String codec) throws Exception {
        String topic = topic("codec");
        fill(topic, codec);
        try (KafkaConsumer<String, String> consumer = consumer("unused", "classic")) {
            consumer.assign(partitions(topic));
            consumer.seekToBeginning(partitions(topic));
            Map<TopicPartition, Long> next = new HashMap<>();
            List<ConsumerRecord<String, String>> found = read(consumer, RECORDS);
            Scenario.checkEquals(RECORDS, found.size(), "records");
            for (ConsumerRecord<String, String> record : found) {
                long expected = next.merge(new TopicPartition(topic, record.partition()), 1L, Long::sum) - 1;
                Scenario.checkEquals(expected, record.offset(), "offset");
                int number = (int) (record.offset() * PARTITIONS + record.partition());
                Scenario.checkEquals("value " + number, record.value(), "value");
                Scenario.checkEquals("k" + number, record.key(), "key");
                Scenario.checkEquals(Scenario.FIRST_TIMESTAMP_MS + number, record.timestamp(), "timestamp");
                Scenario.checkEquals("" + number, new String(record.headers().lastHeader("number").value()), "header");
            }
        }
        return "";
    }

    private String seekPauseAndTimes() throws Exception {
        String topic = topic("seek");
        fill(topic, "none");
        TopicPartition first = new TopicPartition(topic, 0);
        TopicPartition second = new TopicPartition(topic, 1);
        try (KafkaConsumer<String, String> consumer = consumer("unused", "classic")) {
            Scenario.checkEquals(100L, consumer.endOffsets(List.of(first)).get(first), "end");
            Scenario.checkEquals(0L, consumer.beginningOffsets(List.of(first)).get(first), "beginning");
            Map<TopicPartition, Long> times = Map.of(first, Scenario.FIRST_TIMESTAMP_MS + 59, second, Long.MAX_VALUE);
            Scenario.checkEquals(10L, consumer.offsetsForTimes(times).get(first).offset(), "offset by time");
            Scenario.check(consumer.offsetsForTimes(times).get(second) == null, "no record is that young");
            consumer.assign(List.of(first, second));
            consumer.seek(first, 90);
            consumer.seekToBeginning(List.of(second));
            consumer.pause(List.of(second));
            List<ConsumerRecord<String, String>> found = read(consumer, 10);
            Scenario.checkEquals(Set.of(0), found.stream().map(ConsumerRecord::partition)
                .collect(java.util.stream.Collectors.toSet()), "partitions while one is paused");
            consumer.resume(List.of(second));
            Scenario.checkEquals(100, read(consumer, 100).size(), "records of the resumed partition");
        }
        return "";
    }

    private String commitAndResume(String protocol) throws Exception {
        String topic = topic("resume");
        String group = Scenario.freshName("group");
        fill(topic, "none");
        try (KafkaConsumer<String, String> consumer = consumer(group, protocol, "max.poll.records", "50")) {
            consumer.subscribe(List.of(topic));
            Map<TopicPartition, OffsetAndMetadata> upTo = new HashMap<>();
            for (TopicPartition partition : partitions(topic)) {
                upTo.put(partition, new OffsetAndMetadata(40, "half way"));
            }
            read(consumer, 1);
            consumer.commitSync(upTo);
            Scenario.checkEquals(upTo.get(partitions(topic).get(3)).metadata(),
                consumer.committed(Set.copyOf(partitions(topic))).get(partitions(topic).get(3)).metadata(), "metadata");
        }
        try (KafkaConsumer<String, String> consumer = consumer(group, protocol)) {
            consumer.subscribe(List.of(topic));
            List<ConsumerRecord<String, String>> rest = read(consumer, RECORDS - 40 * PARTITIONS);
            Scenario.checkEquals(RECORDS - 40 * PARTITIONS, rest.size(), "records after the commit");
            Scenario.check(rest.stream().allMatch(record -> record.offset() >= 40), "a record from before the commit");
            consumer.commitSync();
            Scenario.checkEquals(100L, consumer.committed(Set.of(new TopicPartition(topic, 0)))
                .get(new TopicPartition(topic, 0)).offset(), "committed");
        }
        return "";
    }

    /** One consumer in a thread of its own: what it has, how often it got and lost partitions, how to stop it. */
    private final class Member implements Runnable, ConsumerRebalanceListener {
        final Set<TopicPartition> owned = ConcurrentHashMap.newKeySet();
        final Set<TopicPartition> revoked = ConcurrentHashMap.newKeySet();
        final AtomicInteger assignments = new AtomicInteger();
        private final KafkaConsumer<String, String> consumer;
        private final Thread thread = new Thread(this);
        private volatile boolean isStopped;
        volatile Exception failure;

        Member(KafkaConsumer<String, String> consumer, String topic) {
            this.consumer = consumer;
            consumer.subscribe(List.of(topic), this);
            thread.start();
        }

        @Override
        public void run() {
            try (KafkaConsumer<String, String> closing = consumer) {
                while (!isStopped) {
                    closing.poll(Duration.ofMillis(100));
                }
            } catch (Exception wrong) {
                failure = wrong;
            }
        }

        @Override
        public void onPartitionsAssigned(Collection<TopicPartition> partitions) {
            assignments.incrementAndGet();
            owned.addAll(partitions);
        }

        @Override
        public void onPartitionsRevoked(Collection<TopicPartition> partitions) {
            owned.removeAll(partitions);
            revoked.addAll(partitions);
        }

        void stop() throws Exception {
            isStopped = true;
            thread.join();
            if (failure != null) {
                throw failure;
            }
        }
    }

    private static boolean shared(Member... members) {
        Set<TopicPartition> all = new HashSet<>();
        int count = 0;
        for (Member member : members) {
            Scenario.check(member.failure == null, "a member failed: " + member.failure);
            all.addAll(member.owned);
            count += member.owned.size();
            if (member.owned.size() != PARTITIONS / members.length) {
                return false;
            }
        }
        return all.size() == PARTITIONS && count == PARTITIONS;
    }

    private String rebalance(String protocol, String... more) throws Exception {
        String topic = topic("rebalance");
        String group = Scenario.freshName("group");
        Member first = new Member(consumer(group, protocol, more), topic);
        Scenario.eventually(() -> shared(first), "one member to have all partitions");
        long started = System.nanoTime();
        Member second = new Member(consumer(group, protocol, more), topic);
        Scenario.eventually(() -> shared(first, second), "two members to have half each");
        Member third = new Member(consumer(group, protocol, more), topic);
        Scenario.eventually(() -> shared(first, second, third), "three members to have a third each");
        first.stop();
        Scenario.eventually(() -> shared(second, third), "two members to take over");
        long tookMs = (System.nanoTime() - started) / 1_000_000;
        second.stop();
        third.stop();
        return "three rebalances in " + tookMs + " ms";
    }

    private String cooperative() throws Exception {
        return rebalance("classic", "partition.assignment.strategy",
            "org.apache.kafka.clients.consumer.CooperativeStickyAssignor");
    }

    private String staticMember(String protocol) throws Exception {
        String topic = topic("static");
        String group = Scenario.freshName("group");
        Member stays = new Member(consumer(group, protocol, "group.instance.id", "stays"), topic);
        Member returns = new Member(consumer(group, protocol, "group.instance.id", "returns"), topic);
        Scenario.eventually(() -> shared(stays, returns), "two static members to have half each");
        Set<TopicPartition> before = Set.copyOf(returns.owned);
        int assignments = stays.assignments.get();
        returns.stop();
        Member again = new Member(consumer(group, protocol, "group.instance.id", "returns"), topic);
        Scenario.eventually(() -> again.owned.equals(before), "the static member to get its partitions back");
        Scenario.checkEquals(assignments, stays.assignments.get(), "assignments of the member that stayed");
        stays.stop();
        again.stop();
        return "";
    }

    private String pattern(String protocol) throws Exception {
        String prefix = Scenario.freshName("pattern");
        List<NewTopic> topics = List.of(new NewTopic(prefix + "-1", 1, (short) 3));
        admin.createTopics(topics).all().get();
        try (KafkaConsumer<String, String> consumer =
                consumer(Scenario.freshName("group"), protocol, "metadata.max.age.ms", "500")) {
            consumer.subscribe(Pattern.compile(Pattern.quote(prefix) + "-.*"));
            Scenario.eventually(() -> topics(consumer).equals(Set.of(prefix + "-1")), "the topic that is there");
            admin.createTopics(List.of(new NewTopic(prefix + "-2", 1, (short) 3))).all().get();
            Scenario.eventually(() -> topics(consumer).size() == 2, "a topic made later");
        }
        return "";
    }

    private static Set<String> topics(KafkaConsumer<String, String> consumer) {
        consumer.poll(Duration.ofMillis(100));
        Set<String> names = new HashSet<>();
        consumer.assignment().forEach(partition -> names.add(partition.topic()));
        return names;
    }
}
