package certsecret_test

import (
	"context"
	"errors"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("Observe", func() {
	var (
		c        *cluster
		store    *certsecret.Store
		own      *certsecret.State
		cached   *corev1.Secret
		cacheErr error
	)
	BeforeEach(func() {
		c = newCluster(nil)
		var err error
		own, _, err = c.store().Restore(background, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		cached, cacheErr = c.secret(), nil
		store = c.store()
		store.Cached = func(context.Context) (*corev1.Secret, error) { return cached, cacheErr }
		c.ClearActions()
	})

	observe := func(known *certsecret.State, pinned certsecret.Pinned) *certsecret.State {
		GinkgoHelper()
		before := cached.DeepCopy()
		state := Must(store.Observe(background, known, pinned))
		Expect(cached).To(Equal(before), "the cached object is not changed")
		return state
	}

	It("sends no request for a Secret in order", func() {
		state := observe(nil, nil)
		Expect(state.Bundle()).To(Equal(own.Bundle()))
		Expect(state.ResourceVersion).To(Equal(own.ResourceVersion))
		Expect(observe(nil, pins(own.Bundle())).Bundle()).To(Equal(own.Bundle()))
		Expect(c.Actions()).To(BeEmpty())
	})

	It("returns the known state for the Secret that it stands in", func() {
		Expect(observe(own, nil)).To(BeIdenticalTo(own))
		cached.Data = nil // it is not even parsed
		Expect(observe(own, pins(nil))).To(BeIdenticalTo(own))
		Expect(c.Actions()).To(BeEmpty())
	})

	It("follows the writes of others", func() {
		staged := Must(c.store().Stage(background, own))
		c.ClearActions()
		cached = Must(c.Tracker().Get(secrets, namespace, name)).(*corev1.Secret)
		Expect(observe(own, pins(own.Bundle())).NextID).To(Equal(staged.NextID))
		Expect(c.Actions()).To(BeEmpty())
	})

	It("reads a Secret live that is not in order, and writes it once", func() {
		c.edit(func(s *corev1.Secret) { s.Data = nil })
		cached = c.secret()
		state := observe(own, nil)
		Expect(Must(state.Current()).Equal(Must(own.Current()))).To(BeTrue())
		Expect(c.updated).To(Equal(1))
		again := observe(state, nil) // the cache has not seen it yet
		Expect(again.ResourceVersion).To(Equal(state.ResourceVersion))
		Expect(c.updated).To(Equal(1))
	})

	It("reads a Secret live whose CA no configuration pins", func() {
		foreign := NewCA(year, now)
		pinned := pins(foreign.CertificatePEM)
		state := observe(nil, pinned)
		Expect(ca.Contains(state.Bundle(), own.Bundle())).To(BeFalse())
		Expect(c.updated).To(Equal(1))
	})

	DescribeTable("reads live when the cache is of no use", func(err error) {
		cacheErr = err
		Expect(Must(store.Observe(background, own, nil)).Bundle()).To(Equal(own.Bundle()))
		Expect(c.Actions()).To(HaveLen(1))
	},
		Entry("it has not seen the Secret", apierrors.NewNotFound(resource, name)),
		Entry("it has not started", errors.New("not started")),
	)

	It("reads live without a cache, and with one that goes back", func() {
		plain := c.store()
		Expect(Must(plain.Observe(background, own, nil)).Bundle()).To(Equal(own.Bundle()))
		Expect(c.Actions()).To(HaveLen(1))
		second := rotated(c, own)
		c.ClearActions()
		Expect(observe(second, nil).Bundle()).To(Equal(second.Bundle()))
		Expect(c.Actions()).To(HaveLen(1), "the cached Secret is from before the rotation")
	})

	It("does not go on with a CA that has expired meanwhile", func() {
		store.Now = func() time.Time { return now.Add(10*year + day) }
		Expect(observe(own, nil).Bundle()).NotTo(Equal(own.Bundle()))
	})

	It("is Peek where nothing may be written", func() {
		Expect(Must(store.Peek(background)).Bundle()).To(Equal(own.Bundle()))
		cached.Data = nil
		Expect(store.Peek(background)).Error().To(MatchError(certsecret.ErrNotReady))
		cacheErr = apierrors.NewNotFound(resource, name)
		Expect(store.Peek(background)).Error().To(MatchError(certsecret.ErrNotReady))
		cacheErr = errors.New("not started")
		Expect(store.Peek(background)).Error().To(MatchError(ContainSubstring("certificate Secret cf/eirini-x-setupcertificate: not started")))
		Expect(c.Actions()).To(BeEmpty())
		store.Cached = nil
		Expect(Must(store.Peek(background)).Bundle()).To(Equal(own.Bundle()))
		Expect(c.Actions()).To(HaveLen(1))
	})
})

var _ = Describe("A replica with a wrong clock", func() {
	DescribeTable("goes on with the CA of the others, and its own CAs are good for them", func(ahead time.Duration) {
		c := newCluster(nil)
		own, _, err := c.store().Restore(background, nil, nil)
		Expect(err).NotTo(HaveOccurred())
		wrong := c.storeAt(now.Add(ahead))
		wrong.ServerTime = func() time.Time { return now }
		for _, known := range []*certsecret.State{nil, own} {
			state, outcome, err := wrong.Restore(background, known, nil)
			Expect(err).NotTo(HaveOccurred())
			Expect(outcome).To(Equal(certsecret.Adopted))
			Expect(state.Bundle()).To(Equal(own.Bundle()))
		}
		active := Must(wrong.Activate(background, Must(wrong.Stage(background, own))))
		Expect(ca.SplitBundle(active.Bundle())).To(HaveLen(2), "the old one has not expired by both clocks")
		Expect(Must(active.Current()).Usable(now)).To(Succeed())
		Expect(Must(active.Current()).Usable(now.Add(ahead))).To(Succeed())
		Expect(Must(active.Current()).Chain).To(HaveLen(1))
	},
		Entry("behind", -6*time.Hour),
		Entry("ahead, by more than the life of a CA", 10*year+day),
	)
})
