// SPDX-License-Identifier: Apache-2.0

package cluster

import (
	"bytes"
	"compress/gzip"
	"container/list"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// Large values are kept once each, under the hash of their text, compressed and in pieces that every etcd takes; a key's value then names
// the hash. So a transaction is small, whatever it is about, and a hundred keys with one configuration cost one.
//
//	parts/HASH/0000, parts/HASH/0001, …   the pieces
//	whole/HASH                            "whole" when all of them are there, "" before
//
// Who refers to a hash writes whole/HASH in the same transaction, and compares that it is whole; who removes one compares that whole/HASH
// has not changed since nothing referred to it. They are outside the prefix of keys: nobody watches them.
const (
	blobs    = "/steelyard/blobs/1/"
	partRoot = blobs + "parts/"
	markRoot = blobs + "whole/"
	whole    = "whole"

	refMark   = "sha256:"
	maxInline = 4 << 10  // bytes of a compressed text in the value itself
	partBytes = 1 << 20  // external clusters take requests of 1.5 MB
	maxCached = 48 << 20 // bytes of texts, compressed and not
)

// ErrFull says that the store has no room for another configuration.
var ErrFull = errors.New("the controllers' etcd is full")

// Large is a text as it is kept.
type Large struct {
	Value []byte // for a key; "": there is no text
	Text  []byte
	Gzip  []byte // the text, compressed
	hash  string // "": the value has it all
}

// Same reports that two are the same text.
func (l *Large) Same(other *Large) bool { return bytes.Equal(l.Value, other.Value) }

func newLarge(text []byte) *Large {
	var out bytes.Buffer
	w, _ := gzip.NewWriterLevel(&out, gzip.BestSpeed)
	_, _ = w.Write(text) // a buffer takes everything
	_ = w.Close()
	l := &Large{Value: out.Bytes(), Text: text, Gzip: out.Bytes()}
	if len(l.Value) > maxInline {
		l.Value = []byte(NameOf(text))
		l.hash, _ = hashOf(l.Value)
	}
	return l
}

// NameOf returns the value by which a key names a text that is kept by itself.
func NameOf(text []byte) string {
	sum := sha256.Sum256(text)
	return refMark + hex.EncodeToString(sum[:])
}

// hashOf returns the hash that a value names.
func hashOf(value []byte) (string, bool) {
	hash, named := bytes.CutPrefix(value, []byte(refMark))
	return string(hash), named
}

// Save stores a text and returns what a key is to have as its value; the transaction must refer to it by PutLarge. Nil stays nil.
func (s *Store) Save(ctx context.Context, text []byte) (*Large, error) {
	if text == nil {
		return &Large{}, nil
	}
	l := newLarge(text)
	if l.hash == "" {
		return l, nil
	}
	for range 5 {
		err := s.upload(ctx, l)
		if err == nil {
			s.cache.put(l)
			return l, nil
		}
		if !errors.Is(err, ErrConflict) {
			return nil, err
		}
	}
	return nil, ErrConflict
}

// upload writes the pieces of a text that is not there yet.
func (s *Store) upload(ctx context.Context, l *Large) error {
	mark := markRoot + l.hash
	found, err := s.client.Get(ctx, mark)
	if err != nil {
		return failed(err)
	}
	var made int64
	if len(found.Kvs) > 0 {
		if string(found.Kvs[0].Value) == whole {
			return nil
		}
		made = found.Kvs[0].CreateRevision // somebody does the same now, or did not finish
	} else {
		if err := s.Room(ctx, len(l.Gzip)); err != nil {
			return err
		}
		s.grew(len(l.Gzip))
		begun, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(mark), "=", 0)).Then(clientv3.OpPut(mark, "")).Commit()
		if err != nil {
			return failed(err)
		}
		if !begun.Succeeded {
			return ErrConflict
		}
		made = begun.Header.Revision
	}
	for i := 0; i*partBytes < len(l.Gzip); i++ {
		piece := l.Gzip[i*partBytes : min((i+1)*partBytes, len(l.Gzip))]
		if _, err := s.client.Put(ctx, fmt.Sprintf("%s%s/%04d", partRoot, l.hash, i), string(piece)); err != nil {
			return failed(err)
		}
	}
	ended, err := s.client.Txn(ctx).If(clientv3.Compare(clientv3.CreateRevision(mark), "=", made)).Then(clientv3.OpPut(mark, whole)).Commit()
	if err != nil {
		return failed(err)
	}
	if !ended.Succeeded {
		return ErrConflict
	}
	return nil
}

// Load returns the text that a key's value means.
func (s *Store) Load(ctx context.Context, value []byte) (*Large, error) {
	if len(value) == 0 {
		return &Large{}, nil
	}
	hash, named := hashOf(value)
	if !named {
		text, err := unpack(value)
		return &Large{Value: value, Text: text, Gzip: value}, err
	}
	if l := s.cache.get(hash); l != nil {
		return l, nil
	}
	found, err := s.client.Get(ctx, partRoot+hash+"/", clientv3.WithPrefix())
	if err != nil {
		return nil, failed(err)
	}
	var packed []byte
	for _, kv := range found.Kvs {
		packed = append(packed, kv.Value...)
	}
	text, err := unpack(packed)
	if err != nil {
		return nil, fmt.Errorf("the text %s in etcd: %w", hash, err)
	}
	if sum := sha256.Sum256(text); hex.EncodeToString(sum[:]) != hash {
		return nil, fmt.Errorf("the text %s in etcd is another one", hash)
	}
	l := &Large{Value: value, Text: text, Gzip: packed, hash: hash}
	s.cache.put(l)
	return l, nil
}

// unpack reverses gzip, up to the store's largest text.
func unpack(packed []byte) ([]byte, error) {
	r, err := gzip.NewReader(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	text, err := io.ReadAll(io.LimitReader(r, maxText+1))
	if err == nil && len(text) > maxText {
		err = errors.New("too large")
	}
	return text, err
}

// maxText bounds what a text becomes when it is unpacked.
const maxText = 80 << 20

// PutLarge writes a key whose value Save returned, or another key has.
func (t *Txn) PutLarge(key string, value []byte) *Txn {
	t.Put(key, value, 0)
	if hash, named := hashOf(value); named && !t.refers[hash] {
		if t.refers == nil {
			t.refers = map[string]bool{}
		}
		t.refers[hash] = true
		mark := markRoot + hash
		t.conditions = append(t.conditions, clientv3.Compare(clientv3.Value(mark), "=", whole))
		t.operations = append(t.operations, clientv3.OpPut(mark, whole))
	}
	return t
}

// cache has the texts that were used last; what a hash names never changes.
type cache struct {
	mu    sync.Mutex
	bytes int
	used  list.List // of *Large, the last used first
	known map[string]*list.Element
}

func (c *cache) get(hash string) *Large {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.known[hash]
	if e == nil {
		return nil
	}
	c.used.MoveToFront(e)
	return e.Value.(*Large)
}

func (c *cache) put(l *Large) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.known == nil {
		c.known = map[string]*list.Element{}
	}
	if l.hash == "" || c.known[l.hash] != nil {
		return
	}
	c.known[l.hash] = c.used.PushFront(l)
	c.bytes += len(l.Text) + len(l.Gzip)
	for c.bytes > maxCached && c.used.Len() > 1 {
		old := c.used.Remove(c.used.Back()).(*Large)
		delete(c.known, old.hash)
		c.bytes -= len(old.Text) + len(old.Gzip)
	}
}
