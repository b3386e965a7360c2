package convert

// This file holds the keys that sign annotations.

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"code.cloudfoundry.org/eirinix/internal/list"
)

// KeyLength is the number of bytes that a key has at least. keyNameLength is that of its name in annotations.
const KeyLength, keyNameLength = 32, 8

// Keys are the keys that sign what is kept. They are safe for concurrent use.
//
// A key has to be published before anything is signed with it. So where an annotation names a key that is not here, Fetch
// is asked once more before the annotation is passed over.
type Keys struct {
	// Fetch returns the keys as they are published, in their order: the last one signs. It can be nil.
	Fetch func(context.Context) ([][]byte, error)

	mu       sync.Mutex
	all      []namedKey           // the last one signs
	absent   map[string]time.Time // when a key was not among those that were fetched
	fetching chan struct{}        // holds an element while a call fetches
	failed   time.Time            // when fetching has failed last; zero after a success
	why      error                // it has
}

// A key that was not there is looked for again after absentFor, because its Secret can have been restored. The names of
// keys are the clients' to write, so no more than maxAbsent are remembered.
//
// After an attempt that has failed, no key is looked for that an object can do without, for failedFor: an API server that does
// not answer would delay each object by the time of a request, and so fail those behind it.
const (
	absentFor = time.Minute
	failedFor = 10 * time.Second
	maxAbsent = 1024
)

type namedKey struct {
	name string // in annotations
	key  []byte
}

// Learn adds keys. The last one signs from now on. Keys that are here already stay.
func (k *Keys) Learn(keys ...[]byte) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, key := range keys {
		hash := sha256.Sum256(key)
		named := namedKey{hex.EncodeToString(hash[:keyNameLength/2]), key}
		k.all = append(slices.DeleteFunc(k.all, func(o namedKey) bool { return o.name == named.name }), named)
	}
}

// Known returns the keys in their order.
func (k *Keys) Known() [][]byte {
	k.mu.Lock()
	defer k.mu.Unlock()
	return list.Of(k.all, func(n namedKey) []byte { return n.key })
}

// signing returns the key that signs.
func (k *Keys) signing(ctx context.Context) (namedKey, error) {
	all, err := k.fetched(ctx, 0, func(all []namedKey) bool { return len(all) > 0 })
	if len(all) > 0 {
		return all[len(all)-1], nil
	}
	return namedKey{}, fmt.Errorf("there is no key to sign what the other version cannot hold: %w", err)
}

// find returns the keys of these names that there are. What is not here is looked for once, after the call has begun. An
// error says why it could not be looked for.
func (k *Keys) find(ctx context.Context, names []string) (map[string][]byte, error) {
	found := map[string][]byte{}
	missing := func(all []namedKey) (missing []string) {
		for _, n := range all {
			found[n.name] = n.key
		}
		for _, name := range names {
			if name != "" && found[name] == nil && time.Since(k.absent[name]) > absentFor {
				missing = append(missing, name)
			}
		}
		return missing
	}
	all, err := k.fetched(ctx, failedFor, func(all []namedKey) bool { return len(missing(all)) == 0 })
	if errors.Is(err, errNoKeys) {
		return found, nil
	}
	if err != nil {
		return found, err
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, name := range missing(all) {
		if k.absent == nil || len(k.absent) >= maxAbsent {
			k.absent = map[string]time.Time{}
		}
		k.absent[name] = time.Now()
	}
	return found, nil
}

var errNoKeys = errors.New("the program has none")

// fetched returns the keys, and fetches them before if they are not enough. enough is called with the lock. Calls share an
// attempt, and its failure for so long as patience says.
func (k *Keys) fetched(ctx context.Context, patience time.Duration, enough func([]namedKey) bool) ([]namedKey, error) {
	if k == nil {
		return nil, errNoKeys
	}
	began := time.Now()
	look := func() (all []namedKey, ok bool, failed error) {
		k.mu.Lock()
		defer k.mu.Unlock()
		if k.fetching == nil {
			k.fetching = make(chan struct{}, 1)
		}
		if k.failed.After(began) || time.Since(k.failed) < patience {
			failed = k.why
		}
		return slices.Clone(k.all), enough(k.all), failed
	}
	all, ok, failed := look()
	if ok || k.Fetch == nil {
		return all, errNoKeys
	} else if failed != nil {
		return all, failed
	}
	select {
	case k.fetching <- struct{}{}:
		defer func() { <-k.fetching }()
	case <-ctx.Done():
		return all, context.Cause(ctx)
	}
	if all, ok, failed = look(); ok || failed != nil { // another call has fetched them, or tried to
		return all, failed
	}
	keys, err := k.Fetch(ctx)
	k.Learn(keys...)
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.failed = (time.Time{}); err != nil && ctx.Err() == nil {
		k.failed, k.why = time.Now(), err
	}
	return slices.Clone(k.all), err
}
