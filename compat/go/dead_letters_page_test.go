package compat

import (
	"testing"
	"time"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
)

// docs/dead-letters.md has the code between the marks too; tests/docs/test_dead_letters_page.py compares them.

func TestPageDeadLettersByTheClient(t *testing.T) {
	client, topic := connect(t), newTopic(t)
	// page: client
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{
		Topic:               topic,
		SubscriptionName:    "billing",
		Type:                pulsar.Shared,
		NackRedeliveryDelay: 100 * time.Millisecond,
		DLQ: &pulsar.DLQPolicy{
			MaxDeliveries:           3, // this client counts deliveries, the others count redeliveries
			DeadLetterTopic:         topic + "-billing-DLQ",
			InitialSubscriptionName: "inspection",
		},
	})
	// end
	require.NoError(t, err)
	failOnPage(t, client, consumer, topic, topic+"-billing-DLQ")
}

func TestPageDeadLettersByTheBroker(t *testing.T) {
	client, topic := connect(t), newTopic(t)
	// page: broker
	consumer, err := client.Subscribe(pulsar.ConsumerOptions{
		Topic:               topic,
		SubscriptionName:    "billing",
		Type:                pulsar.KeyShared,
		NackRedeliveryDelay: 100 * time.Millisecond,
		Properties: map[string]string{
			"deadLetterPolicy.maxRedeliverCount": "2",
			"deadLetterPolicy.deadLetterTopic":   topic + "-dead",
		},
	})
	// end
	require.NoError(t, err)
	failOnPage(t, client, consumer, topic, topic+"-dead")
}

// failOnPage nacks a message until it is a dead letter, after three deliveries.
func failOnPage(t *testing.T, client pulsar.Client, consumer pulsar.Consumer, topic, deadTopic string) {
	t.Helper()
	defer consumer.Close()
	dead := consumerOf(t, client, pulsar.ConsumerOptions{
		Topic: deadTopic, SubscriptionName: "inspection",
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	})
	send(t, producerOf(t, client, pulsar.ProducerOptions{Topic: topic, DisableBatching: true}), "bad")
	_, seen := nackUntilDead(t, consumer, dead, func(string) bool { return true }, 1)
	require.Equal(t, map[string]int{"bad": 3}, seen)
}
