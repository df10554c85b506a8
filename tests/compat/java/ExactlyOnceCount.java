import java.time.Duration;
import java.util.List;
import java.util.Properties;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KafkaStreams;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.StreamsConfig;
import org.apache.kafka.streams.errors.StreamsUncaughtExceptionHandler.StreamThreadExceptionResponse;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Grouped;
import org.apache.kafka.streams.kstream.Produced;

/**
 * One instance of a word count with exactly_once_v2. It repartitions by word and writes each new count of a word: with
 * nothing lost and nothing doubled, the output holds 1, 2, 3 ... of each. Runs until its standard input ends. Arguments:
 * bootstrap servers, application id, input topic, output topic, folder for the state.
 */
public final class ExactlyOnceCount {
    private ExactlyOnceCount() {}

    public static void main(String[] arguments) throws Exception {
        Properties settings = Scenario.settings(arguments[0],
            StreamsConfig.APPLICATION_ID_CONFIG, arguments[1],
            StreamsConfig.STATE_DIR_CONFIG, arguments[4],
            StreamsConfig.PROCESSING_GUARANTEE_CONFIG, StreamsConfig.EXACTLY_ONCE_V2,
            StreamsConfig.COMMIT_INTERVAL_MS_CONFIG, "200",
            StreamsConfig.REPLICATION_FACTOR_CONFIG, "3",
            StreamsConfig.STATESTORE_CACHE_MAX_BYTES_CONFIG, "0",
            StreamsConfig.consumerPrefix("auto.offset.reset"), "earliest",
            StreamsConfig.consumerPrefix("session.timeout.ms"), "6000",
            StreamsConfig.producerPrefix("transaction.timeout.ms"), "10000");
        StreamsBuilder builder = new StreamsBuilder();
        builder.stream(arguments[2], Consumed.with(Serdes.String(), Serdes.String()))
            .flatMapValues(line -> List.of(line.split(" ")))
            .groupBy((key, word) -> word, Grouped.with("words", Serdes.String(), Serdes.String()))
            .count()
            .toStream()
            .mapValues(count -> Long.toString(count))
            .to(arguments[3], Produced.with(Serdes.String(), Serdes.String()));
        try (KafkaStreams streams = new KafkaStreams(builder.build(), settings)) {
            streams.setUncaughtExceptionHandler(failure -> {
                failure.printStackTrace();
                return StreamThreadExceptionResponse.REPLACE_THREAD;
            });
            streams.setStateListener((now, before) -> System.out.println(now));
            streams.start();
            while (System.in.read() >= 0) {
                continue;
            }
            streams.close(Duration.ofSeconds(30));
        }
    }
}
