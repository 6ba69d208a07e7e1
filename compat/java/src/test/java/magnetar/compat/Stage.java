package magnetar.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertNull;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerBuilder;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.junit.jupiter.api.AfterAll;
import org.junit.jupiter.api.BeforeAll;
import org.junit.jupiter.api.BeforeEach;

/** A client, a new topic for every test, and operations shared by all tests. */
abstract class Stage {
    /** Long enough for a slow machine; only a failing test waits this long. */
    static final int PATIENCE_SECONDS = 20;
    /** Long enough to see that no message arrives. */
    static final int SILENCE_MS = 300;

    static final String SERVICE_URL = setting("COMPAT_SERVICE_URL", "pulsar://localhost:6650");
    static final String HTTP_URL = setting("COMPAT_HTTP_URL", "http://localhost:8080");

    static PulsarClient client;
    String topic;

    @BeforeAll
    static void open() throws Exception {
        client = PulsarClient.builder().serviceUrl(SERVICE_URL).operationTimeout(10, TimeUnit.SECONDS).build();
    }

    @AfterAll
    static void close() throws Exception {
        client.close();
    }

    @BeforeEach
    void nameTopic() {
        topic = "persistent://public/default/java-" + UUID.randomUUID();
    }

    static String setting(String name, String otherwise) {
        String value = System.getenv(name);
        return value == null ? otherwise : value;
    }

    void partition(int partitions) throws Exception {
        URI uri = URI.create(HTTP_URL + "/admin/v2/" + topic.replace("://", "/") + "/partitions");
        HttpRequest request = HttpRequest.newBuilder(uri)
                .header("Content-Type", "application/json")
                .PUT(HttpRequest.BodyPublishers.ofString(String.valueOf(partitions)))
                .build();
        assertEquals(204, HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).statusCode());
    }

    ProducerBuilder<byte[]> producer() {
        return client.newProducer().topic(topic).enableBatching(false);
    }

    /** A producer that sends a batch only when it is flushed. */
    ProducerBuilder<byte[]> batchingProducer() {
        return client.newProducer().topic(topic).enableBatching(true)
                .batchingMaxPublishDelay(1, TimeUnit.HOURS).batchingMaxMessages(10_000);
    }

    ConsumerBuilder<byte[]> consumer() {
        return client.newConsumer().topic(topic).subscriptionName("sub");
    }

    static List<MessageId> send(Producer<byte[]> producer, String... payloads) throws PulsarClientException {
        List<MessageId> ids = new ArrayList<>();
        for (String payload : payloads) {
            ids.add(producer.send(payload.getBytes()));
        }
        return ids;
    }

    static void sendTogether(Producer<byte[]> producer, String... payloads) throws Exception {
        for (String payload : payloads) {
            producer.sendAsync(payload.getBytes());
        }
        producer.flush();
    }

    static Message<byte[]> receive(Consumer<byte[]> consumer) throws PulsarClientException {
        Message<byte[]> message = consumer.receive(PATIENCE_SECONDS, TimeUnit.SECONDS);
        assertNotNull(message, "no message arrived");
        return message;
    }

    static String text(Message<byte[]> message) {
        return new String(message.getData());
    }

    /** Receives exactly these payloads in this order and acknowledges each. */
    static void expect(Consumer<byte[]> consumer, String... payloads) throws PulsarClientException {
        for (String payload : payloads) {
            Message<byte[]> message = receive(consumer);
            assertEquals(payload, text(message));
            consumer.acknowledge(message);
        }
    }

    static void expectNothing(Consumer<byte[]> consumer) throws PulsarClientException {
        Message<byte[]> message = consumer.receive(SILENCE_MS, TimeUnit.MILLISECONDS);
        assertNull(message, () -> "unexpected message " + text(message));
    }

    static String[] numbers(int from, int to) {
        String[] texts = new String[to - from];
        for (int i = from; i < to; i++) {
            texts[i - from] = String.format("%04d", i);
        }
        return texts;
    }
}
