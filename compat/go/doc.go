// Package compat tests a running broker with Apache Pulsar's Go client; it contains only tests.
package compat
