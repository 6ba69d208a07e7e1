package magnetar.compat;

import static org.junit.jupiter.api.Assertions.assertThrows;

import java.util.Map;
import java.util.UUID;
import java.util.concurrent.TimeUnit;
import org.apache.pulsar.client.api.AuthenticationFactory;
import org.apache.pulsar.client.api.ClientBuilder;
import org.apache.pulsar.client.api.Consumer;
import org.apache.pulsar.client.api.Producer;
import org.apache.pulsar.client.api.PulsarClient;
import org.apache.pulsar.client.api.PulsarClientException;
import org.apache.pulsar.client.impl.auth.AuthenticationBasic;
import org.junit.jupiter.api.BeforeEach;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

/** A broker with TLS that asks who its clients are: certificates, tokens and passwords, over both protocols. */
class SecuredTest {
    private static final String PLAIN_URL = System.getenv("COMPAT_SECURED_URL");
    private static final String TLS_URL = System.getenv("COMPAT_TLS_URL");
    private static final String HTTPS_URL = System.getenv("COMPAT_HTTPS_URL");
    private static final String KEYS = System.getenv("COMPAT_KEYS");
    private static final String TOKEN = System.getenv("COMPAT_TOKEN");

    private String topic;

    @BeforeEach
    void nameTopic() {
        topic = "persistent://private/auth/java-" + UUID.randomUUID();
    }

    private static ClientBuilder plain(String url) {
        return PulsarClient.builder().serviceUrl(url).operationTimeout(5, TimeUnit.SECONDS)
                .lookupTimeout(5, TimeUnit.SECONDS);
    }

    private static ClientBuilder trusting(String url) {
        return plain(url).tlsTrustCertsFilePath(KEYS + "/cacert.pem").enableTlsHostnameVerification(true);
    }

    private static AuthenticationBasic password(String word) {
        AuthenticationBasic basic = new AuthenticationBasic();
        basic.configure(Map.of("userId", "admin", "password", word));
        return basic;
    }

    private static String urlOf(String kind) {
        return kind.equals("binary") ? TLS_URL : HTTPS_URL;
    }

    private void works(ClientBuilder builder) throws Exception {
        try (PulsarClient client = builder.build();
                Consumer<byte[]> consumer = client.newConsumer().topic(topic).subscriptionName("sub").subscribe();
                Producer<byte[]> producer = client.newProducer().topic(topic).create()) {
            Stage.send(producer, "a", "b");
            Stage.expect(consumer, "a", "b");
        }
    }

    private <T extends Exception> void isRefused(Class<T> error, ClientBuilder builder) throws Exception {
        try (PulsarClient client = builder.build()) {
            assertThrows(error, () -> client.newProducer().topic(topic).create());
        }
    }

    @ParameterizedTest
    @ValueSource(strings = {"binary", "https"})
    void aClientCertificateIsARole(String kind) throws Exception {
        works(trusting(urlOf(kind))
                .authentication(AuthenticationFactory.TLS(KEYS + "/client-cert.pem", KEYS + "/client-key.pem")));
    }

    @ParameterizedTest
    @ValueSource(strings = {"binary", "https"})
    void aToken(String kind) throws Exception {
        works(trusting(urlOf(kind)).authentication(AuthenticationFactory.token(TOKEN)));
    }

    @Test
    void aTokenOfASupplierWithoutTls() throws Exception {
        works(plain(PLAIN_URL).authentication(AuthenticationFactory.token(() -> TOKEN)));
    }

    @ParameterizedTest
    @ValueSource(strings = {"binary", "https"})
    void aPassword(String kind) throws Exception {
        works(trusting(urlOf(kind)).authentication(password("123456")));
    }

    @Test
    void withoutAnyAClientIsAnonymousAndHasOnlyWhatThatRoleMay() throws Exception {
        isRefused(PulsarClientException.AuthorizationException.class, trusting(TLS_URL));
        topic = topic.replace("private/auth", "public/default");
        works(trusting(TLS_URL));
    }

    @Test
    void aTokenThatWasChangedIsRefused() throws Exception {
        String changed = TOKEN.substring(0, TOKEN.length() - 2) + (TOKEN.endsWith("AA") ? "BB" : "AA");
        isRefused(PulsarClientException.class, trusting(TLS_URL).authentication(AuthenticationFactory.token(changed)));
    }

    @Test
    void aWrongPasswordIsRefused() throws Exception {
        isRefused(PulsarClientException.class, trusting(TLS_URL).authentication(password("654321")));
    }

    @ParameterizedTest
    @ValueSource(strings = {"binary", "https"})
    void aClientThatDoesNotTrustTheAuthorityDoesNotConnect(String kind) throws Exception {
        isRefused(PulsarClientException.class, plain(urlOf(kind)).authentication(AuthenticationFactory.token(TOKEN)));
    }
}
