package magnetar.compat;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;
import java.util.regex.Pattern;
import org.apache.pulsar.client.api.BatcherBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerBuilder;
import org.apache.pulsar.client.api.ConsumerEventListener;
import org.apache.pulsar.client.api.DeadLetterPolicy;
import org.apache.pulsar.client.api.KeySharedPolicy;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageId;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.api.Range;
import org.apache.pulsar.client.api.Reader;
import org.apache.pulsar.client.api.ReaderBuilder;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.SubscriptionType;
import org.junit.jupiter.api.Test;

class ConsumeTest extends Stage {
    @Test
    void exclusive() throws Exception {
        Consumer<byte[]> consumer = consumer().subscribe();
        assertThrows(PulsarClientException.ConsumerBusyException.class, () -> consumer().subscribe());
        send(producer().create(), "a", "b");
        expect(consumer, "a", "b");
    }

    @Test
    void failover() throws Exception {
        partition(1); // partition 0 has the first consumer by name as active consumer
        BlockingQueue<String> heard = new LinkedBlockingQueue<>();
        Consumer<byte[]> active = failoverConsumer("1", heard).subscribe();
        assertEquals("1 is active", heard.poll(PATIENCE_SECONDS, TimeUnit.SECONDS));
        Consumer<byte[]> standby = failoverConsumer("2", heard).subscribe();
        assertEquals("2 stands by", heard.poll(PATIENCE_SECONDS, TimeUnit.SECONDS));
        Producer<byte[]> producer = producer().create();
        send(producer, "a", "b");
        expect(active, "a", "b");
        expectNothing(standby);
        active.close();
        assertEquals("2 is active", heard.poll(PATIENCE_SECONDS, TimeUnit.SECONDS));
        send(producer, "c");
        expect(standby, "c");
    }

    private ConsumerBuilder<byte[]> failoverConsumer(String name, BlockingQueue<String> heard) {
        return consumer().consumerName(name).subscriptionType(SubscriptionType.Failover)
                .consumerEventListener(new ConsumerEventListener() {
                    @Override
                    public void becameActive(Consumer<?> consumer, int partition) {
                        heard.add(name + " is active");
                    }

                    @Override
                    public void becameInactive(Consumer<?> consumer, int partition) {
                        heard.add(name + " stands by");
                    }
                });
    }

    @Test
    void shared() throws Exception {
        List<Consumer<byte[]>> consumers = twoConsumers(consumer().subscriptionType(SubscriptionType.Shared));
        send(producer().create(), numbers(0, 100));
        Set<String> seen = new HashSet<>();
        for (Consumer<byte[]> consumer : consumers) {
            int share = 0;
            Message<byte[]> message;
            while ((message = consumer.receive(SILENCE_MS, TimeUnit.MILLISECONDS)) != null) {
                seen.add(text(message));
                consumer.acknowledge(message);
                share++;
            }
            assertTrue(share > 20, "one consumer got only " + share);
        }
        assertEquals(100, seen.size());
    }

    @Test
    void keyShared() throws Exception {
        List<Consumer<byte[]>> consumers = twoConsumers(consumer().subscriptionType(SubscriptionType.Key_Shared));
        Producer<byte[]> producer = client.newProducer().topic(topic).batcherBuilder(BatcherBuilder.KEY_BASED).create();
        for (int round = 0; round < 5; round++) {
            for (int key = 0; key < 20; key++) {
                producer.newMessage().key("key-" + key).value(String.valueOf(round).getBytes()).sendAsync();
            }
        }
        producer.flush();
        Map<String, Integer> owner = new HashMap<>();
        Map<String, Integer> next = new HashMap<>();
        for (int index = 0; index < 2; index++) {
            Message<byte[]> message;
            while ((message = consumers.get(index).receive(SILENCE_MS, TimeUnit.MILLISECONDS)) != null) {
                String key = message.getKey();
                assertEquals(owner.getOrDefault(key, index), index, key + " went to both consumers");
                owner.put(key, index);
                assertEquals(next.merge(key, 1, Integer::sum) - 1, Integer.parseInt(text(message)));
                consumers.get(index).acknowledge(message);
            }
        }
        assertEquals(20, owner.size());
        assertTrue(next.values().stream().allMatch(count -> count == 5));
    }

    @Test
    void keySharedWithFixedRanges() throws Exception {
        ConsumerBuilder<byte[]> builder = consumer().subscriptionType(SubscriptionType.Key_Shared);
        Consumer<byte[]> low = builder.clone()
                .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of(0, 32767))).subscribe();
        assertThrows(PulsarClientException.class, () -> builder.clone()
                .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of(30000, 65535))).subscribe());
        Consumer<byte[]> high = builder.clone()
                .keySharedPolicy(KeySharedPolicy.stickyHashRange().ranges(Range.of(32768, 65535))).subscribe();
        Producer<byte[]> producer = producer().create();
        for (int key = 0; key < 50; key++) {
            producer.newMessage().key("key-" + key).value(new byte[0]).send();
        }
        Set<String> seen = new HashSet<>();
        for (Consumer<byte[]> consumer : List.of(low, high)) {
            int share = 0;
            Message<byte[]> message;
            while ((message = consumer.receive(SILENCE_MS, TimeUnit.MILLISECONDS)) != null) {
                assertTrue(seen.add(message.getKey()));
                share++;
            }
            assertTrue(share > 5, "one half of the ranges got only " + share);
        }
        assertEquals(50, seen.size());
    }

    private static List<Consumer<byte[]>> twoConsumers(ConsumerBuilder<byte[]> builder) throws Exception {
        return List.of(builder.clone().subscribe(), builder.clone().subscribe());
    }

    @Test
    void negativeAck() throws Exception {
        Consumer<byte[]> consumer = consumer().subscriptionType(SubscriptionType.Shared)
                .negativeAckRedeliveryDelay(100, TimeUnit.MILLISECONDS).subscribe();
        send(producer().create(), "a", "b", "c");
        for (String payload : List.of("a", "b", "c")) {
            Message<byte[]> message = receive(consumer);
            assertEquals(payload, text(message));
            assertEquals(0, message.getRedeliveryCount());
            if (payload.equals("b")) {
                consumer.negativeAcknowledge(message);
            } else {
                consumer.acknowledge(message);
            }
        }
        Message<byte[]> again = receive(consumer);
        assertEquals("b", text(again));
        assertEquals(1, again.getRedeliveryCount());
    }

    @Test
    void ackTimeout() throws Exception {
        Consumer<byte[]> consumer = consumer().subscriptionType(SubscriptionType.Shared)
                .ackTimeout(1, TimeUnit.SECONDS).subscribe();
        send(producer().create(), "a");
        assertEquals("a", text(receive(consumer)));
        assertEquals("a", text(receive(consumer)));
    }

    @Test
    void ackWithReceipt() throws Exception {
        ConsumerBuilder<byte[]> builder = consumer().subscriptionType(SubscriptionType.Shared)
                .isAckReceiptEnabled(true);
        try (Consumer<byte[]> consumer = builder.clone().subscribe()) {
            send(producer().create(), "a", "b");
            expect(consumer, "a", "b");
        }
        expectNothing(builder.clone().subscribe());
    }

    @Test
    void batchIndexAck() throws Exception {
        ConsumerBuilder<byte[]> builder = consumer().subscriptionType(SubscriptionType.Shared)
                .isAckReceiptEnabled(true).enableBatchIndexAcknowledgment(true);
        try (Consumer<byte[]> consumer = builder.clone().subscribe()) {
            sendTogether(batchingProducer().create(), numbers(0, 10));
            for (int i = 0; i < 10; i++) {
                Message<byte[]> message = receive(consumer);
                if (i % 2 == 0) {
                    consumer.acknowledge(message);
                }
            }
        }
        Consumer<byte[]> again = builder.clone().subscribe();
        expect(again, "0001", "0003", "0005", "0007", "0009");
        expectNothing(again);
    }

    @Test
    void cumulativeAck() throws Exception {
        try (Consumer<byte[]> consumer = consumer().isAckReceiptEnabled(true).subscribe()) {
            send(producer().create(), numbers(0, 10));
            for (int i = 0; i < 10; i++) {
                Message<byte[]> message = receive(consumer);
                if (i == 6) {
                    consumer.acknowledgeCumulative(message);
                }
            }
        }
        expect(consumer().subscribe(), numbers(7, 10));
    }

    @Test
    void seek() throws Exception {
        Consumer<byte[]> consumer = consumer().subscribe();
        Producer<byte[]> producer = producer().create();
        List<MessageId> ids = send(producer, numbers(0, 10));
        expect(consumer, numbers(0, 10));
        consumer.seek(ids.get(4)); // by default this client starts after the message
        expect(consumer, numbers(5, 10));
        consumer.seek(MessageId.earliest);
        expect(consumer, numbers(0, 10));
        consumer.seek(System.currentTimeMillis() - 3_600_000);
        expect(consumer, numbers(0, 10));
        consumer.seek(MessageId.latest);
        expectNothing(consumer);
        send(producer, "new");
        expect(consumer, "new");
        assertEquals(1, consumer.getLastMessageIds().size());
    }

    @Test
    void seekIntoABatch() throws Exception {
        Consumer<byte[]> consumer = consumer().startMessageIdInclusive().subscribe();
        sendTogether(batchingProducer().create(), numbers(0, 10));
        List<MessageId> ids = new ArrayList<>();
        for (int i = 0; i < 10; i++) {
            Message<byte[]> message = receive(consumer);
            ids.add(message.getMessageId());
            consumer.acknowledge(message);
        }
        consumer.seek(ids.get(4));
        expect(consumer, numbers(4, 10));
    }

    @Test
    void reader() throws Exception {
        List<MessageId> ids = send(producer().create(), numbers(0, 10));
        assertEquals(List.of(numbers(0, 10)), read(client.newReader().startMessageId(MessageId.earliest)));
        assertEquals(List.of(numbers(4, 10)), read(client.newReader().startMessageId(ids.get(3))));
        assertEquals(List.of(numbers(3, 10)),
                read(client.newReader().startMessageId(ids.get(3)).startMessageIdInclusive()));
        assertEquals(List.of(), read(client.newReader().startMessageId(MessageId.latest)));
        assertEquals(List.of(numbers(0, 10)),
                read(client.newReader().startMessageFromRollbackDuration(1, TimeUnit.HOURS)));
    }

    private List<String> read(ReaderBuilder<byte[]> builder) throws Exception {
        List<String> payloads = new ArrayList<>();
        try (Reader<byte[]> reader = builder.topic(topic).create()) {
            while (reader.hasMessageAvailable()) {
                payloads.add(text(reader.readNext(PATIENCE_SECONDS, TimeUnit.SECONDS)));
            }
        }
        return payloads;
    }

    @Test
    void delayed() throws Exception {
        Consumer<byte[]> consumer = consumer().subscriptionType(SubscriptionType.Shared).subscribe();
        Producer<byte[]> producer = producer().create();
        long start = System.currentTimeMillis();
        producer.newMessage().deliverAfter(1500, TimeUnit.MILLISECONDS).value("later".getBytes()).send();
        producer.newMessage().deliverAt(start + 3000).value("later still".getBytes()).send();
        send(producer, "now");
        expect(consumer, "now", "later");
        assertTrue(System.currentTimeMillis() >= start + 1500);
        expect(consumer, "later still");
        assertTrue(System.currentTimeMillis() >= start + 3000);
    }

    @Test
    void regularExpression() throws Exception {
        String prefix = topic;
        topic = prefix + "-a";
        producer().create();
        Consumer<byte[]> consumer = client.newConsumer().topicsPattern(Pattern.compile(prefix + "-.*"))
                .patternAutoDiscoveryPeriod(1, TimeUnit.SECONDS).subscriptionName("sub")
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
        for (String suffix : List.of("-a", "-b")) { // the last topic is created only now
            topic = prefix + suffix;
            send(producer().create(), suffix);
            Message<byte[]> message = receive(consumer);
            assertEquals(prefix + suffix, message.getTopicName());
            consumer.acknowledge(message);
        }
    }

    @Test
    void deadLetters() throws Exception {
        Consumer<byte[]> dead = client.newConsumer().topic(topic + "-sub-DLQ").subscriptionName("dead").subscribe();
        Consumer<byte[]> consumer = consumer().subscriptionType(SubscriptionType.Shared)
                .negativeAckRedeliveryDelay(50, TimeUnit.MILLISECONDS)
                .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2).build()).subscribe();
        send(producer().create(), "good", "bad");
        expect(consumer, "good");
        for (int count = 0; count < 3; count++) {
            Message<byte[]> message = receive(consumer);
            assertEquals("bad", text(message));
            assertEquals(count, message.getRedeliveryCount());
            consumer.negativeAcknowledge(message);
        }
        Message<byte[]> letter = receive(dead);
        assertEquals("bad", text(letter));
        assertEquals(topic, letter.getProperty("REAL_TOPIC"));
        expectNothing(consumer);
    }

    @Test
    void retryLetters() throws Exception {
        Consumer<byte[]> dead = client.newConsumer().topic(topic + "-sub-DLQ").subscriptionName("dead").subscribe();
        Consumer<byte[]> consumer = consumer().subscriptionType(SubscriptionType.Shared).enableRetry(true)
                .deadLetterPolicy(DeadLetterPolicy.builder().maxRedeliverCount(2).build()).subscribe();
        send(producer().create(), "stubborn");
        for (int count = 0; count < 3; count++) {
            Message<byte[]> message = receive(consumer);
            assertEquals("stubborn", text(message));
            consumer.reconsumeLater(message, 200, TimeUnit.MILLISECONDS);
        }
        assertEquals("stubborn", text(receive(dead)));
        expectNothing(consumer);
    }

    @Test
    void unsubscribe() throws Exception {
        Consumer<byte[]> consumer = consumer().subscribe();
        send(producer().create(), "gone with the subscription");
        consumer.unsubscribe();
        expectNothing(consumer().subscribe());
    }

    @Test
    void nonPersistent() throws Exception {
        topic = "non-" + topic;
        Consumer<byte[]> consumer = consumer().subscribe();
        send(producer().create(), "a", "b");
        expect(consumer, "a", "b");
    }
}
