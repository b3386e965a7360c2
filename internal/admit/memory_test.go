package admit

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/gomega"
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
		all := newObjectBudget()
		large := manyContainers(2000)
		first := &memory{budget: all.objects, ctx: t.Context()}
		g.Expect(first.decode(manyContainers(1), &corev1.Pod{})).To(Succeed())
		g.Expect(first.taken).To(BeZero(), "a small one needs no room")
		g.Expect(first.decode(large, &corev1.Pod{})).To(Succeed())
		held := first.taken
		g.Expect(held).To(And(BeNumerically(">", decode.Free), BeNumerically("<", copies*decode.Bound(len(large)))), "what is not needed is given back")
		g.Expect(first.decode(large, &corev1.Pod{})).To(Succeed())
		g.Expect(first.taken).To(Equal(held), "the object takes the place of the one before")

		var others []*memory
		for all.objects.TryAcquire(held) {
			others = append(others, &memory{budget: all.objects, ctx: t.Context(), taken: held})
		}
		late := &memory{budget: all.objects, ctx: t.Context()}
		done := make(chan error, 1)
		go func() { done <- late.decode(large, &corev1.Pod{}) }()
		synctest.Wait()
		g.Expect(done).NotTo(Receive(), "it waits for room")
		for _, m := range others {
			m.release()
		}
		synctest.Wait()
		g.Expect(done).To(Receive(BeNil()))

		late.release()
		first.release()
		first.release()
		g.Expect(all.objects.TryAcquire(copies*decode.Most)).To(BeTrue(), "all of it is there again")

		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("the call is over"))
		defer cancel()
		g.Expect((&memory{budget: all.objects, ctx: ctx}).decode(large, &corev1.Pod{})).To(MatchError(And(ContainSubstring("no memory became free"), ContainSubstring("the call is over"))))
		all.objects.Release(copies * decode.Most)
		g.Expect((&memory{budget: all.objects, ctx: t.Context()}).decode(manyContainers(1), &corev1.Pod{})).To(Succeed())
		broken := &memory{budget: all.objects, ctx: t.Context()}
		g.Expect(broken.decode(large[:len(large)-1], &corev1.Pod{})).NotTo(Succeed())
		g.Expect(broken.taken).To(BeZero())
	})
}

func TestBodiesOfUnknownLengthTakeNoMoreMemoryThanIsCounted(t *testing.T) {
	g := NewWithT(t)
	const most = 1 << 20
	all := newReadBudget(most)
	for _, size := range []int{firstBytes + 1, most / 2, most - 1, most} {
		text, b := readUnknownBody(t, all, size)
		g.Expect(text).To(HaveLen(size))
		g.Expect(cap(text)).To(BeNumerically("<=", most+1))
		g.Expect(b.reserved).To(BeNumerically(">=", cap(text)))
		b.release()
		g.Expect(all.free.TryAcquire(bodiesAtOnce * most)).To(BeTrue())
		all.free.Release(bodiesAtOnce * most)
	}
}

func readUnknownBody(t *testing.T, all *readBudget, size int) ([]byte, *requestBody) {
	t.Helper()
	r := httptest.NewRequest(http.MethodPost, "/", io.MultiReader(strings.NewReader(strings.Repeat(" ", size))))
	text, b, err := all.read(httptest.NewRecorder(), r, deadline{time.Now(), time.Minute})
	if err != nil || r.ContentLength >= 0 {
		t.Fatal(err, r.ContentLength)
	}
	return text, b
}
