// SPDX-License-Identifier: Apache-2.0

package main

import (
	"container/heap"
	"time"
)

// clock runs events in the order of their times, in virtual time.
type clock struct {
	now    time.Duration
	events eventHeap
	made   uint64
}

type event struct {
	at    time.Duration
	order uint64
	do    func()
}

type eventHeap []event

func (h eventHeap) Len() int { return len(h) }
func (h eventHeap) Less(i, j int) bool {
	return h[i].at < h[j].at || h[i].at == h[j].at && h[i].order < h[j].order
}
func (h eventHeap) Swap(i, j int) { h[i], h[j] = h[j], h[i] }
func (h *eventHeap) Push(x any)   { *h = append(*h, x.(event)) }
func (h *eventHeap) Pop() any {
	old := *h
	last := old[len(old)-1]
	old[len(old)-1].do = nil
	*h = old[:len(old)-1]
	return last
}

func (c *clock) after(d time.Duration, do func()) {
	c.made++
	heap.Push(&c.events, event{c.now + max(0, d), c.made, do})
}

func (c *clock) run(until time.Duration) {
	for len(c.events) > 0 && c.events[0].at <= until {
		next := heap.Pop(&c.events).(event)
		c.now = next.at
		next.do()
	}
	c.now = until
}

// queue serves in order; each takes its own time.
type queue struct {
	clock *clock
	free  time.Duration // when it has nothing to do any more
	busy  time.Duration // so far
}

// take calls done when the queue has served what takes so long.
func (q *queue) take(d time.Duration, done func()) {
	q.free = max(q.free, q.clock.now) + d
	q.busy += d
	q.clock.after(q.free-q.clock.now, done)
}
