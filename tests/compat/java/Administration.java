import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ExecutionException;
import org.apache.kafka.clients.admin.Admin;
import org.apache.kafka.clients.admin.AlterConfigOp;
import org.apache.kafka.clients.admin.Config;
import org.apache.kafka.clients.admin.ConfigEntry;
import org.apache.kafka.clients.admin.GroupListing;
import org.apache.kafka.clients.admin.ListOffsetsResult.ListOffsetsResultInfo;
import org.apache.kafka.clients.admin.NewPartitionReassignment;
import org.apache.kafka.clients.admin.NewPartitions;
import org.apache.kafka.clients.admin.NewTopic;
import org.apache.kafka.clients.admin.OffsetSpec;
import org.apache.kafka.clients.admin.RecordsToDelete;
import org.apache.kafka.clients.admin.TopicDescription;
import org.apache.kafka.clients.consumer.OffsetAndMetadata;
import org.apache.kafka.clients.producer.KafkaProducer;
import org.apache.kafka.clients.producer.ProducerRecord;
import org.apache.kafka.common.ElectionType;
import org.apache.kafka.common.TopicPartition;
import org.apache.kafka.common.config.ConfigResource;
import org.apache.kafka.common.errors.ElectionNotNeededException;
import org.apache.kafka.common.errors.GroupIdNotFoundException;
import org.apache.kafka.common.errors.InvalidConfigurationException;
import org.apache.kafka.common.errors.InvalidReplicationFactorException;
import org.apache.kafka.common.errors.OffsetOutOfRangeException;
import org.apache.kafka.common.errors.TopicExistsException;
import org.apache.kafka.common.errors.UnknownTopicOrPartitionException;
import org.apache.kafka.common.quota.ClientQuotaAlteration;
import org.apache.kafka.common.quota.ClientQuotaEntity;
import org.apache.kafka.common.quota.ClientQuotaFilter;
import org.apache.kafka.common.quota.ClientQuotaFilterComponent;
import org.apache.kafka.common.serialization.StringSerializer;

/** The Java AdminClient. Arguments: bootstrap servers, parts of names of scenarios (default: all). */
public final class Administration {
    private final String bootstrap;
    private final Admin admin;

    private Administration(String bootstrap) {
        this.bootstrap = bootstrap;
        this.admin = Admin.create(Scenario.settings(bootstrap));
    }

    public static void main(String[] arguments) {
        Administration all = new Administration(arguments[0]);
        Map<String, Scenario.Body> scenarios = new LinkedHashMap<>();
        scenarios.put("topics", all::topics);
        scenarios.put("partitions are added", all::partitions);
        scenarios.put("settings of a topic", all::settings);
        scenarios.put("settings of a broker", all::brokerSettings);
        scenarios.put("offsets, earliest latest and by time", all::offsets);
        scenarios.put("records are deleted", all::deleteRecords);
        scenarios.put("offsets of a group", all::groupOffsets);
        scenarios.put("groups that are not there", all::unknownGroups);
        scenarios.put("cluster, log directories, quorum", all::cluster);
        scenarios.put("replicas move", all::reassign);
        scenarios.put("leaders are elected", all::elect);
        scenarios.put("producers are described", all::producers);
        scenarios.put("quotas are kept", all::quotas);
        Scenario.runAll(scenarios, Scenario.after(arguments, 1), Scenario.LIMIT);
    }

    // -- helpers ---------------------------------------------------------------------------------------------

    private String topic(String what, int partitions, Map<String, String> settings) throws Exception {
        String name = Scenario.freshName(what);
        admin.createTopics(List.of(new NewTopic(name, partitions, (short) 3).configs(settings))).all().get();
        return name;
    }

    private void fill(String topic, int count) throws Exception {
        try (KafkaProducer<String, String> producer =
                new KafkaProducer<>(Scenario.settings(bootstrap), new StringSerializer(), new StringSerializer())) {
            for (int number = 0; number < count; number++) {
                producer.send(new ProducerRecord<>(topic, 0, Scenario.FIRST_TIMESTAMP_MS + number, "k", "v" + number));
            }
            producer.flush();
        }
    }

    private long offset(TopicPartition partition, OffsetSpec spec) throws Exception {
        return admin.listOffsets(Map.of(partition, spec)).all().get().get(partition).offset();
    }

    private TopicDescription describe(String topic) throws Exception {
        return admin.describeTopics(List.of(topic)).allTopicNames().get().get(topic);
    }

    private static void refused(Class<? extends Exception> with, org.apache.kafka.common.KafkaFuture<?> asked) throws Exception {
        try {
            asked.get();
        } catch (ExecutionException answer) {
            Scenario.check(with.isInstance(answer.getCause()), "expected " + with.getSimpleName() + ", found " + answer.getCause());
            return;
        }
        throw new AssertionError("expected " + with.getSimpleName() + ", and it was done");
    }

    // -- scenarios -------------------------------------------------------------------------------------------

    private String topics() throws Exception {
        String name = topic("topics", 3, Map.of("retention.ms", "3600000"));
        TopicDescription found = describe(name);
        Scenario.checkEquals(3, found.partitions().size(), "partitions");
        Scenario.check(found.partitions().stream().allMatch(part -> part.replicas().size() == 3), "three replicas each");
        Scenario.eventually(() -> {
            try {
                return describe(name).partitions().stream().allMatch(part -> part.leader() != null);
            } catch (Exception notYet) {
                return false;
            }
        }, "leaders");
        Scenario.check(admin.listTopics().names().get().contains(name), "the topic is listed");
        Scenario.checkEquals(name, admin.describeTopics(org.apache.kafka.common.TopicCollection.ofTopicIds(List.of(found.topicId())))
            .allTopicIds().get().get(found.topicId()).name(), "name by id");
        refused(TopicExistsException.class, admin.createTopics(List.of(new NewTopic(name, 1, (short) 1))).all());
        refused(InvalidReplicationFactorException.class, admin.createTopics(List.of(new NewTopic(name + "-9", 1, (short) 9))).all());
        refused(InvalidConfigurationException.class, admin.createTopics(List.of(
            new NewTopic(name + "-bad", 1, (short) 1).configs(Map.of("retention.ms", "soon")))).all());
        admin.deleteTopics(List.of(name)).all().get();
        refused(UnknownTopicOrPartitionException.class, admin.deleteTopics(List.of(name)).all());
        return "";
    }

    private String partitions() throws Exception {
        String name = topic("grow", 1, Map.of());
        admin.createPartitions(Map.of(name, NewPartitions.increaseTo(4))).all().get();
        Scenario.eventually(() -> {
            try {
                return describe(name).partitions().size() == 4;
            } catch (Exception notYet) {
                return false;
            }
        }, "four partitions");
        refused(org.apache.kafka.common.errors.InvalidPartitionsException.class,
            admin.createPartitions(Map.of(name, NewPartitions.increaseTo(2))).all());
        return "";
    }

    private String settings() throws Exception {
        String name = topic("settings", 1, Map.of("max.message.bytes", "2000"));
        ConfigResource resource = new ConfigResource(ConfigResource.Type.TOPIC, name);
        alter(resource, new AlterConfigOp(new ConfigEntry("retention.ms", "60000"), AlterConfigOp.OpType.SET));
        Scenario.eventually(() -> "60000".equals(entry(resource, "retention.ms").value()), "the setting to hold");
        Scenario.checkEquals(ConfigEntry.ConfigSource.DYNAMIC_TOPIC_CONFIG, entry(resource, "max.message.bytes").source(), "source");
        Scenario.checkEquals(ConfigEntry.ConfigSource.DEFAULT_CONFIG, entry(resource, "segment.bytes").source(), "source of a default");
        alter(resource, new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.APPEND));
        Scenario.eventually(() -> entry(resource, "cleanup.policy").value().contains("compact"), "the appended value");
        alter(resource, new AlterConfigOp(new ConfigEntry("cleanup.policy", "compact"), AlterConfigOp.OpType.SUBTRACT));
        alter(resource, new AlterConfigOp(new ConfigEntry("retention.ms", ""), AlterConfigOp.OpType.DELETE));
        Scenario.eventually(() -> "604800000".equals(entry(resource, "retention.ms").value()), "the default to return");
        Scenario.checkEquals("delete", entry(resource, "cleanup.policy").value(), "the policy after all");
        refused(InvalidConfigurationException.class, admin.incrementalAlterConfigs(Map.of(resource,
            List.of(new AlterConfigOp(new ConfigEntry("retention.ms", "soon"), AlterConfigOp.OpType.SET)))).all());
        return "";
    }

    private void alter(ConfigResource resource, AlterConfigOp operation) throws Exception {
        admin.incrementalAlterConfigs(Map.of(resource, List.of(operation))).all().get();
    }

    private ConfigEntry entry(ConfigResource resource, String key) {
        try {
            Config all = admin.describeConfigs(List.of(resource)).all().get().get(resource);
            return all.get(key);
        } catch (Exception wrong) {
            throw new AssertionError(wrong);
        }
    }

    private String brokerSettings() throws Exception {
        String node = admin.describeCluster().nodes().get().iterator().next().idString();
        ConfigResource broker = new ConfigResource(ConfigResource.Type.BROKER, node);
        Scenario.checkEquals(node, entry(broker, "node.id").value(), "node.id");
        Scenario.check(entry(broker, "num.partitions") != null, "a setting with its default");
        return "";
    }

    private String offsets() throws Exception {
        String name = topic("offsets", 1, Map.of());
        fill(name, 100);
        TopicPartition partition = new TopicPartition(name, 0);
        Scenario.checkEquals(0L, offset(partition, OffsetSpec.earliest()), "earliest");
        Scenario.checkEquals(100L, offset(partition, OffsetSpec.latest()), "latest");
        Scenario.checkEquals(99L, offset(partition, OffsetSpec.maxTimestamp()), "of the youngest");
        Scenario.checkEquals(40L, offset(partition, OffsetSpec.forTimestamp(Scenario.FIRST_TIMESTAMP_MS + 40)), "by time");
        Scenario.checkEquals(-1L, offset(partition, OffsetSpec.forTimestamp(Long.MAX_VALUE)), "by a time to come");
        Scenario.checkEquals(0L, offset(partition, OffsetSpec.earliestLocal()), "earliest local");
        return "";
    }

    private String deleteRecords() throws Exception {
        String name = topic("purge", 1, Map.of());
        fill(name, 100);
        TopicPartition partition = new TopicPartition(name, 0);
        Scenario.checkEquals(40L, admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(40))).lowWatermarks()
            .get(partition).get().lowWatermark(), "low watermark");
        Scenario.checkEquals(40L, offset(partition, OffsetSpec.earliest()), "earliest");
        refused(OffsetOutOfRangeException.class, admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(101))).all());
        admin.deleteRecords(Map.of(partition, RecordsToDelete.beforeOffset(-1))).all().get();
        Scenario.checkEquals(100L, offset(partition, OffsetSpec.earliest()), "earliest after -1");
        return "";
    }

    private String groupOffsets() throws Exception {
        String name = topic("groups", 2, Map.of());
        String group = Scenario.freshName("group");
        TopicPartition first = new TopicPartition(name, 0);
        TopicPartition second = new TopicPartition(name, 1);
        fill(name, 10);
        admin.alterConsumerGroupOffsets(group, Map.of(first, new OffsetAndMetadata(7, "seven"), second, new OffsetAndMetadata(0))).all().get();
        Map<TopicPartition, OffsetAndMetadata> kept = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        Scenario.checkEquals(new OffsetAndMetadata(7, "seven").offset(), kept.get(first).offset(), "offset");
        Scenario.checkEquals("seven", kept.get(first).metadata(), "metadata");
        Collection<GroupListing> groups = admin.listGroups().all().get();
        Scenario.check(groups.stream().anyMatch(listed -> listed.groupId().equals(group)), "the group is listed");
        Scenario.checkEquals("EMPTY", admin.describeConsumerGroups(List.of(group)).all().get().get(group).groupState().name(), "state");
        admin.deleteConsumerGroupOffsets(group, Set.of(second)).all().get();
        kept = admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get();
        Scenario.check(!kept.containsKey(second), "the deleted offset is gone");
        admin.deleteConsumerGroups(List.of(group)).all().get();
        Scenario.check(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().isEmpty(), "no offsets are left");
        return "";
    }

    private String unknownGroups() throws Exception {
        String group = Scenario.freshName("nobody");
        refused(GroupIdNotFoundException.class, admin.describeConsumerGroups(List.of(group)).all());
        refused(GroupIdNotFoundException.class, admin.deleteConsumerGroups(List.of(group)).all());
        Scenario.check(admin.listConsumerGroupOffsets(group).partitionsToOffsetAndMetadata().get().isEmpty(), "no offsets");
        return "";
    }

    private String cluster() throws Exception {
        Scenario.checkEquals(3, admin.describeCluster().nodes().get().size(), "nodes");
        Scenario.check(!admin.describeCluster().clusterId().get().isEmpty(), "cluster id");
        List<Integer> nodes = new ArrayList<>();
        admin.describeCluster().nodes().get().forEach(node -> nodes.add(node.id()));
        String name = topic("logs", 1, Map.of());
        fill(name, 10);
        long copies = admin.describeLogDirs(nodes).allDescriptions().get().values().stream()
            .flatMap(folders -> folders.values().stream())
            .filter(folder -> folder.replicaInfos().getOrDefault(new TopicPartition(name, 0), null) != null)
            .count();
        Scenario.checkEquals(3L, copies, "nodes that keep the topic");
        Scenario.checkEquals(3, admin.describeMetadataQuorum().quorumInfo().get().voters().size(), "voters");
        Scenario.check(admin.describeMetadataQuorum().quorumInfo().get().leaderId() > 0, "a leader of the quorum");
        return "";
    }

    private String reassign() throws Exception {
        String name = Scenario.freshName("move");
        admin.createTopics(List.of(new NewTopic(name, Map.of(0, List.of(1, 2))))).all().get();
        fill(name, 1000);
        TopicPartition partition = new TopicPartition(name, 0);
        admin.alterPartitionReassignments(Map.of(partition, Optional.of(new NewPartitionReassignment(List.of(2, 3))))).all().get();
        Scenario.eventually(() -> {
            try {
                List<Integer> replicas = new ArrayList<>();
                describe(name).partitions().get(0).replicas().forEach(node -> replicas.add(node.id()));
                return replicas.equals(List.of(2, 3)) && admin.listPartitionReassignments(Set.of(partition)).reassignments().get().isEmpty();
            } catch (Exception notYet) {
                return false;
            }
        }, "the partition to be on 2 and 3");
        Scenario.checkEquals(1000L, offset(partition, OffsetSpec.latest()), "records after the move");
        return "";
    }

    private String elect() throws Exception {
        String name = topic("elect", 1, Map.of());
        TopicPartition partition = new TopicPartition(name, 0);
        int preferred = describe(name).partitions().get(0).replicas().get(0).id();
        Scenario.eventually(() -> { // the preferred replica of a new topic may not have caught up yet
            try {
                Optional<Throwable> error = admin.electLeaders(ElectionType.PREFERRED, Set.of(partition)).partitions().get().get(partition);
                return error.isEmpty() || error.get() instanceof ElectionNotNeededException;
            } catch (Exception wrong) {
                throw new AssertionError(wrong);
            }
        }, "the election to be made, or not to be needed");
        Scenario.eventually(() -> {
            try {
                return describe(name).partitions().get(0).leader().id() == preferred;
            } catch (Exception notYet) {
                return false;
            }
        }, "the preferred replica to lead");
        return "";
    }

    private String producers() throws Exception {
        String name = topic("producers", 1, Map.of());
        fill(name, 10);
        TopicPartition partition = new TopicPartition(name, 0);
        Scenario.checkEquals(9, admin.describeProducers(List.of(partition)).partitionResult(partition).get().activeProducers().get(0)
            .lastSequence(), "last sequence");
        return "";
    }

    private String quotas() throws Exception {
        ClientQuotaEntity entity = new ClientQuotaEntity(Map.of(ClientQuotaEntity.CLIENT_ID, Scenario.freshName("client")));
        ClientQuotaFilter filter = ClientQuotaFilter.containsOnly(List.of(
            ClientQuotaFilterComponent.ofEntity(ClientQuotaEntity.CLIENT_ID, entity.entries().get(ClientQuotaEntity.CLIENT_ID))));
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", 12345.0))))).all().get();
        Scenario.eventually(() -> quota(filter, entity).equals(Map.of("producer_byte_rate", 12345.0)), "the quota");
        admin.alterClientQuotas(List.of(new ClientQuotaAlteration(entity,
            List.of(new ClientQuotaAlteration.Op("producer_byte_rate", null))))).all().get();
        Scenario.eventually(() -> quota(filter, entity).isEmpty(), "no quota");
        return "";
    }

    private Map<String, Double> quota(ClientQuotaFilter filter, ClientQuotaEntity entity) {
        try {
            return admin.describeClientQuotas(filter).entities().get().getOrDefault(entity, Map.of());
        } catch (Exception wrong) {
            throw new AssertionError(wrong);
        }
    }
}
