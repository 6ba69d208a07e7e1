import java.nio.charset.StandardCharsets;
import org.apache.pulsar.client.api.HashingScheme;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;

/** Publishes each key given, as value too, with the hashing scheme given: SERVICE-URL TOPIC SCHEME KEY... */
public final class Keys {
    private Keys() {}

    public static void main(String[] arguments) throws Exception {
        try (PulsarClient client = PulsarClient.builder().serviceUrl(arguments[0]).build();
                Producer<byte[]> producer =
                        client.newProducer()
                                .topic(arguments[1])
                                .hashingScheme(HashingScheme.valueOf(arguments[2]))
                                .create()) {
            for (int index = 3; index < arguments.length; index++) {
                byte[] value = arguments[index].getBytes(StandardCharsets.UTF_8);
                producer.newMessage().key(arguments[index]).value(value).sendAsync();
            }
            producer.flush();
        }
    }
}
