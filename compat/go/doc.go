// Package compat checks a running broker with Apache Pulsar's client for Go; its tests are all it has.
package compat
