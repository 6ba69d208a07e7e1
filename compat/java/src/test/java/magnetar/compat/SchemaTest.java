package magnetar.compat;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.time.Instant;
import java.time.LocalDate;
import java.time.LocalDateTime;
import java.time.LocalTime;
import java.util.Date;
import java.util.List;
import java.util.Map;
import java.util.concurrent.TimeUnit;
import java.util.stream.Stream;
import org.apache.avro.reflect.AvroDefault;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Message;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException.IncompatibleSchemaException;
import org.apache.pulsar.client.api.Schema;
import org.apache.pulsar.client.api.SubscriptionInitialPosition;
import org.apache.pulsar.client.api.schema.GenericRecord;
import org.apache.pulsar.common.schema.KeyValue;
import org.apache.pulsar.common.schema.KeyValueEncodingType;
import org.apache.pulsar.common.schema.SchemaType;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.Arguments;
import org.junit.jupiter.params.provider.EnumSource;
import org.junit.jupiter.params.provider.MethodSource;

class SchemaTest extends Stage {
    public static class Order {
        public long number;
        public String customer;
        public List<String> articles;
        public Map<String, Integer> pieces;

        public Order() {}

        Order(long number, String customer) {
            this.number = number;
            this.customer = customer;
            this.articles = List.of("x", "y");
            this.pieces = Map.of("x", 2);
        }
    }

    /** The next version of an order. */
    public static class DiscountedOrder {
        public long number;
        public String customer;
        public List<String> articles;
        public Map<String, Integer> pieces;
        @AvroDefault("5") public int discount;
    }

    public static class Stranger {
        public boolean number;
    }

    private <T> Producer<T> producer(Schema<T> schema) throws Exception {
        return client.newProducer(schema).topic(topic).create();
    }

    private <T> Consumer<T> consumer(Schema<T> schema, String subscription) throws Exception {
        return client.newConsumer(schema).topic(topic).subscriptionName(subscription)
                .subscriptionInitialPosition(SubscriptionInitialPosition.Earliest).subscribe();
    }

    private static <T> Message<T> next(Consumer<T> consumer) throws Exception {
        Message<T> message = consumer.receive(PATIENCE_SECONDS, TimeUnit.SECONDS);
        assertNotNull(message, "no message arrived");
        consumer.acknowledge(message);
        return message;
    }

    private static long version(Message<?> message) {
        return java.nio.ByteBuffer.wrap(message.getSchemaVersion()).getLong();
    }

    static Stream<Schema<Order>> structured() {
        return Stream.of(Schema.AVRO(Order.class), Schema.JSON(Order.class));
    }

    @ParameterizedTest
    @MethodSource("structured")
    void objectsAreReceivedUnchanged(Schema<Order> schema) throws Exception {
        Consumer<Order> consumer = consumer(schema, "sub");
        producer(schema).send(new Order(7, "ann"));
        Message<Order> message = next(consumer);
        Order order = message.getValue();
        assertEquals(7, order.number);
        assertEquals("ann", order.customer);
        assertEquals(List.of("x", "y"), order.articles);
        assertEquals(Map.of("x", 2), order.pieces);
        assertEquals(0, version(message));
    }

    static Stream<Arguments> primitives() {
        return Stream.of(
                Arguments.of(Schema.STRING, "größer"), Arguments.of(Schema.BOOL, true),
                Arguments.of(Schema.INT8, (byte) -3), Arguments.of(Schema.INT16, (short) -3),
                Arguments.of(Schema.INT32, -3), Arguments.of(Schema.INT64, -3L),
                Arguments.of(Schema.FLOAT, 0.5f), Arguments.of(Schema.DOUBLE, 0.5),
                Arguments.of(Schema.DATE, new Date(1_700_000_000_123L)),
                Arguments.of(Schema.TIME, new java.sql.Time(1_700_000_000_123L)),
                Arguments.of(Schema.TIMESTAMP, new java.sql.Timestamp(1_700_000_000_123L)),
                Arguments.of(Schema.INSTANT, Instant.ofEpochMilli(1_700_000_000_123L)),
                Arguments.of(Schema.LOCAL_DATE, LocalDate.of(2026, 2, 28)),
                Arguments.of(Schema.LOCAL_TIME, LocalTime.of(1, 2, 3)),
                Arguments.of(Schema.LOCAL_DATE_TIME, LocalDateTime.of(2026, 2, 28, 1, 2, 3)));
    }

    @ParameterizedTest
    @MethodSource("primitives")
    <T> void primitiveTypes(Schema<T> schema, T value) throws Exception {
        Consumer<T> consumer = consumer(schema, "sub");
        Consumer<GenericRecord> any = consumer(Schema.AUTO_CONSUME(), "any");
        producer(schema).send(value);
        assertEquals(value, next(consumer).getValue());
        assertEquals(value, next(any).getValue().getNativeObject());
        Schema<?> other = schema == Schema.STRING ? Schema.INT32 : Schema.STRING;
        assertThrows(IncompatibleSchemaException.class, () -> producer(other));
    }

    @ParameterizedTest
    @EnumSource(KeyValueEncodingType.class)
    void keyAndValue(KeyValueEncodingType encoding) throws Exception {
        Schema<KeyValue<String, Order>> schema = Schema.KeyValue(Schema.STRING, Schema.AVRO(Order.class), encoding);
        Consumer<KeyValue<String, Order>> consumer = consumer(schema, "sub");
        Consumer<GenericRecord> any = consumer(Schema.AUTO_CONSUME(), "any");
        producer(schema).send(new KeyValue<>("the key", new Order(7, "ann")));
        KeyValue<String, Order> received = next(consumer).getValue();
        assertEquals("the key", received.getKey());
        assertEquals("ann", received.getValue().customer);
        @SuppressWarnings("unchecked")
        KeyValue<String, GenericRecord> generic =
                (KeyValue<String, GenericRecord>) next(any).getValue().getNativeObject();
        assertEquals("the key", generic.getKey());
        assertEquals("ann", generic.getValue().getField("customer"));
        assertThrows(IncompatibleSchemaException.class,
                () -> producer(Schema.KeyValue(Schema.INT32, Schema.AVRO(Order.class), encoding)));
        assertThrows(IncompatibleSchemaException.class,
                () -> producer(Schema.KeyValue(Schema.STRING, Schema.AVRO(Stranger.class), encoding)));
    }

    @ParameterizedTest
    @MethodSource("structured")
    void autoConsumeReadsEveryVersion(Schema<Order> schema) throws Exception {
        producer(schema).send(new Order(7, "ann"));
        DiscountedOrder discounted = new DiscountedOrder();
        discounted.number = 8;
        discounted.discount = 50;
        boolean isAvro = schema.getSchemaInfo().getType() == SchemaType.AVRO;
        producer(isAvro ? Schema.AVRO(DiscountedOrder.class) : Schema.JSON(DiscountedOrder.class)).send(discounted);
        Consumer<GenericRecord> consumer = consumer(Schema.AUTO_CONSUME(), "any");
        Message<GenericRecord> first = next(consumer);
        Message<GenericRecord> second = next(consumer);
        assertEquals("ann", first.getValue().getField("customer"));
        assertEquals(4, first.getValue().getFields().size());
        assertEquals(50, ((Number) second.getValue().getField("discount")).intValue());
        assertArrayEquals(new long[] {0, 1}, new long[] {version(first), version(second)});
    }

    @Test
    void versionsSideBySide() throws Exception {
        Consumer<DiscountedOrder> newReader;
        Consumer<Order> oldReader = consumer(Schema.AVRO(Order.class), "old");
        producer(Schema.AVRO(Order.class)).send(new Order(7, "ann"));
        newReader = consumer(Schema.AVRO(DiscountedOrder.class), "new");
        DiscountedOrder discounted = new DiscountedOrder();
        discounted.number = 8;
        discounted.discount = 50;
        producer(Schema.AVRO(DiscountedOrder.class)).send(discounted);
        assertEquals(5, next(newReader).getValue().discount);
        assertEquals(50, next(newReader).getValue().discount);
        assertEquals(7, next(oldReader).getValue().number);
        assertEquals(8, next(oldReader).getValue().number);
    }

    @Test
    void oneProducerSendsSeveralVersions() throws Exception {
        Producer<byte[]> producer = producer(Schema.AUTO_PRODUCE_BYTES());
        Consumer<GenericRecord> consumer = consumer(Schema.AUTO_CONSUME(), "any");
        producer.newMessage(Schema.AVRO(Order.class)).value(new Order(1, "ann")).send();
        producer.newMessage(Schema.AVRO(DiscountedOrder.class)).value(new DiscountedOrder()).send();
        producer.newMessage(Schema.AVRO(Order.class)).value(new Order(2, "bob")).send();
        assertThrows(IncompatibleSchemaException.class,
                () -> producer.newMessage(Schema.AVRO(Stranger.class)).value(new Stranger()).send());
        long[] versions = {version(next(consumer)), version(next(consumer)), version(next(consumer))};
        assertArrayEquals(new long[] {0, 1, 0}, versions);
    }

    @Test
    void autoProduceChecksBytesAgainstTheTopic() throws Exception {
        Consumer<Order> consumer = consumer(Schema.JSON(Order.class), "sub");
        Producer<byte[]> producer = producer(Schema.AUTO_PRODUCE_BYTES());
        producer.send(Schema.JSON(Order.class).encode(new Order(9, "eve")));
        assertEquals("eve", next(consumer).getValue().customer);
        assertThrows(Exception.class, () -> producer.send("nonsense".getBytes()));
    }

    @Test
    void anIncompatibleSchemaIsRejectedAndTheConnectionKept() throws Exception {
        Consumer<Order> consumer = consumer(Schema.AVRO(Order.class), "sub");
        Producer<Order> producer = producer(Schema.AVRO(Order.class));
        Exception refused =
                assertThrows(IncompatibleSchemaException.class, () -> producer(Schema.AVRO(Stranger.class)));
        assertTrue(refused.getMessage().contains("field number"), refused::getMessage);
        assertThrows(IncompatibleSchemaException.class, () -> producer(Schema.JSON(Order.class)));
        assertThrows(IncompatibleSchemaException.class, () -> consumer(Schema.AVRO(Stranger.class), "other"));
        producer.send(new Order(7, "ann"));
        assertEquals(7, next(consumer).getValue().number);
    }

    @Test
    void partitionsShareTheSchema() throws Exception {
        partition(3);
        Consumer<Order> consumer = consumer(Schema.AVRO(Order.class), "sub");
        Producer<Order> producer = producer(Schema.AVRO(Order.class));
        for (int i = 0; i < 6; i++) {
            producer.send(new Order(i, "ann"));
        }
        for (int i = 0; i < 6; i++) {
            assertEquals(0, version(next(consumer)));
        }
    }

    @Test
    void schemasOverHttp() throws Exception {
        producer(Schema.AVRO(Order.class)).send(new Order(7, "ann"));
        try (PulsarClient http = PulsarClient.builder().serviceUrl(HTTP_URL).build()) {
            Consumer<GenericRecord> consumer = http.newConsumer(Schema.AUTO_CONSUME()).topic(topic)
                    .subscriptionName("http").subscriptionInitialPosition(SubscriptionInitialPosition.Earliest)
                    .subscribe();
            assertEquals("ann", next(consumer).getValue().getField("customer"));
        }
    }
}
