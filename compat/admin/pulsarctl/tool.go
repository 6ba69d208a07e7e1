//go:build tools

// Package tool imports the program that this module builds, so that go.sum pins its dependencies.
package tool

import _ "github.com/streamnative/pulsarctl"
