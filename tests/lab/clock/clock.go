// SPDX-License-Identifier: Apache-2.0

//go:build steelyard_clock

// This file is added to the main package of `steelyard` in a build for tests (tests/lab/clocks.py). It replaces time.Now, so that a test sets the
// clock of a running program as an administrator sets a host's: the wall clock moves, and the monotonic one does not.
package main

import (
	"encoding/binary"
	"os"
	"reflect"
	"sync/atomic"
	"syscall"
	"time"
	"unsafe"
)

// offset is added to the host's clock, in nanoseconds. The test writes it through a file that both have mapped.
var offset *int64

// monotonicStart is time's own start of monotonic readings, which time.Since subtracts too.
//
//go:linkname monotonicStart time.startNano
var monotonicStart int64

//go:linkname runtimeNow time.runtimeNow
func runtimeNow() (sec int64, nsec int32, mono int64)

// moment has the layout of time.Time.
type moment struct {
	wall uint64
	ext  int64
	loc  *time.Location
}

// How time.Time keeps a reading of both clocks: see the comments of its fields.
const (
	hasMonotonic  = 1 << 63
	secondsShift  = 30
	secondsTo1885 = 2_682_288_000 // from 1885, where the wall's seconds begin, to 1970
)

// init replaces time.Now before main begins: the program may forbid itself to open files and to change code.
func init() {
	path, found := os.LookupEnv("STEELYARD_CLOCK")
	if !found {
		return
	}
	file, err := os.Open(path)
	if err != nil {
		panic("STEELYARD_CLOCK: " + err.Error())
	}
	data, err := syscall.Mmap(int(file.Fd()), 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		panic("STEELYARD_CLOCK: " + path + ": " + err.Error())
	}
	_ = file.Close()
	offset = (*int64)(unsafe.Pointer(&data[0]))
	before, now, shift := time.Now(), readNow(), time.Duration(atomic.LoadInt64(offset))
	wall := now.Round(0).Sub(before.Round(0)) - shift // Round drops the monotonic reading
	if now.Sub(before).Abs() > time.Minute || wall.Abs() > time.Minute {
		panic("STEELYARD_CLOCK: time.Time has another layout than this file expects")
	}
	replace(reflect.ValueOf(time.Now).Pointer(), reflect.ValueOf(shiftedNow).Pointer())
}

// shiftedNow stands in for time.Now.
func shiftedNow() time.Time { return readNow() }

func readNow() time.Time {
	sec, nsec, mono := runtimeNow()
	at := sec*int64(time.Second) + int64(nsec) + atomic.LoadInt64(offset)
	sec, ns := at/int64(time.Second), at%int64(time.Second)
	wall := hasMonotonic | uint64(sec+secondsTo1885)<<secondsShift | uint64(ns)
	now := moment{wall, mono - monotonicStart, time.Local}
	return *(*time.Time)(unsafe.Pointer(&now))
}

// replace writes a jump to another function over the first bytes of one: mov rdx, ADDRESS; jmp rdx.
func replace(from, to uintptr) {
	jump := binary.LittleEndian.AppendUint64([]byte{0x48, 0xba}, uint64(to))
	jump = append(jump, 0xff, 0xe2)
	page := from &^ uintptr(syscall.Getpagesize()-1)
	size := 2 * syscall.Getpagesize() // the code may cross the end of its page
	code := unsafe.Slice((*byte)(unsafe.Pointer(page)), size)
	if err := syscall.Mprotect(code, syscall.PROT_READ|syscall.PROT_WRITE|syscall.PROT_EXEC); err != nil {
		panic("STEELYARD_CLOCK: " + err.Error())
	}
	copy(code[from-page:], jump)
	if err := syscall.Mprotect(code, syscall.PROT_READ|syscall.PROT_EXEC); err != nil {
		panic("STEELYARD_CLOCK: " + err.Error())
	}
}
