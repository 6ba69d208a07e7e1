//go:build tools

// Package tool names the program that this module builds, so that go.sum pins all it is made of.
package tool

import _ "github.com/streamnative/pulsarctl"
