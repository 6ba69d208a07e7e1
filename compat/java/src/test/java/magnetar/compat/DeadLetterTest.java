package magnetar.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;
import static org.junit.jupiter.api.Assumptions.assumeTrue;

import java.io.BufferedReader;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.ServerSocket;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import java.util.stream.Stream;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.apache.pulsar.client.impl.ProducerBuilderImpl;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.ValueSource;

/** Dead letters and retries: this client's policy, and the broker's, which needs no code of the client. */
class DeadLetterTest extends Stage {
    private static final String LIMIT = "deadLetterPolicy.maxRedeliverCount";

    private ConsumerBuilder<byte[]> impatient(SubscriptionType type) {
        return consumer().subscriptionType(type).negativeAckRedeliveryDelay(50, TimeUnit.MILLISECONDS);
    }

    private Consumer<byte[]> subscribeDead() throws PulsarClientException {
        return client.newConsumer().topic(topic + "-sub-DLQ").subscriptionName("inspection")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
    }

    /** Nacks bad messages and acknowledges the others until all bad ones are dead letters. Returns the deliveries. */
    private Map<String, Integer> nackUntilDead(Consumer<byte[]> consumer, String... bad) throws Exception {
        Consumer<byte[]> dead = subscribeDead();
        Map<String, Integer> seen = new TreeMap<>();
        List<String> letters = new ArrayList<>();
        long deadline = System.nanoTime() + TimeUnit.SECONDS.toNanos(PATIENCE_SECONDS);
        while (letters.size() < bad.length) {
            assertTrue(System.nanoTime() < deadline, () -> "letters: " + letters + ", seen: " + seen);
            Message<byte[]> message = consumer.receive(20, TimeUnit.MILLISECONDS);
            if (message != null) {
                seen.merge(text(message), 1, Integer::sum);
                if (List.of(bad).contains(text(message))) {
                    consumer.negativeAcknowledge(message);
                } else {
                    consumer.acknowledge(message);
                }
            }
            Message<byte[]> letter = dead.receive(1, TimeUnit.MILLISECONDS);
            if (letter != null) {
                letters.add(text(letter));
            }
        }
        expectNothing(consumer);
        expectNothing(dead);
        assertEquals(List.of(bad), letters.stream().sorted().toList());
        assertEquals(0, backlog());
        return seen;
    }

    /** Deliveries of ten messages, one of which is delivered more often. */
    private static Map<String, Integer> onceEachBut(String bad, int times) {
        Map<String, Integer> expected = new TreeMap<>();
        for (String payload : numbers(0, 10)) {
            expected.put(payload, payload.equals(bad) ? times : 1);
        }
        return expected;
    }

    /** DL1, DL2. */
    @Test
    void dl1ClientPolicy() throws Exception {
        Consumer<byte[]> consumer = impatient(SubscriptionType.Shared).isAckReceiptEnabled(true)
                .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2).build()).subscribe();
        send(producer().create(), numbers(0, 10));
        assertEquals(onceEachBut("0004", 1 + 2), nackUntilDead(consumer, "0004"));
    }

    /** DL2: with retries this client first looks up the names of versions before 2.8, and must learn that they do not exist. */
    @Test
    void dl2LookingUpOldNamesDoesNotCreateThem() throws Exception {
        String subscription = "sub-" + UUID.randomUUID();
        String old = "persistent://public/default/" + subscription + "-DLQ";
        Exception refusal = assertThrows(Exception.class,
                () -> client.getPartitionsForTopic(old, false).get(PATIENCE_SECONDS, TimeUnit.SECONDS));
        assertTrue(refusal.getCause() instanceof PulsarClientException.NotFoundException
                || refusal.getCause() instanceof PulsarClientException.TopicDoesNotExistException, refusal::toString);
        failAfterOneRetry(subscription);
        String topics = get("/admin/v2/persistent/public/default");
        assertTrue(topics.contains(topic + "-" + subscription + "-DLQ"), topics);
        assertFalse(topics.contains(old) || topics.contains("/" + subscription + "-RETRY"), topics);
    }

    /** DL2: an existing topic with the old name is used. */
    @Test
    void dl2AnExistingOldNameIsUsed() throws Exception {
        String subscription = "sub-" + UUID.randomUUID();
        String old = "persistent://public/default/" + subscription + "-DLQ";
        try (Consumer<byte[]> dead = client.newConsumer().topic(old).subscriptionName("inspection").subscribe()) {
            failAfterOneRetry(subscription);
            assertEquals("bad", text(receive(dead)));
        }
    }

    private void failAfterOneRetry(String subscription) throws Exception {
        try (Consumer<byte[]> consumer = client.newConsumer().topic(topic).subscriptionName(subscription)
                .subscriptionType(SubscriptionType.Shared).enableRetry(true)
                .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(1).build()).subscribe()) {
            send(producer().create(), "bad");
            for (int count = 0; count < 2; count++) {
                consumer.reconsumeLater(receive(consumer), 1, TimeUnit.MILLISECONDS);
            }
        }
    }

    /** DL3, DL11. */
    @ParameterizedTest
    @EnumSource(SubscriptionType.class)
    void dl3BrokerPolicy(SubscriptionType type) throws Exception {
        Consumer<byte[]> consumer = impatient(type).isAckReceiptEnabled(true).property(LIMIT, "2").subscribe();
        Producer<byte[]> producer = producer().create();
        for (String payload : numbers(0, 10)) {
            producer.newMessage().key(payload).value(payload.getBytes()).send();
        }
        assertEquals(onceEachBut("0003", 1 + 2), nackUntilDead(consumer, "0003"));
    }

    /** DL5: the shortest timeout that this client allows. */
    @ParameterizedTest
    @EnumSource(value = SubscriptionType.class, names = {"Shared", "Exclusive"})
    void dl5AckTimeouts(SubscriptionType type) throws Exception {
        Consumer<byte[]> consumer = consumer().subscriptionType(type).ackTimeout(1, TimeUnit.SECONDS)
                .property(LIMIT, "1").subscribe();
        send(producer().create(), "bad", "good");
        for (int count = 0; count < 2; count++) {
            Message<byte[]> message = receive(consumer);
            assertEquals("bad", text(message));
            assertEquals(count, message.getRedeliveryCount());
            if (count == 0) {
                expect(consumer, "good");
            }
        }
        Message<byte[]> letter = receive(subscribeDead());
        assertEquals("bad", text(letter));
        assertEquals("MaxRedeliveries", letter.getProperty("DEATH_REASON"));
        assertEquals(0, backlog());
    }

    /**
     * DL9: neighbours that are acknowledged one by one stay so. This client nacks the whole batch, and a later ack does
     * not stop the redelivery: so the acks are awaited first.
     */
    @ParameterizedTest
    @EnumSource(CompressionType.class)
    void dl9OneMessageOfABatch(CompressionType compression) throws Exception {
        Consumer<byte[]> consumer = impatient(SubscriptionType.Shared).enableBatchIndexAcknowledgment(true)
                .isAckReceiptEnabled(true).property(LIMIT, "2").subscribe();
        sendTogether(batchingProducer().compressionType(compression).create(), numbers(0, 10));
        List<MessageId> neighbours = new ArrayList<>();
        for (String payload : numbers(0, 10)) {
            Message<byte[]> message = receive(consumer);
            assertEquals(payload, text(message));
            neighbours.add(message.getMessageId());
        }
        MessageId bad = neighbours.remove(6);
        consumer.acknowledge(neighbours);
        consumer.negativeAcknowledge(bad);
        assertEquals(Map.of("0006", 2), nackUntilDead(consumer, "0006"));
    }

    /** DL9: by default this client sends no ack before it has all of the batch; then it gets single messages. */
    @Test
    void dl9ABatchWithoutBatchIndexAcks() throws Exception {
        Consumer<byte[]> consumer = impatient(SubscriptionType.Shared).enableBatchIndexAcknowledgment(false)
                .property(LIMIT, "1").subscribe();
        Consumer<byte[]> dead = subscribeDead();
        sendTogether(batchingProducer().create(), numbers(0, 3));
        for (int count = 0; count < 2; count++) {
            for (String payload : numbers(0, 3)) {
                Message<byte[]> message = receive(consumer);
                assertEquals(payload, text(message));
                if (payload.equals("0001")) {
                    consumer.negativeAcknowledge(message);
                } else {
                    consumer.acknowledge(message);
                }
            }
        }
        assertEquals("0001", text(receive(dead)));
        expectNothing(dead);
        expectNothing(consumer);
    }

    /** DL7. Without a delay, the next retry is published before the ack of the previous one is sent. */
    @ParameterizedTest
    @ValueSource(ints = {0, 300})
    void dl7Retries(int delayMs) throws Exception {
        Consumer<byte[]> dead = subscribeDead();
        Consumer<byte[]> consumer = consumer().subscriptionType(SubscriptionType.Shared).enableRetry(true)
                .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(4).build()).subscribe();
        MessageIdAdv id = (MessageIdAdv) producer().create()
                .newMessage().key("key").property("colour", "red").value("stubborn".getBytes()).send();
        String origin = id.getLedgerId() + ":" + id.getEntryId() + ":" + id.getPartitionIndex();
        long asked = 0;
        for (int retry = 0; retry <= 4; retry++) {
            Message<byte[]> message = receive(consumer);
            assertEquals("stubborn", text(message));
            assertEquals("key", message.getKey());
            assertEquals("red", message.getProperty("colour"));
            if (retry > 0) {
                assertTrue(System.nanoTime() - asked >= TimeUnit.MILLISECONDS.toNanos(delayMs), "early");
                assertEquals(String.valueOf(retry), message.getProperty("RECONSUMETIMES"));
                assertEquals(String.valueOf(delayMs), message.getProperty("DELAY_TIME"));
                assertEquals(topic, message.getProperty("REAL_TOPIC"));
                assertEquals(origin, message.getProperty("ORIGIN_MESSAGE_ID"));
            }
            asked = System.nanoTime();
            consumer.reconsumeLater(message, delayMs, TimeUnit.MILLISECONDS);
        }
        Message<byte[]> letter = receive(dead);
        assertEquals("stubborn", text(letter));
        assertEquals(origin, letter.getProperty("ORIGIN_MESSAGE_ID"));
        expectNothing(dead);
        expectNothing(consumer);
    }

    /** DL10. */
    @Test
    void dl10InitialSubscription() throws Exception {
        try (Consumer<byte[]> consumer = impatient(SubscriptionType.Shared).deadLetterPolicy(DeadLetterPolicy.builder()
                .maxRedeliverCount(1).initialSubscriptionName("audit").build()).subscribe()) {
            send(producer().create(), "bad");
            for (int count = 0; count < 2; count++) {
                consumer.negativeAcknowledge(receive(consumer));
            }
            expectNothing(consumer);
        }
        expect(client.newConsumer().topic(topic + "-sub-DLQ").subscriptionName("audit").subscribe(), "bad");
    }

    /** DL10. */
    @Test
    void dl10InitialSubscriptionWithoutAutoCreation() throws Exception {
        String namespace = "public/java-" + UUID.randomUUID();
        assertEquals(204, call("PUT", "/admin/v2/namespaces/" + namespace, "{}").statusCode());
        assertEquals(204, call("POST", "/admin/v2/namespaces/" + namespace + "/autoSubscriptionCreation",
                "{\"allowAutoSubscriptionCreation\": false}").statusCode());
        topic = "persistent://" + namespace + "/orders-sub-DLQ";
        producer().create().close();
        ProducerBuilderImpl<byte[]> builder = (ProducerBuilderImpl<byte[]>) producer();
        assertThrows(PulsarClientException.NotAllowedException.class,
                () -> builder.initialSubscriptionName("audit").create());
    }

    /** DL6, DL7: counts and delays survive a restart of the broker. */
    @Test
    void dl7Restart(@TempDir Path data) throws Exception {
        assumeTrue(Stream.of(System.getenv("PATH").split(":")).anyMatch(p -> Files.isExecutable(Path.of(p, "magnetar"))),
                "magnetar is not on the path");
        int port = freePort();
        int httpPort = freePort();
        Process broker = start(data, port, httpPort);
        try (PulsarClient own = PulsarClient.builder().serviceUrl("pulsar://localhost:" + port).build()) {
            Consumer<byte[]> consumer = own.newConsumer().topic(topic).subscriptionName("sub").enableRetry(true)
                    .subscriptionType(SubscriptionType.Shared).subscribe();
            Consumer<byte[]> counted = own.newConsumer().topic(topic).subscriptionName("counted")
                    .subscriptionType(SubscriptionType.Shared).property(LIMIT, "3")
                    .negativeAckRedeliveryDelay(50, TimeUnit.MILLISECONDS).subscribe();
            own.newProducer().topic(topic).create().send("bad".getBytes());
            expectCounts(counted, 0, 1);
            assertEquals(2, receive(counted).getRedeliveryCount());
            long asked = System.nanoTime();
            consumer.reconsumeLater(receive(consumer), 4, TimeUnit.SECONDS);
            stop(broker);
            broker = start(data, port, httpPort);
            Message<byte[]> message = receive(consumer);
            assertTrue(System.nanoTime() - asked >= TimeUnit.SECONDS.toNanos(4), "early");
            assertEquals("1", message.getProperty("RECONSUMETIMES"));
            expectCounts(counted, 2, 3);
            assertEquals("bad", text(receive(own.newConsumer().topic(topic + "-counted-DLQ").subscriptionName("inspection")
                    .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe())));
        } finally {
            stop(broker);
        }
    }

    private static void expectCounts(Consumer<byte[]> consumer, int... counts) throws PulsarClientException {
        for (int count : counts) {
            Message<byte[]> message = receive(consumer);
            assertEquals(count, message.getRedeliveryCount());
            consumer.negativeAcknowledge(message);
        }
    }

    private static int freePort() throws IOException {
        try (ServerSocket socket = new ServerSocket(0)) {
            return socket.getLocalPort();
        }
    }

    private static Process start(Path data, int port, int httpPort) throws Exception {
        Process broker = new ProcessBuilder("magnetar", "standalone", "--data", data.toString(),
                "--port", String.valueOf(port), "--http-port", String.valueOf(httpPort))
                .redirectError(ProcessBuilder.Redirect.DISCARD).start();
        BufferedReader lines = new BufferedReader(new InputStreamReader(broker.getInputStream()));
        String line;
        while ((line = lines.readLine()) != null) {
            if (line.startsWith("ready")) {
                return broker;
            }
        }
        throw new IllegalStateException("the broker did not start");
    }

    private static void stop(Process broker) throws Exception {
        broker.destroy();
        assertTrue(broker.waitFor(PATIENCE_SECONDS, TimeUnit.SECONDS), "the broker did not stop");
    }

    /** Number of unacknowledged entries of subscription "sub". */
    private int backlog() throws Exception {
        String stats = get("/admin/v2/" + topic.replace("://", "/") + "/stats");
        Matcher found = Pattern.compile("\"sub\":\\s*\\{.*?\"msgBacklog\":\\s*(\\d+)", Pattern.DOTALL).matcher(stats);
        assertTrue(found.find(), stats);
        return Integer.parseInt(found.group(1));
    }

    private static String get(String path) throws Exception {
        HttpResponse<String> response = call("GET", path, "");
        assertEquals(200, response.statusCode());
        return response.body();
    }

    private static HttpResponse<String> call(String method, String path, String body) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(HTTP_URL + path))
                .header("Content-Type", "application/json")
                .method(method, HttpRequest.BodyPublishers.ofString(body))
                .build();
        return HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
    }
}
