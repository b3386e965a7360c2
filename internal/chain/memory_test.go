package chain

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix/internal/decode"
	"code.cloudfoundry.org/eirinix/internal/hang"
)

// manyContainers is a pod that takes more than decode.Free.
func manyContainers(n int) []byte {
	return []byte(`{"spec":{"containers":[` + strings.Repeat(`{"name":"a","image":"b"},`, n) + `{}]}}`)
}

func TestMemoryIsSharedByTheObjectsThatAreLarge(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		all := NewBudget().objects
		isFree := func() bool {
			free := all.held.TryAcquire(all.held.Max) && all.decoding.TryAcquire(decode.MaxMemory)
			all.held.Release(all.held.Max)
			all.decoding.Release(decode.MaxMemory)
			return free
		}
		large := manyContainers(2000)
		first := all.share(t.Context())
		g.Expect(first.decode(manyContainers(1), &corev1.Pod{})).To(Succeed())
		g.Expect(first.held.Held()).To(BeZero(), "a small one needs no room")
		g.Expect(first.decode(large, &corev1.Pod{})).To(Succeed())
		held := first.held.Held()
		g.Expect(held).To(And(BeNumerically(">", decode.Free), BeNumerically("<", copies*decode.Bound(len(large)))), "unused memory is given back")
		g.Expect(first.decode(large, &corev1.Pod{})).To(Succeed())
		g.Expect(first.held.Held()).To(Equal(held), "the object takes the place of the one before")

		var others []*memory
		for all.held.TryAcquire(held) { // so that none waits
			all.held.Release(held)
			m := all.share(t.Context())
			g.Expect(m.held.Take(held)).To(Succeed())
			others = append(others, m)
		}
		late := all.share(t.Context())
		done := make(chan error, 1)
		go func() { done <- late.decode(large, &corev1.Pod{}) }()
		synctest.Wait()
		g.Expect(done).NotTo(Receive(), "it waits for room")
		g.Expect(late.waits()).To(BeTrue())
		for _, m := range others {
			m.held.Release()
		}
		synctest.Wait()
		g.Expect(done).To(Receive(BeNil()))
		g.Expect(late.waits()).To(BeFalse())

		late.held.Release()
		first.held.Release()
		first.held.Release()
		g.Expect(isFree()).To(BeTrue(), "all of it is there again")

		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("the call is over"))
		defer cancel()
		for _, full := range []hang.Account{all.held, all.decoding} {
			g.Expect(full.Acquire(t.Context(), decode.MaxMemory)).To(Succeed())
			err := all.share(ctx).decode(large, &corev1.Pod{})
			g.Expect(err).To(MatchError(And(ContainSubstring("waited for memory"), ContainSubstring("the call is over"))))
			full.Release(decode.MaxMemory)
		}
		g.Expect(isFree()).To(BeTrue())
		broken := all.share(t.Context())
		g.Expect(broken.decode(large[:len(large)-1], &corev1.Pod{})).NotTo(Succeed())
		g.Expect(broken.held.Held()).To(BeZero())
		g.Expect(isFree()).To(BeTrue())
	})
}

func TestAnObjectThatTakesMoreThanAnAccountHasItAlone(t *testing.T) {
	g := NewWithT(t)
	small := newAccount(1 << 20)
	m := small.share(t.Context())
	g.Expect(m.decode(manyContainers(20_000), &corev1.Pod{})).To(Succeed())
	g.Expect(m.held.Held()).To(BeEquivalentTo(1 << 20))
	g.Expect(small.held.TryAcquire(1)).To(BeFalse())
	m.held.Release()
	g.Expect(small.held.TryAcquire(1 << 20)).To(BeTrue())
}

// A step that takes its time holds what its object takes, and not the most that it could take. So many others have room.
func TestAStepThatTakesItsTimeDoesNotDelayTheDecodingOfOthers(t *testing.T) {
	g := NewWithT(t)
	all := NewBudget().objects
	large := manyContainers(40_000) // 1 MB, for which all of the memory to decode is reserved
	g.Expect(decode.Bound(len(large))).To(BeEquivalentTo(decode.MaxMemory))
	at, pods := int64(0), 0
	for ended, end := context.WithCancel(t.Context()); ; pods++ {
		end()
		m := all.share(ended) // cannot wait
		if err := m.decode(manyContainers(4000), &corev1.Pod{}); err != nil {
			g.Expect(err).To(MatchError(hang.ErrNoMemory))
			break
		}
		at += m.held.Held()
	}
	g.Expect(pods).To(BeNumerically(">", 1))
	g.Expect(at).To(BeNumerically(">", decode.MaxMemory/2), "the room is used")
}
