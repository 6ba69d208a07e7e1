package magnetar.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Set;
import java.util.TreeSet;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;

/** Topics that are auto-created for a client, and topics that are not; each test has its own namespace. */
class AutoCreationTest extends Stage {
    String namespace;

    @BeforeEach
    void createNamespace() throws Exception {
        namespace = "public/java-" + UUID.randomUUID();
        assertEquals(204, call("PUT", "/admin/v2/namespaces/" + namespace).statusCode());
    }

    /** AC5. On Apache Pulsar 4.2.4 one topic and two messages became 154 topics at once, 661 after the fifth restart. */
    @Test
    void ac5RegexConsumerWithRetryLeavesTheNumberOfTopicsConstant() throws Exception {
        topic = "persistent://" + namespace + "/orders";
        try (Producer<byte[]> producer = producer().create()) {
            send(producer, "a", "b");
        }
        consumeForAWhile();
        Set<String> after = topics();
        assertTrue(after.contains(topic + "-sub-RETRY"), "no retry topic, so nothing was retried: " + after);
        assertTrue(after.size() <= 3, "more than the topic, its retry topic and its dead letter topic: " + after);
        for (int restart = 1; restart <= 5; restart++) {
            consumeForAWhile();
            assertEquals(after, topics(), "after restart " + restart);
        }
    }

    private void consumeForAWhile() throws Exception {
        try (Consumer<byte[]> consumer = client.newConsumer()
                .topicsPattern(Pattern.compile("persistent://" + namespace + "/.*"))
                .patternAutoDiscoveryPeriod(1, TimeUnit.SECONDS)
                .subscriptionName("sub")
                .subscriptionType(SubscriptionType.Shared)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                .negativeAckRedeliveryDelay(200, TimeUnit.MILLISECONDS)
                .enableRetry(true)
                .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(1_000).build())
                .subscribe()) {
            long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(4);
            while (System.nanoTime() < end) {
                Message<byte[]> message = consumer.receive(200, TimeUnit.MILLISECONDS);
                if (message != null) {
                    later(consumer, message);
                }
            }
        }
    }

    private static void later(Consumer<byte[]> consumer, Message<byte[]> message) {
        try {
            consumer.reconsumeLater(message, 10, TimeUnit.MILLISECONDS);
        } catch (PulsarClientException refused) {
            consumer.negativeAcknowledge(message);
        }
    }

    /** AC4. */
    @Test
    void aDeadLetterTopicOfADeadLetterTopicIsRejected() throws Exception {
        topic = "persistent://" + namespace + "/orders-sub-DLQ";
        producer().create().close();
        topic += "-sub-RETRY";
        assertThrows(PulsarClientException.NotAllowedException.class, () -> producer().create());
        assertThrows(PulsarClientException.NotAllowedException.class, () -> consumer().subscribe());
        assertEquals(1, topics().size());
    }

    /** PM1: the only official client that can query partitions without creating the topic. */
    @Test
    void partitionsAreQueriedWithoutCreatingTheTopic() throws Exception {
        topic = "persistent://" + namespace + "/nowhere";
        Exception refusal = assertThrows(
                Exception.class, () -> client.getPartitionsForTopic(topic, false).get(10, TimeUnit.SECONDS));
        assertTrue(refusal.getCause() instanceof PulsarClientException.NotFoundException
                || refusal.getCause() instanceof PulsarClientException.TopicDoesNotExistException, refusal::toString);
        assertEquals(Set.of(), topics());
    }

    private Set<String> topics() throws Exception {
        Matcher names = Pattern.compile("\"([^\"]+)\"").matcher(
                call("GET", "/admin/v2/namespaces/" + namespace + "/topics").body());
        Set<String> topics = new TreeSet<>();
        while (names.find()) {
            topics.add(names.group(1));
        }
        return topics;
    }

    private static HttpResponse<String> call(String method, String path) throws Exception {
        HttpRequest request = HttpRequest.newBuilder(URI.create(HTTP_URL + path))
                .method(method, HttpRequest.BodyPublishers.noBody())
                .build();
        return HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString());
    }
}
