package compat

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/apache/pulsar-client-go/pulsar/log"
	"github.com/stretchr/testify/require"
)

const nackDelay = 50 * time.Millisecond

// limit is the consumer property that requests the broker's policy, without code of this client (DL3).
func limit(count int) map[string]string {
	return map[string]string{"deadLetterPolicy.maxRedeliverCount": strconv.Itoa(count)}
}

func subscribeDead(t *testing.T, client pulsar.Client, topic string) pulsar.Consumer {
	t.Helper()
	return consumerOf(t, client, pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "inspection", Type: pulsar.Shared,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
}

// nackUntilDead nacks bad messages and acknowledges the others until `count` dead letters arrived. It returns them, and
// the deliveries of each message.
func nackUntilDead(t *testing.T, consumer, dead pulsar.Consumer, isBad func(string) bool, count int) ([]pulsar.Message, map[string]int) {
	t.Helper()
	seen, letters := map[string]int{}, []pulsar.Message{}
	deadline := time.After(patience)
	for len(letters) < count {
		select {
		case message := <-consumer.Chan():
			payload := string(message.Payload())
			seen[payload]++
			if isBad(payload) {
				consumer.Nack(message)
			} else {
				require.NoError(t, consumer.Ack(message))
			}
		case letter := <-dead.Chan():
			letters = append(letters, letter.Message)
			require.NoError(t, dead.Ack(letter.Message))
		case <-deadline:
			t.Fatalf("%d of %d dead letters arrived; seen: %v", len(letters), count, seen)
		}
	}
	expectNothing(t, consumer)
	expectNothing(t, dead)
	return letters, seen
}

// DL1: this client delivers a message N times, where others do so 1+N times.
func TestDL1ClientPolicy(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{
		Topic: topic, Type: pulsar.Shared, NackRedeliveryDelay: nackDelay, AckWithResponse: true,
		DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3, DeadLetterTopic: topic + "-sub-DLQ"},
	})
	dead := subscribeDead(t, client, topic+"-sub-DLQ")
	send(t, producerOf(t, client, pulsar.ProducerOptions{Topic: topic, DisableBatching: true}), numbers(0, 10)...)
	letters, seen := nackUntilDead(t, consumer, dead, func(payload string) bool { return payload == "0004" }, 1)
	require.Equal(t, "0004", string(letters[0].Payload()))
	require.Equal(t, topic, letters[0].Properties()["REAL_TOPIC"])
	for _, payload := range numbers(0, 10) {
		if payload == "0004" {
			require.Equal(t, 3, seen[payload])
		} else {
			require.Equal(t, 1, seen[payload])
		}
	}
	require.Zero(t, backlog(t, topic, "sub"))
}

// DL2: this client's default names equal the broker's.
func TestDL2DefaultNames(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{
		Topic: topic, Type: pulsar.Shared, RetryEnable: true, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 1},
	})
	send(t, producerOf(t, client, pulsar.ProducerOptions{Topic: topic, DisableBatching: true}), "bad")
	message := receive(t, consumer)
	consumer.ReconsumeLater(message, 0)
	message = receive(t, consumer)
	require.Equal(t, topic+"-sub-RETRY", message.Topic())
	consumer.ReconsumeLater(message, 0)
	require.Equal(t, "bad", string(receive(t, subscribeDead(t, client, topic+"-sub-DLQ")).Payload()))
}

func TestDL3BrokerPolicy(t *testing.T) {
	types := map[string]pulsar.SubscriptionType{
		"Shared": pulsar.Shared, "KeyShared": pulsar.KeyShared, "Exclusive": pulsar.Exclusive, "Failover": pulsar.Failover,
	}
	for name, consumerType := range types {
		t.Run(name, func(t *testing.T) {
			client := connect(t)
			topic := strings.Replace(newTopic(t), "/"+strings.ToLower(name), "-"+name, 1)
			consumer := consumerOf(t, client, pulsar.ConsumerOptions{
				Topic: topic, Type: consumerType, NackRedeliveryDelay: nackDelay, AckWithResponse: true, Properties: limit(2),
			})
			dead := subscribeDead(t, client, topic+"-sub-DLQ")
			send(t, producerOf(t, client, pulsar.ProducerOptions{Topic: topic, DisableBatching: true}), numbers(0, 10)...)
			letters, seen := nackUntilDead(t, consumer, dead, func(payload string) bool { return payload == "0003" }, 1)
			require.Equal(t, "0003", string(letters[0].Payload()))
			require.Equal(t, "MaxRedeliveries", letters[0].Properties()["DEATH_REASON"])
			require.Equal(t, 3, seen["0003"])
			require.Len(t, seen, 10)
			require.Zero(t, backlog(t, topic, "sub"))
		})
	}
}

// DL9: one message of a compressed batch is dead-lettered alone, if the consumer acknowledges the others one by one. This
// client nacks the whole batch, and messages that it acknowledges later are redelivered: so all acks are awaited first.
func TestDL9Batch(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{
		Topic: topic, Type: pulsar.Shared, NackRedeliveryDelay: nackDelay, Properties: limit(2),
		EnableBatchIndexAcknowledgment: true, AckWithResponse: true,
	})
	dead := subscribeDead(t, client, topic+"-sub-DLQ")
	producer := producerOf(t, client, pulsar.ProducerOptions{
		Topic: topic, BatchingMaxPublishDelay: time.Hour, CompressionType: pulsar.ZSTD,
	})
	sendTogether(t, producer, numbers(0, 10)...)
	var bad pulsar.Message
	for _, payload := range numbers(0, 10) {
		message := receive(t, consumer)
		require.Equal(t, payload, string(message.Payload()))
		if payload == "0006" {
			bad = message
		} else {
			require.NoError(t, consumer.Ack(message))
		}
	}
	consumer.Nack(bad)
	letters, seen := nackUntilDead(t, consumer, dead, func(string) bool { return true }, 1)
	require.Equal(t, "0006", string(letters[0].Payload()))
	require.True(t, strings.HasSuffix(letters[0].Properties()["ORIGIN_MESSAGE_ID"], ":0:-1:6"))
	require.Equal(t, map[string]int{"0006": 2}, seen)
}

// DL9: by default this client sends no ack before it has all of the batch; then it gets single messages.
func TestDL9BatchWithDefaults(t *testing.T) {
	client, topic := connect(t), newTopic(t)
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{
		Topic: topic, Type: pulsar.Shared, NackRedeliveryDelay: nackDelay, Properties: limit(2),
	})
	dead := subscribeDead(t, client, topic+"-sub-DLQ")
	producer := producerOf(t, client, pulsar.ProducerOptions{Topic: topic, BatchingMaxPublishDelay: time.Hour})
	sendTogether(t, producer, numbers(0, 10)...)
	letters, seen := nackUntilDead(t, consumer, dead, func(payload string) bool { return payload == "0006" }, 1)
	require.Equal(t, "0006", string(letters[0].Payload()))
	for _, payload := range numbers(0, 10) {
		if payload == "0006" {
			require.Equal(t, 3, seen[payload])
		} else {
			require.Equal(t, 2, seen[payload])
		}
	}
}

// DL7: properties of a retry, which never arrives early. Without a delay, the next retry is published before the ack of
// the previous one is sent.
func TestDL7Retries(t *testing.T) {
	for _, delay := range []time.Duration{0, 300 * time.Millisecond} {
		t.Run(delay.String(), func(t *testing.T) {
			client := connect(t)
			topic := strings.Replace(newTopic(t), "/"+delay.String(), "-"+delay.String(), 1)
			consumer := consumerOf(t, client, pulsar.ConsumerOptions{
				Topic: topic, Type: pulsar.Shared, RetryEnable: true, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 4},
			})
			dead := subscribeDead(t, client, topic+"-sub-DLQ")
			producer := producerOf(t, client, pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
			id, err := producer.Send(context.Background(), &pulsar.ProducerMessage{
				Payload: []byte("stubborn"), Key: "key", Properties: map[string]string{"colour": "red"},
			})
			require.NoError(t, err)
			origin := fmt.Sprintf("%d:%d:%d", id.LedgerID(), id.EntryID(), id.PartitionIdx())
			asked := time.Now()
			for retry := range 5 {
				message := receive(t, consumer)
				require.Equal(t, "red", message.Properties()["colour"])
				require.Equal(t, "key", message.Key())
				if retry > 0 {
					require.GreaterOrEqual(t, time.Since(asked), delay, "early")
					require.Equal(t, strconv.Itoa(retry), message.Properties()["RECONSUMETIMES"])
					require.Equal(t, strconv.FormatInt(delay.Milliseconds(), 10), message.Properties()["DELAY_TIME"])
					require.Equal(t, topic, message.Properties()["REAL_TOPIC"])
					require.Equal(t, origin, message.Properties()["ORIGIN_MESSAGE_ID"])
				}
				asked = time.Now()
				consumer.ReconsumeLater(message, delay)
			}
			letter := receive(t, dead)
			require.Equal(t, "stubborn", string(letter.Payload()))
			require.Equal(t, origin, letter.Properties()["ORIGIN_MESSAGE_ID"])
			expectNothing(t, dead)
			expectNothing(t, consumer)
		})
	}
}

// DL10: dead letters from before the first consumer.
func TestDL10InitialSubscription(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{
		Topic: topic, Type: pulsar.Shared, NackRedeliveryDelay: nackDelay,
		DLQ: &pulsar.DLQPolicy{
			MaxDeliveries: 1, DeadLetterTopic: topic + "-sub-DLQ", InitialSubscriptionName: "audit",
		},
	})
	send(t, producerOf(t, client, pulsar.ProducerOptions{Topic: topic, DisableBatching: true}), "bad")
	consumer.Nack(receive(t, consumer))
	require.Eventually(t, func() bool { return backlog(t, topic, "sub") == 0 }, patience, 20*time.Millisecond)
	audit := pulsar.ConsumerOptions{Topic: topic + "-sub-DLQ", SubscriptionName: "audit"}
	require.Equal(t, "bad", string(receive(t, consumerOf(t, client, audit)).Payload()))
}

// DL6 and DL7: counts and delays survive a restart of the broker.
func TestDL7Restart(t *testing.T) {
	broker := ownBroker(t)
	broker.start()
	client := broker.connect()
	topic := newTopic(t)
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{
		Topic: topic, Type: pulsar.Shared, RetryEnable: true, DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3},
	}) // with ack responses, this client is stuck after its first retry
	counted := consumerOf(t, client, pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "counted", Type: pulsar.Shared, NackRedeliveryDelay: nackDelay, Properties: limit(3),
	})
	send(t, producerOf(t, client, pulsar.ProducerOptions{Topic: topic, DisableBatching: true}), "bad")
	for count := range 2 {
		message := receive(t, counted)
		require.EqualValues(t, count, message.RedeliveryCount())
		counted.Nack(message)
	}
	require.EqualValues(t, 2, receive(t, counted).RedeliveryCount())
	const delay = 4 * time.Second
	message := receive(t, consumer)
	asked := time.Now()
	consumer.ReconsumeLater(message, delay)
	time.Sleep(500 * time.Millisecond) // another goroutine publishes it, without a notification
	broker.stop()
	broker.start()
	message = receive(t, consumer)
	require.GreaterOrEqual(t, time.Since(asked), delay, "early")
	require.Equal(t, "1", message.Properties()["RECONSUMETIMES"])
	require.NoError(t, consumer.Ack(message))
	for _, count := range []int{2, 3} {
		message := receive(t, counted)
		require.EqualValues(t, count, message.RedeliveryCount())
		counted.Nack(message)
	}
	require.Equal(t, "bad", string(receive(t, subscribeDead(t, client, topic+"-counted-DLQ")).Payload()))
}

// A broker that a test may restart.
type brokerProcess struct {
	t              *testing.T
	data           string
	port, httpPort int
	process        *exec.Cmd
}

func ownBroker(t *testing.T) *brokerProcess {
	t.Helper()
	if _, err := exec.LookPath("magnetar"); err != nil {
		t.Skip("magnetar is not on the path")
	}
	broker := &brokerProcess{t: t, data: t.TempDir(), port: freePort(t), httpPort: freePort(t)}
	t.Cleanup(broker.stop)
	return broker
}

func freePort(t *testing.T) int {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer listener.Close()
	return listener.Addr().(*net.TCPAddr).Port
}

func (b *brokerProcess) start() {
	b.t.Helper()
	b.process = exec.Command("magnetar", "standalone", "--data", b.data,
		"--port", strconv.Itoa(b.port), "--http-port", strconv.Itoa(b.httpPort))
	output, err := b.process.StdoutPipe()
	require.NoError(b.t, err)
	require.NoError(b.t, b.process.Start())
	lines := bufio.NewScanner(output)
	for lines.Scan() {
		if strings.HasPrefix(lines.Text(), "ready") {
			go func() { _, _ = io.Copy(io.Discard, output) }()
			return
		}
	}
	b.t.Fatal("the broker did not start")
}

func (b *brokerProcess) stop() {
	if b.process != nil {
		_ = b.process.Process.Signal(syscall.SIGTERM)
		_ = b.process.Wait()
		b.process = nil
	}
}

func (b *brokerProcess) connect() pulsar.Client {
	b.t.Helper()
	client, err := pulsar.NewClient(pulsar.ClientOptions{
		URL:    fmt.Sprint("pulsar://localhost:", b.port),
		Logger: log.NewLoggerWithSlog(slog.New(slog.NewTextHandler(io.Discard, nil))),
	})
	require.NoError(b.t, err)
	b.t.Cleanup(client.Close)
	return client
}

// backlog is the number of unacknowledged entries of the subscription.
func backlog(t *testing.T, topic, subscription string) int {
	t.Helper()
	path := strings.Replace(topic, "://", "/", 1)
	response, err := http.Get(setting("COMPAT_HTTP_URL", "http://localhost:8080") + "/admin/v2/" + path + "/stats")
	require.NoError(t, err)
	defer response.Body.Close()
	require.Equal(t, http.StatusOK, response.StatusCode)
	var stats struct {
		Subscriptions map[string]struct {
			MsgBacklog int `json:"msgBacklog"`
		} `json:"subscriptions"`
	}
	require.NoError(t, json.NewDecoder(response.Body).Decode(&stats))
	found, known := stats.Subscriptions[subscription]
	require.True(t, known)
	return found.MsgBacklog
}
