package chain

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"

	"code.cloudfoundry.org/eirinix/internal/decode"
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
			free := all.held.TryAcquire(all.most) && all.decoding.TryAcquire(decode.MaxMemory)
			all.held.Release(all.most)
			all.decoding.Release(decode.MaxMemory)
			return free
		}
		large := manyContainers(2000)
		first := &memory{account: all, ctx: t.Context()}
		g.Expect(first.decode(manyContainers(1), &corev1.Pod{})).To(Succeed())
		g.Expect(first.held).To(BeZero(), "a small one needs no room")
		g.Expect(first.decode(large, &corev1.Pod{})).To(Succeed())
		held := first.held
		g.Expect(held).To(And(BeNumerically(">", decode.Free), BeNumerically("<", copies*decode.Bound(len(large)))), "unused memory is given back")
		g.Expect(first.decode(large, &corev1.Pod{})).To(Succeed())
		g.Expect(first.held).To(Equal(held), "the object takes the place of the one before")

		var others []*memory
		for all.held.TryAcquire(held) {
			others = append(others, &memory{account: all, ctx: t.Context(), held: held})
		}
		late := &memory{account: all, ctx: t.Context()}
		done := make(chan error, 1)
		go func() { done <- late.decode(large, &corev1.Pod{}) }()
		synctest.Wait()
		g.Expect(done).NotTo(Receive(), "it waits for room")
		g.Expect(late.waits.Load()).To(BeTrue())
		for _, m := range others {
			m.release()
		}
		synctest.Wait()
		g.Expect(done).To(Receive(BeNil()))
		g.Expect(late.waits.Load()).To(BeFalse())

		late.release()
		first.release()
		first.release()
		g.Expect(isFree()).To(BeTrue(), "all of it is there again")

		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("the call is over"))
		defer cancel()
		for _, full := range []*semaphore.Weighted{all.held, all.decoding} {
			g.Expect(full.Acquire(t.Context(), decode.MaxMemory)).To(Succeed())
			err := (&memory{account: all, ctx: ctx}).decode(large, &corev1.Pod{})
			g.Expect(err).To(MatchError(And(ContainSubstring("waited for memory"), ContainSubstring("the call is over"))))
			full.Release(decode.MaxMemory)
		}
		g.Expect(isFree()).To(BeTrue())
		broken := &memory{account: all, ctx: t.Context()}
		g.Expect(broken.decode(large[:len(large)-1], &corev1.Pod{})).NotTo(Succeed())
		g.Expect(broken.held).To(BeZero())
		g.Expect(isFree()).To(BeTrue())
	})
}

func TestAnObjectThatTakesMoreThanAnAccountHasItAlone(t *testing.T) {
	g := NewWithT(t)
	small := newAccount(1 << 20)
	m := &memory{account: small, ctx: t.Context()}
	g.Expect(m.decode(manyContainers(20_000), &corev1.Pod{})).To(Succeed())
	g.Expect(m.held).To(BeEquivalentTo(1 << 20))
	g.Expect(small.held.TryAcquire(1)).To(BeFalse())
	m.release()
	g.Expect(small.held.TryAcquire(1 << 20)).To(BeTrue())
}

// A step that takes its time holds what its object takes, and not the most that it could take. So many others have room.
func TestAStepThatTakesItsTimeDoesNotDelayTheDecodingOfOthers(t *testing.T) {
	g := NewWithT(t)
	all := NewBudget().objects
	large := manyContainers(40_000) // 1 MB, for which all of the memory to decode is reserved
	g.Expect(decode.Bound(len(large))).To(BeEquivalentTo(decode.MaxMemory))
	at, pods := &memory{account: all, ctx: t.Context()}, 0
	for ended, end := context.WithCancel(t.Context()); ; pods++ {
		end()
		m := &memory{account: all, ctx: ended} // cannot wait
		if err := m.decode(manyContainers(4000), &corev1.Pod{}); err != nil {
			g.Expect(err).To(MatchError(ErrNoMemory))
			break
		}
		at.held += m.held
	}
	g.Expect(pods).To(BeNumerically(">", 1))
	g.Expect(at.held).To(BeNumerically(">", decode.MaxMemory/2), "the room is used")
}
