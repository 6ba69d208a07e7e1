package compat

import (
	"bytes"
	"encoding/json"
	"net/http"
	"strings"
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

func TestPageRetryWithAnError(t *testing.T) {
	client, topic := connect(t), newTopic(t)
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "billing", Type: pulsar.Shared, RetryEnable: true,
		DLQ: &pulsar.DLQPolicy{MaxDeliveries: 1, InitialSubscriptionName: "inspection"},
	})
	send(t, producerOf(t, client, pulsar.ProducerOptions{Topic: topic, DisableBatching: true}), "bad")
	for range 2 {
		message := receive(t, consumer)
		// page: retry
		properties := map[string]string{"DEATH_ERROR": "no such customer"}
		consumer.ReconsumeLaterWithCustomProperties(message, properties, 100*time.Millisecond)
		// end
	}
	require.Equal(t, "no such customer", inspect(t, client, topic+"-billing-DLQ").Properties()["DEATH_ERROR"])
}

func TestPageReportAnError(t *testing.T) {
	client, full := connect(t), newTopic(t)
	httpURL, topic := setting("COMPAT_HTTP_URL", "http://localhost:8080"), strings.TrimPrefix(full, "persistent://")
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{
		Topic: full, SubscriptionName: "billing", Type: pulsar.Shared, Name: "worker",
		NackRedeliveryDelay: 100 * time.Millisecond,
		Properties:          map[string]string{"deadLetterPolicy.maxRedeliverCount": "1"},
	})
	send(t, producerOf(t, client, pulsar.ProducerOptions{Topic: full, DisableBatching: true}), "bad")
	for range 2 {
		message := receive(t, consumer)
		// page: report
		url := httpURL + "/admin/v2/persistent/" + topic + "/subscription/billing/failure"
		body, err := json.Marshal(map[string]string{"messageId": message.ID().String(), "error": "no such customer"})
		require.NoError(t, err)
		reply, err := http.Post(url, "application/json", bytes.NewReader(body))
		require.NoError(t, err)
		require.NoError(t, reply.Body.Close())
		consumer.Nack(message)
		// end
		require.Equal(t, http.StatusNoContent, reply.StatusCode)
	}
	letter := inspect(t, client, full+"-billing-DLQ")
	require.Equal(t, "no such customer", letter.Properties()["DEATH_ERROR"])
	require.Equal(t, "worker", letter.Properties()["DEATH_CONSUMER"])
}

func inspect(t *testing.T, client pulsar.Client, deadTopic string) pulsar.Message {
	t.Helper()
	return receive(t, consumerOf(t, client, pulsar.ConsumerOptions{
		Topic: deadTopic, SubscriptionName: "inspection",
		SubscriptionInitialPosition: pulsar.SubscriptionPositionEarliest,
	}))
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
