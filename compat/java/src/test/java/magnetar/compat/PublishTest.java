package magnetar.compat;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.security.KeyPair;
import java.security.KeyPairGenerator;
import java.util.Base64;
import java.util.HashSet;
import java.util.Map;
import java.util.Random;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.CompressionType;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.ConsumerCryptoFailureAction;
import org.apache.pulsar.client.api.CryptoKeyReader;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.MessageIdAdv;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.ProducerAccessMode;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.impl.DefaultCryptoKeyReader;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.EnumSource;

class PublishTest extends Stage {
    @Test
    void propertiesKeyAndEventTime() throws Exception {
        Consumer<byte[]> consumer = consumer().subscribe();
        Producer<byte[]> producer = producer().producerName("the-producer").create();
        producer.newMessage().value("hello".getBytes()).key("key").orderingKey("ordering".getBytes())
                .properties(Map.of("a", "1", "b", "2")).eventTime(1_700_000_000_123L).send();
        Message<byte[]> message = receive(consumer);
        assertEquals("hello", text(message));
        assertEquals("key", message.getKey());
        assertArrayEquals("ordering".getBytes(), message.getOrderingKey());
        assertEquals(Map.of("a", "1", "b", "2"), message.getProperties());
        assertEquals(1_700_000_000_123L, message.getEventTime());
        assertEquals("the-producer", message.getProducerName());
        assertEquals(topic, message.getTopicName());
    }

    @Test
    void batching() throws Exception {
        Consumer<byte[]> consumer = consumer().subscribe();
        sendTogether(batchingProducer().create(), numbers(0, 100));
        Message<byte[]> first = receive(consumer);
        assertEquals("0000", text(first));
        assertEquals(100, ((MessageIdAdv) first.getMessageId()).getBatchSize());
        consumer.acknowledge(first);
        expect(consumer, numbers(1, 100));
        expectNothing(consumer);
    }

    @ParameterizedTest
    @EnumSource(CompressionType.class)
    void compression(CompressionType type) throws Exception {
        Consumer<byte[]> consumer = consumer().subscribe();
        String payload = "the same again and again ".repeat(1000);
        send(producer().compressionType(type).create(), payload);
        expect(consumer, payload);
    }

    @Test
    void chunking() throws Exception {
        Consumer<byte[]> consumer = consumer().subscribe();
        Producer<byte[]> producer = producer().enableChunking(true).create();
        byte[] payload = new byte[12 << 20];
        new Random(1).nextBytes(payload);
        producer.send(payload);
        send(producer, "small");
        Message<byte[]> large = receive(consumer);
        assertArrayEquals(payload, large.getData());
        consumer.acknowledge(large);
        expect(consumer, "small");
        expectNothing(consumer);
    }

    @Test
    void encryption() throws Exception {
        CryptoKeyReader keys = newKeys();
        Consumer<byte[]> consumer = consumer().cryptoKeyReader(keys).subscribe();
        Consumer<byte[]> stranger = consumer().subscriptionName("stranger")
                .cryptoFailureAction(ConsumerCryptoFailureAction.CONSUME).subscribe();
        send(producer().addEncryptionKey("key").cryptoKeyReader(keys).create(), "secret");
        expect(consumer, "secret");
        Message<byte[]> sealed = receive(stranger);
        assertTrue(sealed.getEncryptionCtx().isPresent());
        assertNotEquals("secret", text(sealed));
    }

    private static CryptoKeyReader newKeys() throws Exception {
        KeyPairGenerator generator = KeyPairGenerator.getInstance("RSA");
        generator.initialize(2048);
        KeyPair pair = generator.generateKeyPair();
        return DefaultCryptoKeyReader.builder()
                .publicKey("key", pem("PUBLIC KEY", pair.getPublic().getEncoded()))
                .privateKey("key", pem("PRIVATE KEY", pair.getPrivate().getEncoded()))
                .build();
    }

    private static String pem(String kind, byte[] der) {
        String body = Base64.getMimeEncoder().encodeToString(der);
        String text = "-----BEGIN " + kind + "-----\n" + body + "\n-----END " + kind + "-----\n";
        return "data:application/x-pem-file;base64," + Base64.getEncoder().encodeToString(text.getBytes());
    }

    @Test
    void tooLarge() throws Exception {
        Producer<byte[]> producer = producer().create();
        assertThrows(PulsarClientException.InvalidMessageException.class, () -> producer.send(new byte[6 << 20]));
        send(producer, "and goes on");
    }

    @Test
    void deduplication() throws Exception {
        Consumer<byte[]> consumer = consumer().subscribe();
        try (Producer<byte[]> producer = producer().producerName("one-name").create()) {
            producer.newMessage().sequenceId(10).value("a".getBytes()).send();
            producer.newMessage().sequenceId(20).value("b".getBytes()).send();
        }
        Producer<byte[]> again = producer().producerName("one-name").create();
        assertEquals(20, again.getLastSequenceId());
        again.newMessage().sequenceId(10).value("a once more".getBytes()).send();
        again.newMessage().sequenceId(20).value("b once more".getBytes()).send();
        again.newMessage().sequenceId(21).value("c".getBytes()).send();
        expect(consumer, "a", "b", "c");
        expectNothing(consumer);
    }

    @Test
    void exclusiveAccess() throws Exception {
        Producer<byte[]> first = producer().accessMode(ProducerAccessMode.Exclusive).create();
        assertThrows(PulsarClientException.ProducerFencedException.class,
                () -> producer().accessMode(ProducerAccessMode.Exclusive).create());
        assertThrows(PulsarClientException.class, () -> producer().create());
        first.close();
        send(producer().accessMode(ProducerAccessMode.Exclusive).create(), "free again");
    }

    @Test
    void waitForExclusiveAccess() throws Exception {
        Producer<byte[]> first = producer().accessMode(ProducerAccessMode.Exclusive).create();
        CompletableFuture<Producer<byte[]>> second =
                producer().accessMode(ProducerAccessMode.WaitForExclusive).createAsync();
        Thread.sleep(SILENCE_MS);
        assertFalse(second.isDone());
        first.close();
        send(second.get(PATIENCE_SECONDS, TimeUnit.SECONDS), "my turn");
    }

    @Test
    void exclusiveAccessWithFencing() throws Exception {
        Producer<byte[]> first = producer().accessMode(ProducerAccessMode.Exclusive).create();
        Producer<byte[]> second = producer().accessMode(ProducerAccessMode.ExclusiveWithFencing).create();
        assertThrows(PulsarClientException.class, () -> send(first, "too late"));
        send(second, "mine now");
    }

    @Test
    void twoProducersOfOneName() throws Exception {
        producer().producerName("taken").create();
        assertThrows(PulsarClientException.ProducerBusyException.class, () -> producer().producerName("taken").create());
    }

    @Test
    void partitioned() throws Exception {
        partition(3);
        assertEquals(3, client.getPartitionsForTopic(topic).get().size());
        Consumer<byte[]> consumer = consumer().subscribe();
        send(producer().create(), numbers(0, 30));
        Set<String> seen = new HashSet<>();
        Set<Integer> used = new HashSet<>();
        for (int i = 0; i < 30; i++) {
            Message<byte[]> message = receive(consumer);
            seen.add(text(message));
            used.add(((MessageIdAdv) message.getMessageId()).getPartitionIndex());
            consumer.acknowledge(message);
        }
        assertEquals(30, seen.size());
        assertEquals(3, used.size());
        expectNothing(consumer);
    }
}
