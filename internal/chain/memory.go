package chain

// This file bounds the memory of decoded objects.

import (
	"context"
	"errors"
	"fmt"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/hang"
	"code.cloudfoundry.org/eirinix/internal/jsontext"
)

// An object is counted twice, because steps change a copy. While it is decoded, the most that it can take is reserved
// once. An object that takes no more than decode.Free is not counted.
const (
	copies         = 2
	decodedCalls   = decode.MaxMemory
	decodedShadows = decode.MaxMemory / 2
)

// A Budget bounds the memory of the decoded objects of all calls together, or of all shadows. Old objects have an account
// of their own, so that a call that holds one object and waits for the other never waits for a call that does the reverse.
// What steps hold that were left behind no longer delays others, so it is in no account. It is safe for concurrent use.
type Budget struct {
	LeftBehind          hang.LeftBehind
	objects, oldObjects account
}

// NewBudget returns the budget of the calls.
func NewBudget() *Budget { return newBudget(decodedCalls) }

func newBudget(most int64) *Budget {
	return &Budget{LeftBehind: hang.LeftBehind{Max: most}, objects: newAccount(most), oldObjects: newAccount(most / 2)}
}

// account is memory for decoded objects. A step that takes its time with an object thus delays no decoding of another,
// as long as there is room for what both take.
type account struct{ decoding, held hang.Account }

func newAccount(most int64) account {
	return account{hang.NewAccount(decode.MaxMemory), hang.NewAccount(most)}
}

// memory is the share of one object of a call in an account.
type memory struct {
	decoding, held hang.Memory
	index          jsontext.Index // of the text that was read last
}

func (a account) share(ctx context.Context) *memory {
	return &memory{decoding: hang.Memory{Of: a.decoding, Context: ctx}, held: hang.Memory{Of: a.held, Context: ctx}}
}

// decode reads an object into a Go type. It first releases the memory of the object that was read before.
func (m *memory) decode(raw []byte, into runtime.Object) error {
	target := any(into)
	if u, ok := into.(*unstructured.Unstructured); ok {
		target = &u.Object // its own decoder requires a kind, and reads the text twice
	}
	m.held.Release()
	defer m.decoding.Release()
	made, err := decode.Within(raw, target, &m.index, m.decoding.Take)
	if err == nil && m.decoding.Held() > 0 {
		err = m.held.Take(copies * made)
	}
	if err != nil && !errors.Is(err, hang.ErrNoMemory) {
		err = fmt.Errorf("%w as %T: %w", ErrUnreadable, into, err)
	}
	return err
}

func (m *memory) waits() bool { return m.decoding.Waits() || m.held.Waits() }
