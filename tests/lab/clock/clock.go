// SPDX-License-Identifier: Apache-2.0

//go:build steelyard_clock

// Package time: this file is added to Go's own, in a build for tests (tests/lab/clocks.py), whose Now calls shifted. So a test sets the clock
// of a program while it runs, as an administrator sets a host's: the wall clock moves, and the monotonic one does not.
package time

import (
	"sync/atomic"
	"syscall"
	"unsafe"
)

// offset is what is added to the host's clock, in nanoseconds. A test writes it, by a file that both have mapped; readers take it whole.
var offset = openOffset()

// openOffset maps the file that the environment names, before main begins: a program may forbid itself to open files.
func openOffset() *int64 {
	const name = "STEELYARD_CLOCK"
	path, found := syscall.Getenv(name)
	if !found {
		return new(int64)
	}
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		panic(name + "=" + path + ": " + err.Error())
	}
	data, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic(name + "=" + path + ": " + err.Error())
	}
	_ = syscall.Close(fd)
	return (*int64)(unsafe.Pointer(&data[0]))
}

// shifted adds the offset to a time of the host's clock.
func shifted(sec int64, nsec int32) (int64, int32) {
	const second = 1_000_000_000
	ns := int64(nsec) + atomic.LoadInt64(offset)
	sec, ns = sec+ns/second, ns%second
	if ns < 0 {
		sec, ns = sec-1, ns+second
	}
	return sec, int32(ns)
}
