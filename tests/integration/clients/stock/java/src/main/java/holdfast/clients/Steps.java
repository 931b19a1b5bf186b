package holdfast.clients;

import java.io.BufferedReader;
import java.io.InputStreamReader;
import java.nio.charset.StandardCharsets;
import java.util.List;

/**
 * Takes steps from standard input, one a line, and says as one line of JSON what came of each: what a client's user
 * sees, with the client's own words for what went wrong. Who writes the steps waits for each answer.
 */
public final class Steps {
    static final long WAIT_MS = 120_000;

    /** What a client can be told to do. Links are opened when they are first used and stay. */
    public interface Client extends AutoCloseable {
        /** A durable receiver; it begins at the end of the log when its name is new. */
        void subscribe(String name, String log) throws Exception;

        /** Returns when the client considers them sent; under a transaction that need not mean that they arrived. */
        void send(String log, String partition, List<String> bodies) throws Exception;

        List<String> receive(String name, int count) throws Exception;

        void commit() throws Exception;

        void rollback() throws Exception;
    }

    private Steps() {}

    static void run(Client client) throws Exception {
        try (client; BufferedReader input = new BufferedReader(new InputStreamReader(System.in, StandardCharsets.UTF_8))) {
            say("\"ready\":true");
            String line;
            while ((line = input.readLine()) != null && !line.equals("end")) {
                try {
                    say(take(client, line.split(" ")));
                } catch (Exception problem) {
                    say("\"error\":" + quoted(problem.getClass().getSimpleName() + ": " + problem.getMessage()));
                }
            }
        }
    }

    private static String take(Client client, String[] words) throws Exception {
        switch (words[0]) {
            case "subscribe" -> client.subscribe(words[1], words[2]);
            case "send" -> client.send(words[1], words[2], List.of(words).subList(3, words.length));
            case "send-long" -> client.send(words[1], words[2], List.of("x".repeat(Integer.parseInt(words[3]))));
            case "receive" -> {
                List<String> bodies = client.receive(words[1], Integer.parseInt(words[2]));
                return "\"bodies\":[" + String.join(",", bodies.stream().map(Steps::quoted).toList()) + "]";
            }
            case "commit" -> client.commit();
            case "rollback" -> client.rollback();
            default -> throw new IllegalArgumentException("no such step: " + words[0]);
        }
        return "\"done\":true";
    }

    private static void say(String members) {
        System.out.println("{" + members + "}");
        System.out.flush();
    }

    private static String quoted(String text) {
        StringBuilder found = new StringBuilder("\"");
        for (char letter : text.toCharArray()) {
            if (letter == '"' || letter == '\\') {
                found.append('\\').append(letter);
            } else if (letter < ' ') {
                found.append(String.format("\\u%04x", (int) letter));
            } else {
                found.append(letter);
            }
        }
        return found.append('"').toString();
    }
}
