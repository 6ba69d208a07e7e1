package magnetar.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;

import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.DeadLetterPolicy;
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
