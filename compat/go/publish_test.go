package compat

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

func TestPropertiesKeyAndEventTime(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{Topic: topic})
	producer := producerOf(t, client, pulsar.ProducerOptions{Topic: topic, Name: "the-producer"})
	eventTime := time.UnixMilli(1_700_000_000_123)
	_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{
		Payload:     []byte("hello"),
		Key:         "key",
		OrderingKey: "ordering",
		Properties:  map[string]string{"a": "1", "b": "2"},
		EventTime:   eventTime,
	})
	require.NoError(t, err)
	message := receive(t, consumer)
	require.Equal(t, "hello", string(message.Payload()))
	require.Equal(t, "key", message.Key())
	require.Equal(t, "ordering", message.OrderingKey())
	require.Equal(t, map[string]string{"a": "1", "b": "2"}, message.Properties())
	require.True(t, eventTime.Equal(message.EventTime()))
	require.Equal(t, "the-producer", message.ProducerName())
	require.Equal(t, topic, message.Topic())
	require.WithinDuration(t, time.Now(), message.PublishTime(), time.Minute)
}

func TestBatching(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{Topic: topic})
	producer := producerOf(t, client, pulsar.ProducerOptions{Topic: topic, BatchingMaxPublishDelay: time.Hour})
	sendTogether(t, producer, numbers(0, 100)...)
	first := receive(t, consumer)
	require.Equal(t, "0000", string(first.Payload()))
	require.EqualValues(t, 100, first.ID().BatchSize())
	require.NoError(t, consumer.Ack(first))
	expect(t, consumer, numbers(1, 100)...)
	expectNothing(t, consumer)
}

func TestCompression(t *testing.T) {
	for name, compression := range map[string]pulsar.CompressionType{
		"none": pulsar.NoCompression, "lz4": pulsar.LZ4, "zlib": pulsar.ZLib, "zstd": pulsar.ZSTD, "snappy": pulsar.SNAPPY,
	} {
		t.Run(name, func(t *testing.T) {
			client := connect(t)
			topic := newTopic(t)
			consumer := consumerOf(t, client, pulsar.ConsumerOptions{Topic: topic})
			producer := producerOf(t, client, pulsar.ProducerOptions{Topic: topic, CompressionType: compression})
			payload := strings.Repeat("the same again and again ", 1000)
			send(t, producer, payload)
			expect(t, consumer, payload)
		})
	}
}

func TestChunking(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{Topic: topic})
	producer := producerOf(t, client, pulsar.ProducerOptions{
		Topic: topic, DisableBatching: true, EnableChunking: true, ChunkMaxMessageSize: 1000,
	})
	payload := strings.Repeat("0123456789", 1234)
	send(t, producer, payload, "small")
	expect(t, consumer, payload, "small")
}

func TestTooLarge(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	producer := producerOf(t, client, pulsar.ProducerOptions{Topic: topic})
	_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Payload: make([]byte, 6<<20)})
	require.ErrorIs(t, err, pulsar.ErrMessageTooLarge)
	send(t, producer, "and goes on")
}

func TestDeduplication(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{Topic: topic})
	options := pulsar.ProducerOptions{Topic: topic, Name: "one-name", DisableBatching: true}
	publish := func(producer pulsar.Producer, sequenceID int64, payload string) {
		_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{
			Payload: []byte(payload), SequenceID: &sequenceID,
		})
		require.NoError(t, err)
	}
	producer, err := client.CreateProducer(options)
	require.NoError(t, err)
	publish(producer, 10, "a")
	publish(producer, 20, "b")
	producer.Close()

	again := producerOf(t, client, options)
	publish(again, 10, "a once more")
	publish(again, 20, "b once more")
	publish(again, 21, "c")
	expect(t, consumer, "a", "b", "c")
	expectNothing(t, consumer)
}

func TestExclusiveProducer(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	options := pulsar.ProducerOptions{Topic: topic, ProducerAccessMode: pulsar.ProducerAccessModeExclusive}
	first, err := client.CreateProducer(options)
	require.NoError(t, err)
	_, err = client.CreateProducer(options)
	require.Error(t, err)
	_, err = client.CreateProducer(pulsar.ProducerOptions{Topic: topic})
	require.Error(t, err)
	first.Close()
	send(t, producerOf(t, client, options), "free again")
}

func TestWaitForExclusiveProducer(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	options := pulsar.ProducerOptions{Topic: topic, ProducerAccessMode: pulsar.ProducerAccessModeWaitForExclusive}
	first, err := client.CreateProducer(options)
	require.NoError(t, err)
	second := make(chan pulsar.Producer, 1)
	go func() {
		producer, err := client.CreateProducer(options)
		if err == nil {
			second <- producer
		}
	}()
	select {
	case <-second:
		t.Fatal("two producers have exclusive access")
	case <-time.After(silence):
	}
	first.Close()
	select {
	case producer := <-second:
		send(t, producer, "my turn")
		producer.Close()
	case <-time.After(patience):
		t.Fatal("exclusive access was not handed on")
	}
}

func TestPartitioned(t *testing.T) {
	client := connect(t)
	topic := newPartitionedTopic(t, 3)
	partitions, err := client.TopicPartitions(topic)
	require.NoError(t, err)
	require.Len(t, partitions, 3)
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{Topic: topic})
	producer := producerOf(t, client, pulsar.ProducerOptions{Topic: topic, DisableBatching: true})
	send(t, producer, numbers(0, 30)...)
	seen := map[string]bool{}
	used := map[int32]bool{}
	for range 30 {
		message := receive(t, consumer)
		seen[string(message.Payload())] = true
		used[message.ID().PartitionIdx()] = true
		require.NoError(t, consumer.Ack(message))
	}
	require.Len(t, seen, 30)
	require.Len(t, used, 3)
	expectNothing(t, consumer)
}
