package compat

import (
	"context"
	"reflect"
	"testing"

	"github.com/apache/pulsar-client-go/pulsar"
	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/types/known/durationpb"
)

type order struct {
	Number   int64
	Customer string
	Discount int32
}

const (
	orderDefinition = `{"type": "record", "name": "Order", "namespace": "shop", "fields": [
		{"name": "Number", "type": "long"}, {"name": "Customer", "type": "string"}]}`
	discountedDefinition = `{"type": "record", "name": "Order", "namespace": "shop", "fields": [
		{"name": "Number", "type": "long"}, {"name": "Customer", "type": "string"},
		{"name": "Discount", "type": "int", "default": 5}]}`
	strangerDefinition = `{"type": "record", "name": "Order", "namespace": "shop", "fields": [
		{"name": "Number", "type": "boolean"}]}`
)

func sendValue(t *testing.T, producer pulsar.Producer, value interface{}) {
	t.Helper()
	_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Value: value})
	require.NoError(t, err)
}

func TestStructuredSchemas(t *testing.T) {
	for name, schemaOf := range map[string]func(string) pulsar.Schema{
		"avro": func(definition string) pulsar.Schema { return pulsar.NewAvroSchema(definition, nil) },
		"json": func(definition string) pulsar.Schema {
			return pulsar.NewJSONSchema(definition, map[string]string{"team": "shop"})
		},
	} {
		t.Run(name, func(t *testing.T) {
			client := connect(t)
			topic := newTopic(t)
			consumer := consumerOf(t, client, pulsar.ConsumerOptions{Topic: topic, Schema: schemaOf(orderDefinition)})
			producer := producerOf(t, client, pulsar.ProducerOptions{Topic: topic, Schema: schemaOf(orderDefinition)})
			sendValue(t, producer, order{Number: 7, Customer: "ann"})
			message := receive(t, consumer)
			var received order
			require.NoError(t, message.GetSchemaValue(&received))
			require.Equal(t, order{Number: 7, Customer: "ann"}, received)
			require.Equal(t, []byte{0, 0, 0, 0, 0, 0, 0, 0}, message.SchemaVersion())

			evolved := producerOf(t, client, pulsar.ProducerOptions{Topic: topic, Schema: schemaOf(discountedDefinition)})
			sendValue(t, evolved, order{Number: 8, Customer: "bob", Discount: 50})
			require.Equal(t, []byte{0, 0, 0, 0, 0, 0, 0, 1}, receive(t, consumer).SchemaVersion())

			_, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, Schema: schemaOf(strangerDefinition)})
			require.ErrorContains(t, err, "IncompatibleSchema")
			require.ErrorContains(t, err, "field Number")
			sendValue(t, producer, order{Number: 9, Customer: "eve"})
			require.NoError(t, receive(t, consumer).GetSchemaValue(&received))
			require.EqualValues(t, 9, received.Number)
		})
	}
}

func TestPrimitiveSchemas(t *testing.T) {
	for name, one := range map[string]struct {
		schema pulsar.Schema
		value  interface{}
	}{
		"string": {pulsar.NewStringSchema(nil), "text"},
		"int16":  {pulsar.NewInt16Schema(nil), int16(-3)},
		"int32":  {pulsar.NewInt32Schema(nil), int32(-3)},
		"int64":  {pulsar.NewInt64Schema(nil), int64(-3)},
		"float":  {pulsar.NewFloatSchema(nil), float32(0.5)},
		"double": {pulsar.NewDoubleSchema(nil), 0.5},
	} {
		t.Run(name, func(t *testing.T) {
			client := connect(t)
			topic := newTopic(t)
			consumer := consumerOf(t, client, pulsar.ConsumerOptions{Topic: topic, Schema: one.schema})
			producer := producerOf(t, client, pulsar.ProducerOptions{Topic: topic, Schema: one.schema})
			sendValue(t, producer, one.value)
			received := reflect.New(reflect.TypeOf(one.value))
			if name == "string" { // the client requires a pointer to a pointer here
				received = reflect.New(received.Type())
			}
			require.NoError(t, receive(t, consumer).GetSchemaValue(received.Interface()))
			require.Equal(t, one.value, reflect.Indirect(received.Elem()).Interface())
			_, err := client.CreateProducer(pulsar.ProducerOptions{Topic: topic, Schema: pulsar.NewInt8Schema(nil)})
			require.ErrorContains(t, err, "IncompatibleSchema")
		})
	}
}

func TestProtobufNativeSchema(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	schema := pulsar.NewProtoNativeSchemaWithMessage(&durationpb.Duration{}, nil)
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{Topic: topic, Schema: schema})
	producer := producerOf(t, client, pulsar.ProducerOptions{Topic: topic, Schema: schema})
	sendValue(t, producer, &durationpb.Duration{Seconds: 7})
	var received durationpb.Duration
	require.NoError(t, receive(t, consumer).GetSchemaValue(&received))
	require.EqualValues(t, 7, received.Seconds)
}

func TestMessagesWithSeveralSchemas(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	first, second := pulsar.NewAvroSchema(orderDefinition, nil), pulsar.NewAvroSchema(discountedDefinition, nil)
	consumer := consumerOf(t, client, pulsar.ConsumerOptions{Topic: topic})
	producer := producerOf(t, client, pulsar.ProducerOptions{Topic: topic, Schema: first})
	for i, schema := range []pulsar.Schema{first, second, first} {
		value := order{Number: int64(i), Customer: "ann", Discount: 1}
		_, err := producer.Send(context.Background(), &pulsar.ProducerMessage{Value: value, Schema: schema})
		require.NoError(t, err)
		require.EqualValues(t, i%2, receive(t, consumer).SchemaVersion()[7])
	}
	stranger := pulsar.NewAvroSchema(strangerDefinition, nil)
	message := &pulsar.ProducerMessage{Value: struct{ Number bool }{true}, Schema: stranger}
	_, err := producer.Send(context.Background(), message)
	require.ErrorContains(t, err, "field Number")
}

func TestConsumerAddsNoSchemaToATopicOfBytes(t *testing.T) {
	client := connect(t)
	topic := newTopic(t)
	producer := producerOf(t, client, pulsar.ProducerOptions{Topic: topic})
	send(t, producer, "bytes")
	_, err := client.Subscribe(pulsar.ConsumerOptions{
		Topic: topic, SubscriptionName: "sub", Schema: pulsar.NewAvroSchema(orderDefinition, nil),
	})
	require.ErrorContains(t, err, "IncompatibleSchema")
	consumerOf(t, client, pulsar.ConsumerOptions{Topic: topic, Schema: pulsar.NewBytesSchema(nil)})
}
