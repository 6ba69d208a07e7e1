package compat

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

func TestExclusive(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	options := pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Exclusive}
	consumer := consumerOf(t, client, options)
	options.SubscriptionName = "sub"
	_, err := client.Subscribe(options)
	require.Error(t, err)
	send(t, producerOf(t, client, pulsar.ProducerOptions{Topic: topic}), "a", "b")
	expect(t, consumer, "a", "b")
}

func TestFailover(t *testing.T) {
	client := connect(t)
	topic := newPartitionedTopic(t, 1) // partition 0 has the first consumer by name as active consumer
	options := pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Failover, Name: "1", SubscriptionName: "sub"}
	active, err := client.Subscribe(options)
	require.NoError(t, err)
	options.Name = "2"
	standby := consumerOf(t, client, options)
	producer := producerOf(t, client, pulsar.ProducerOptions{Topic: topic})
	send(t, producer, "a", "b")
	expect(t, active, "a", "b")
	expectNothing(t, standby)
	active.Close()
	send(t, producer, "c")
	expect(t, standby, "c")
}

func TestShared(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	options := pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared}
	consumers := []pulsar.Consumer{consumerOf(t, client, options), consumerOf(t, client, options)}
	send(t, producerOf(t, client, pulsar.ProducerOptions{Topic: topic, DisableBatching: true}), numbers(0, 100)...)
	seen, shares := map[string]bool{}, [2]int{}
	for range 100 {
		index, message := receiveFromEither(t, consumers)
		seen[string(message.Payload())] = true
		shares[index]++
		require.NoError(t, consumers[index].Ack(message))
	}
	require.Len(t, seen, 100)
	require.Greater(t, shares[0], 20)
	require.Greater(t, shares[1], 20)
}

func TestKeyShared(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	options := pulsar.ConsumerOptions{Topic: topic, Type: pulsar.KeyShared}
	consumers := []pulsar.Consumer{consumerOf(t, client, options), consumerOf(t, client, options)}
	producer := producerOf(t, client, pulsar.ProducerOptions{Topic: topic, BatcherBuilderType: pulsar.KeyBasedBatchBuilder})
	const keys, rounds = 20, 5
	for round := range rounds {
		for key := range keys {
			message := &pulsar.ProducerMessage{Key: fmt.Sprint("key-", key), Payload: []byte(fmt.Sprint(round))}
			_, err := producer.Send(context.Background(), message)
			require.NoError(t, err)
		}
	}
	owner, next := map[string]int{}, map[string]int{}
	for range keys * rounds {
		index, message := receiveFromEither(t, consumers)
		key := message.Key()
		if former, known := owner[key]; known {
			require.Equal(t, former, index, "key %s went to both consumers", key)
		}
		owner[key] = index
		require.Equal(t, fmt.Sprint(next[key]), string(message.Payload()))
		next[key]++
		require.NoError(t, consumers[index].Ack(message))
	}
	require.Len(t, owner, keys)
}

func TestNegativeAck(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{
		Topic: topic, Type: pulsar.Shared, NackRedeliveryDelay: 100 * time.Millisecond,
	})
	send(t, producerOf(t, client, pulsar.ProducerOptions{Topic: topic, DisableBatching: true}), "a", "b", "c")
	for _, payload := range []string{"a", "b", "c"} {
		message := receive(t, consumer)
		require.Equal(t, payload, string(message.Payload()))
		require.Zero(t, message.RedeliveryCount())
		if payload == "b" {
			consumer.Nack(message)
		} else {
			require.NoError(t, consumer.Ack(message))
		}
	}
	again := receive(t, consumer)
	require.Equal(t, "b", string(again.Payload()))
	require.EqualValues(t, 1, again.RedeliveryCount())
}

func TestAckWithResponse(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	options := pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "sub", Type: pulsar.Shared, AckWithResponse: true}
	consumer, err := client.Subscribe(options)
	require.NoError(t, err)
	send(t, producerOf(t, client, pulsar.ProducerOptions{Topic: topic, DisableBatching: true}), "a", "b")
	expect(t, consumer, "a", "b")
	consumer.Close()
	expectNothing(t, consumerOf(t, client, options))
}

func TestBatchIndexAck(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	options := pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "sub", Type: pulsar.Shared, AckWithResponse: true,
		EnableBatchIndexAcknowledgment: true,
	}
	consumer, err := client.Subscribe(options)
	require.NoError(t, err)
	producer := producerOf(t, client, pulsar.ProducerOptions{Topic: topic, BatchingMaxPublishDelay: time.Hour})
	sendTogether(t, producer, numbers(0, 10)...)
	for i := range 10 {
		message := receive(t, consumer)
		if i%2 == 0 {
			require.NoError(t, consumer.Ack(message))
		}
	}
	consumer.Close()
	again := consumerOf(t, client, options)
	expect(t, again, "0001", "0003", "0005", "0007", "0009")
	expectNothing(t, again)
}

func TestCumulativeAck(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	options := pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "sub", AckWithResponse: true}
	consumer, err := client.Subscribe(options)
	require.NoError(t, err)
	send(t, producerOf(t, client, pulsar.ProducerOptions{Topic: topic, DisableBatching: true}), numbers(0, 10)...)
	for i := range 10 {
		message := receive(t, consumer)
		if i == 6 {
			require.NoError(t, consumer.AckCumulative(message))
		}
	}
	consumer.Close()
	expect(t, consumerOf(t, client, options), numbers(7, 10)...)
}

func TestSeek(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{Topic: topic})
	producer := producerOf(t, client, pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	ids := send(t, producer, numbers(0, 10)...)
	expect(t, consumer, numbers(0, 10)...)
	require.NoError(t, consumer.SeekByTime(time.Now().Add(-time.Hour)))
	expect(t, consumer, numbers(0, 10)...)
	require.NoError(t, consumer.SeekByTime(time.Now().Add(time.Second)))
	expectNothing(t, consumer)
	send(t, producer, "new")
	expect(t, consumer, "new")
	// By default this client starts after the message, and keeps doing so after a seek by time: so this is last.
	require.NoError(t, consumer.Seek(ids[4]))
	expect(t, consumer, append(numbers(5, 10), "new")...)
}

func TestReader(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	producer := producerOf(t, client, pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	ids := send(t, producer, numbers(0, 10)...)
	read := func(options pulsar.ReaderOptions) []string {
		options.Topic = topic
		reader, err := client.CreateReader(options)
		require.NoError(t, err)
		defer reader.Close()
		payloads := []string{}
		for reader.HasNext() {
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			message, err := reader.Next(ctx)
			cancel()
			require.NoError(t, err)
			payloads = append(payloads, string(message.Payload()))
		}
		return payloads
	}
	require.Equal(t, numbers(0, 10), read(pulsar.ReaderOptions{StartMessageID: pulsar.EarliestMessageID()}))
	require.Equal(t, numbers(4, 10), read(pulsar.ReaderOptions{StartMessageID: ids[3]}))
	require.Equal(t, numbers(3, 10), read(pulsar.ReaderOptions{StartMessageID: ids[3], StartMessageIDInclusive: true}))
	require.Empty(t, read(pulsar.ReaderOptions{StartMessageID: pulsar.LatestMessageID()}))
}

func TestReaderWithinABatch(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{Topic: topic})
	producer := producerOf(t, client, pulsar.ProducerOptions{Topic: topic, BatchingMaxPublishDelay: time.Hour})
	sendTogether(t, producer, numbers(0, 10)...)
	var third pulsar.MessageID
	for range 3 {
		third = receive(t, consumer).ID()
	}
	reader, err := client.CreateReader(pulsar.ReaderOptions{Topic: topic, StartMessageID: third})
	require.NoError(t, err)
	defer reader.Close()
	for _, payload := range numbers(3, 10) {
		require.True(t, reader.HasNext())
		message, err := reader.Next(context.Background())
		require.NoError(t, err)
		require.Equal(t, payload, string(message.Payload()))
	}
	require.False(t, reader.HasNext())
}

func TestDelayed(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{Topic: topic, Type: pulsar.Shared})
	producer := producerOf(t, client, pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	const delay = 1500 * time.Millisecond
	start := time.Now()
	_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: []byte("later"), DeliverAfter: delay})
	require.NoError(t, err)
	_, err = producer.Send(context.Background(), &pulsar.ProducerMessage{
		Payload: []byte("later still"), DeliverAt: start.Add(2 * delay),
	})
	require.NoError(t, err)
	send(t, producer, "now")
	expect(t, consumer, "now", "later")
	require.GreaterOrEqual(t, time.Since(start), delay)
	expect(t, consumer, "later still")
	require.GreaterOrEqual(t, time.Since(start), 2*delay)
}

func TestSeveralTopics(t *testing.T) {
	client := connect(t)
	topics := []string{newTopic(t), newTopic(t)}
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{Topics: topics})
	for _, topic := range topics {
		send(t, producerOf(t, client, pulsar.ProducerOptions{Topic: topic}), topic)
	}
	seen := map[string]bool{}
	for range topics {
		message := receive(t, consumer)
		require.Equal(t, string(message.Payload()), message.Topic())
		seen[message.Topic()] = true
		require.NoError(t, consumer.Ack(message))
	}
	require.Len(t, seen, len(topics))
}

func TestRegularExpression(t *testing.T) {
	client := connect(t)
	prefix := newTopic(t)
	publish := func(suffix string) {
		send(t, producerOf(t, client, pulsar.ProducerOptions{Topic: prefix + suffix}), suffix)
	}
	for _, suffix := range []string{"-a", "-b"} {
		producerOf(t, client, pulsar.ProducerOptions{Topic: prefix + suffix})
	}
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{
		TopicsPattern: regexp.QuoteMeta(prefix) + "-.*", AutoDiscoveryPeriod: 200 * time.Millisecond,
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	seen := []string{}
	for _, suffix := range []string{"-a", "-b", "-c"} { // the last topic is created only now
		publish(suffix)
		message := receive(t, consumer)
		require.True(t, strings.HasSuffix(message.Topic(), suffix))
		seen = append(seen, string(message.Payload()))
		require.NoError(t, consumer.Ack(message))
	}
	require.Equal(t, []string{"-a", "-b", "-c"}, seen)
}

func TestDeadLetters(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	dead := consumerOf(t, client, pulsar.ConsumerOptions{Topic: topic + "-sub-DLQ"})
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "sub", Type: pulsar.Shared, NackRedeliveryDelay: 50 * time.Millisecond,
		DLQ: &pulsar.DLQPolicy{MaxDeliveries: 3, DeadLetterTopic: topic + "-sub-DLQ"},
	})
	send(t, producerOf(t, client, pulsar.ProducerOptions{Topic: topic, DisableBatching: true}), "good", "bad")
	expect(t, consumer, "good")
	for delivery := range 3 {
		message := receive(t, consumer)
		require.Equal(t, "bad", string(message.Payload()))
		require.EqualValues(t, delivery, message.RedeliveryCount())
		consumer.Nack(message)
	}
	letter := receive(t, dead)
	require.Equal(t, "bad", string(letter.Payload()))
	require.Equal(t, topic, letter.Properties()["REAL_TOPIC"])
	expectNothing(t, consumer)
}

func TestRetryLetters(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	dead := consumerOf(t, client, pulsar.ConsumerOptions{Topic: topic + "-sub-DLQ"})
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "sub", Type: pulsar.Shared, RetryEnable: true,
		DLQ: &pulsar.DLQPolicy{
			MaxDeliveries: 2, DeadLetterTopic: topic + "-sub-DLQ", RetryLetterTopic: topic + "-sub-RETRY",
		},
	})
	send(t, producerOf(t, client, pulsar.ProducerOptions{Topic: topic, DisableBatching: true}), "stubborn")
	for range 3 {
		message := receive(t, consumer)
		require.Equal(t, "stubborn", string(message.Payload()))
		consumer.ReconsumeLater(message, 200*time.Millisecond)
	}
	require.Equal(t, "stubborn", string(receive(t, dead).Payload()))
	expectNothing(t, consumer)
}

func TestUnsubscribe(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	options := pulsar.ConsumerOptions{Topic: topic, SubscriptionName: "sub"}
	consumer, err := client.Subscribe(options)
	require.NoError(t, err)
	send(t, producerOf(t, client, pulsar.ProducerOptions{Topic: topic}), "gone with the subscription")
	require.NoError(t, consumer.Unsubscribe())
	expectNothing(t, consumerOf(t, client, options))
}

func TestNonPersistent(t *testing.T) {
	client := connect(t)
	topic := strings.Replace(newTopic(t), "persistent://", "non-persistent://", 1)
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{Topic: topic})
	send(t, producerOf(t, client, pulsar.ProducerOptions{Topic: topic}), "a", "b")
	expect(t, consumer, "a", "b")
}
