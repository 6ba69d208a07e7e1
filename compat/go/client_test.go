package compat

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/stretchr/testify/require"
)

// Long enough for a slow machine; only a failing test waits this long.
const patience = 20 * time.Second

// Long enough to see that no message arrives.
const silence = 300 * time.Millisecond

func setting(name, otherwise string) string {
	if value := os.Getenv(name); value != "" {
		return value
	}
	return otherwise
}

func connect(t *testing.T) pulsar.Client {
	t.Helper()
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL:    setting("COMPAT_SERVICE_URL", "pulsar://localhost:6650"),
		Logger: log.NewLoggerWithSlog(slog.New(slog.NewTextHandler(io.Discard, nil))),
	})
	require.NoError(t, err)
	t.Cleanup(client.Close)
	return client
}

func newTopic(t *testing.T) string {
	t.Helper()
	suffix := make([]byte, 6)
	_, err := rand.Read(suffix)
	require.NoError(t, err)
	name := strings.ReplaceAll(strings.ToLower(t.Name()[len("Test"):]), "/", "-") // a subtest has a slash in its name
	return "persistent://public/default/go-" + name + "-" + hex.EncodeToString(suffix)
}

func newPartitionedTopic(t *testing.T, partitions int) string {
	t.Helper()
	topic := newTopic(t)
	path := strings.Replace(topic, "://", "/", 1)
	url := setting("COMPAT_HTTP_URL", "http://localhost:8080") + "/admin/v2/" + path + "/partitions"
	request, err := http.NewRequest(http.MethodPut, url, strings.NewReader(fmt.Sprint(partitions)))
	require.NoError(t, err)
	request.Header.Set("Content-Type", "application/json")
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusNoContent, response.StatusCode)
	return topic
}

func producerOf(t *testing.T, client pulsar.Client, options pulsar.ProducerOptions) pulsar.Producer {
	t.Helper()
	producer, err := client.CreateProducer(options)
	require.NoError(t, err)
	t.Cleanup(producer.Close)
	return producer
}

func consumerOf(t *testing.T, client pulsar.Client, options pulsar.ConsumerOptions) pulsar.Consumer {
	t.Helper()
	if options.SubscriptionName == "" {
		options.SubscriptionName = "sub"
	}
	consumer, err := client.Subscribe(options)
	require.NoError(t, err)
	t.Cleanup(consumer.Close)
	return consumer
}

func send(t *testing.T, producer pulsar.Producer, payloads ...string) []pulsar.MessageID {
	t.Helper()
	ids := make([]pulsar.MessageID, len(payloads))
	for i, payload := range payloads {
		id, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte(payload)})
		require.NoError(t, err)
		ids[i] = id
	}
	return ids
}

// sendTogether sends all payloads in one batch.
func sendTogether(t *testing.T, producer pulsar.Producer, payloads ...string) {
	t.Helper()
	failures := make(chan error, len(payloads))
	for _, payload := range payloads {
		message := &pulsar.ProducerMessage{Payload: []byte(payload)}
		producer.SendAsync(context.Background(), message, func(_ pulsar.MessageID, _ *pulsar.ProducerMessage, err error) {
			failures <- err
		})
	}
	require.NoError(t, producer.Flush())
	for range payloads {
		require.NoError(t, <-failures)
	}
}

func receive(t *testing.T, consumer pulsar.Consumer) pulsar.Message {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	message, err := consumer.Receive(ctx)
	require.NoError(t, err)
	return message
}

func receiveFromEither(t *testing.T, consumers []pulsar.Consumer) (int, pulsar.Message) {
	t.Helper()
	select {
	case message := <-consumers[0].Chan():
		return 0, message
	case message := <-consumers[1].Chan():
		return 1, message
	case <-time.After(patience):
		t.Fatal("no message arrived")
		return 0, nil
	}
}

// expect receives exactly these payloads in this order and acknowledges each.
func expect(t *testing.T, consumer pulsar.Consumer, payloads ...string) {
	t.Helper()
	for _, payload := range payloads {
		message := receive(t, consumer)
		require.Equal(t, payload, string(message.Payload()))
		require.NoError(t, consumer.Ack(message))
	}
}

func expectNothing(t *testing.T, consumer pulsar.Consumer) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), silence)
	defer cancel()
	message, err := consumer.Receive(ctx)
	if err == nil {
		t.Fatalf("unexpected message %q", message.Payload())
	}
}

func numbers(from, to int) []string {
	texts := make([]string, 0, to-from)
	for i := from; i < to; i++ {
		texts = append(texts, fmt.Sprintf("%04d", i))
	}
	return texts
}
