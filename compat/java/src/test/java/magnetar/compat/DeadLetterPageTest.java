package magnetar.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.junit.jupiter.api.Test;

/** docs/dead-letters.md has the code between the marks too; tests/docs/test_dead_letters_page.py compares them. */
class DeadLetterPageTest extends Stage {
    @Test
    void byTheClient() throws Exception {
        // page: client
        Consumer<byte[]> consumer = client.newConsumer()
                .topic(topic)
                .subscriptionName("billing")
                .subscriptionType(SubscriptionType.Shared)
                .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
                .deadLetterPolicy(DeadLetterPolicy.builder()
                        .maxRedeliverCount(2)
                        .initialSubscriptionName("inspection")
                        .build())
                .subscribe();
        // end
        fail(consumer, topic + "-billing-DLQ");
    }

    @Test
    void byTheBroker() throws Exception {
        // page: broker
        Consumer<byte[]> consumer = client.newConsumer()
                .topic(topic)
                .subscriptionName("billing")
                .subscriptionType(SubscriptionType.Failover)
                .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
                .property("deadLetterPolicy.maxRedeliverCount", "2")
                .property("deadLetterPolicy.deadLetterTopic", topic + "-dead")
                .subscribe();
        // end
        fail(consumer, topic + "-dead");
    }

    @Test
    void retryWithAnError() throws Exception {
        Consumer<byte[]> consumer = client.newConsumer()
                .topic(topic)
                .subscriptionName("billing")
                .subscriptionType(SubscriptionType.Shared)
                .enableRetry(true)
                .deadLetterPolicy(DeadLetterPolicy.builder()
                        .maxRedeliverCount(1)
                        .initialSubscriptionName("inspection")
                        .build())
                .subscribe();
        send(producer().create(), "bad");
        for (int times = 0; times < 2; times++) {
            Message<byte[]> message = receive(consumer);
            // page: retry
            Map<String, String> properties = Map.of("DEATH_ERROR", "no such customer");
            consumer.reconsumeLater(message, properties, 100, TimeUnit.MILLISECONDS);
            // end
        }
        assertEquals("no such customer", inspect(topic + "-billing-DLQ").getProperty("DEATH_ERROR"));
        consumer.close();
    }

    @Test
    void reportAnError() throws Exception {
        Consumer<byte[]> consumer = client.newConsumer()
                .topic(topic)
                .subscriptionName("billing")
                .subscriptionType(SubscriptionType.Shared)
                .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS)
                .property("deadLetterPolicy.maxRedeliverCount", "1")
                .subscribe();
        send(producer().create(), "bad");
        String full = topic;
        String topic = full.substring("persistent://".length());
        for (int times = 0; times < 2; times++) {
            Message<byte[]> message = receive(consumer);
            // page: report
            URI uri = URI.create(HTTP_URL + "/admin/v2/persistent/" + topic + "/subscription/billing/failure");
            String body = "{\"messageId\": \"%s\", \"error\": \"no such customer\"}".formatted(message.getMessageId());
            HttpRequest report = HttpRequest.newBuilder(uri)
                    .header("Content-Type", "application/json")
                    .POST(HttpRequest.BodyPublishers.ofString(body))
                    .build();
            HttpResponse<String> reply = HttpClient.newHttpClient().send(report, HttpResponse.BodyHandlers.ofString());
            consumer.negativeAcknowledge(message);
            // end
            assertEquals(204, reply.statusCode());
        }
        Message<byte[]> letter = inspect(full + "-billing-DLQ");
        assertEquals("no such customer", letter.getProperty("DEATH_ERROR"));
        assertEquals(consumer.getConsumerName(), letter.getProperty("DEATH_CONSUMER"));
        consumer.close();
    }

    private Message<byte[]> inspect(String deadTopic) throws Exception {
        try (Consumer<byte[]> dead = client.newConsumer().topic(deadTopic).subscriptionName("inspection")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe()) {
            return receive(dead);
        }
    }

    /** Nacks a message three times: then it is a dead letter. */
    private void fail(Consumer<byte[]> consumer, String deadTopic) throws Exception {
        send(producer().create(), "bad");
        for (int times = 0; times < 3; times++) {
            consumer.negativeAcknowledge(receive(consumer));
        }
        Consumer<byte[]> dead = client.newConsumer().topic(deadTopic).subscriptionName("inspection")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        assertEquals("bad", text(receive(dead)));
        expectNothing(consumer);
        expectNothing(dead);
        consumer.close();
        dead.close();
    }
}
