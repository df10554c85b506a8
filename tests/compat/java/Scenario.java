import java.time.Duration;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.Properties;
import java.util.UUID;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.BooleanSupplier;
import java.util.stream.Collectors;

/**
 * Runs scenarios one after the other, each within a time limit. Prints a line of JSON with the names of all that will
 * run, so that one that never answers is missed, and then a line for each.
 */
final class Scenario {
    static final Duration LIMIT = Duration.ofSeconds(180);
    /** Scenarios judge what happens, not how fast: the machine may be busy with other things. */
    static final int WAIT_SECONDS = 60;
    /** Timestamp of the first record of a topic: in the past, but not so far that retention takes it. */
    static final long FIRST_TIMESTAMP_MS = System.currentTimeMillis() - 3_600_000;

    /** What a scenario does; it returns a remark (a figure, or ""), and throws what is wrong. */
    interface Body {
        String run() throws Exception;
    }

    private Scenario() {}

    /** Run those whose name contains one of `wanted`, or all if there are none. Ends the process. */
    static void runAll(Map<String, Body> scenarios, Collection<String> wanted, Duration limit) {
        scenarios.keySet().removeIf(name -> !wanted.isEmpty() && wanted.stream().noneMatch(name::contains));
        System.out.println("{\"scenarios\":[" + scenarios.keySet().stream().map(Scenario::quoted).collect(Collectors.joining(",")) + "]}");
        for (Map.Entry<String, Body> scenario : scenarios.entrySet()) {
            ExecutorService thread = Executors.newSingleThreadExecutor(task -> {
                Thread made = new Thread(task, scenario.getKey());
                made.setDaemon(true);
                return made;
            });
            long started = System.nanoTime();
            Future<String> running = thread.submit((Callable<String>) () -> scenario.getValue().run());
            String outcome = "failed";
            String note;
            try {
                note = running.get(limit.toMillis(), TimeUnit.MILLISECONDS);
                outcome = "passed";
            } catch (TimeoutException late) {
                note = "not done after " + limit.toSeconds() + " s";
            } catch (Exception wrapped) {
                Throwable failure = wrapped.getCause() == null ? wrapped : wrapped.getCause();
                failure.printStackTrace();
                note = failure.toString() + (failure.getCause() == null ? "" : ", by " + failure.getCause());
            }
            running.cancel(true);
            thread.shutdownNow();
            System.out.printf(Locale.ROOT, "{\"case\":%s,\"outcome\":%s,\"note\":%s,\"seconds\":%.1f}%n",
                quoted(scenario.getKey()), quoted(outcome), quoted(note), (System.nanoTime() - started) / 1e9);
            System.out.flush();
        }
        System.exit(0); // whatever a scenario left running
    }

    static void check(boolean isTrue, String what) {
        if (!isTrue) {
            throw new AssertionError(what);
        }
    }

    static void checkEquals(Object expected, Object found, String what) {
        check(expected.equals(found), what + ": expected " + expected + ", found " + found);
    }

    /** Ask until it is so. For state of the cluster that nothing announces. */
    static void eventually(BooleanSupplier look, String what) throws InterruptedException {
        eventually(WAIT_SECONDS, look, what);
    }

    static void eventually(int seconds, BooleanSupplier look, String what) throws InterruptedException {
        long deadline = System.nanoTime() + Duration.ofSeconds(seconds).toNanos();
        while (!look.getAsBoolean()) {
            check(System.nanoTime() < deadline, "waited " + seconds + " s for: " + what);
            Thread.sleep(50);
        }
    }

    static String freshName(String what) {
        return "java-" + what + "-" + UUID.randomUUID().toString().substring(0, 8);
    }

    static Properties settings(String bootstrap, String... pairs) {
        Properties all = new Properties();
        all.put("bootstrap.servers", bootstrap);
        for (int index = 0; index < pairs.length; index += 2) {
            all.put(pairs[index], pairs[index + 1]);
        }
        return all;
    }

    static List<String> after(String[] arguments, int index) {
        return new ArrayList<>(List.of(arguments).subList(index, arguments.length));
    }

    private static String quoted(String text) {
        StringBuilder out = new StringBuilder("\"");
        for (char letter : text.toCharArray()) {
            if (letter == '"' || letter == '\\') {
                out.append('\\').append(letter);
            } else if (letter < ' ') {
                out.append(' ');
            } else {
                out.append(letter);
            }
        }
        return out.append('"').toString();
    }
}
