package certsecret_test

// This file is about what a process makes of a Secret when it knows nothing of the past: it creates, repairs or migrates it,
// or reports what stands in the way.

import (
	"context"
	"crypto/x509"
	"errors"
	"net/url"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsecret"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

var _ = Describe("Restore without a known state", func() {
	It("creates the Secret when there is none", func() {
		c := newCluster(nil)
		state, outcome := restore(c.store(), nil, nil)
		Expect(outcome).To(Equal(certsecret.Created))
		Expect(state.FormatVersion).To(Equal(certsecret.FormatVersion))
		Expect(state.Counter).To(Equal(int64(1)))
		Expect(state.Phase).To(Equal(ca.Steady))
		Expect(expectInOrder(c, state).Certificate.NotAfter).To(Equal(now.Add(10 * year)))
		Expect(c.secret().Type).To(Equal(corev1.SecretTypeOpaque))
		Expect(c.writes()).To(Equal(map[string]int{"create": 1}))
	})

	DescribeTable("lets racers agree on one CA with one write", func(first certsecret.Outcome, data func() map[string][]byte) {
		const racers = 50
		var (
			c        = newCluster(data())
			start    = make(chan struct{})
			group    sync.WaitGroup
			mu       sync.Mutex
			cas      = map[string]int{}
			outcomes = map[certsecret.Outcome]int{}
		)
		for range racers {
			group.Go(func() {
				defer GinkgoRecover()
				<-start
				state, outcome := restore(c.store(), nil, nil)
				mu.Lock()
				defer mu.Unlock()
				cas[string(state.Bundle())]++
				outcomes[outcome]++
			})
		}
		close(start)
		group.Wait()
		Expect(cas).To(HaveLen(1))
		Expect(outcomes).To(Equal(map[certsecret.Outcome]int{first: 1, certsecret.Adopted: racers - 1}))
		Expect(c.created + c.updated).To(Equal(1))
	},
		Entry("where there is no Secret", certsecret.Created, func() map[string][]byte { return nil }),
		Entry("where it cannot be used", certsecret.Repaired, func() map[string][]byte {
			return map[string][]byte{"tls.crt": []byte("garbage"), "tls.key": []byte("garbage")}
		}),
		Entry("where it is EiriniX's", certsecret.Migrated, func() map[string][]byte { return eirinixData() }),
	)

	DescribeTable("repairs, and logs the reason", func(reason string, kept bool, damage func(map[string][]byte) map[string][]byte) {
		data := ownData()
		old := Must(ca.Parse(data["tls.crt"], data["tls.key"]))
		c := newCluster(damage(data))
		state, outcome := restore(c.store(), nil, nil)
		Expect(outcome).To(Equal(certsecret.Repaired))
		Expect(state.Reason).To(ContainSubstring(reason))
		Expect(state.Reason).NotTo(ContainSubstring("PRIVATE KEY-----"))
		Expect(expectInOrder(c, state).Equal(old)).To(Equal(kept), "the same CA")
		Expect(ca.SplitBundle(state.Bundle())).To(HaveLen(1), "nothing is trusted besides")
		Expect(c.writes()).To(Equal(map[string]int{"update": 1}))
	},
		Entry("emptied", "the Secret holds no CA", false, func(map[string][]byte) map[string][]byte {
			return map[string][]byte{"password": []byte("x")}
		}),
		Entry("document deleted", "state.json is missing", true, func(d map[string][]byte) map[string][]byte { return without(d, "state.json") }),
		Entry("document of another shape", "state.json is not valid JSON of a known shape", true, func(d map[string][]byte) map[string][]byte {
			return with(d, "state.json", []byte(`{"formatVersion":1,"generations":{}}`))
		}),
		Entry("document without a version", "no valid format version", true, func(d map[string][]byte) map[string][]byte {
			return with(d, "state.json", []byte(`{}`))
		}),
		Entry("document without a current CA", "no generation is marked as current", true, func(d map[string][]byte) map[string][]byte {
			return with(d, "state.json", []byte(`{"formatVersion":1,"current":3}`))
		}),
		Entry("document with an ID twice", "repeated generation 1", true, func(d map[string][]byte) map[string][]byte {
			return with(d, "state.json", []byte(`{"formatVersion":1,"current":1,"generations":[{"id":1},{"id":1}]}`))
		}),
		Entry("document's key replaced", "state.json: the private key does not match the certificate", true, func(d map[string][]byte) map[string][]byte {
			s := Must(DecodeState(d, now))
			s.Generations[0].PrivateKeyPEM = NewCA(year, now).PrivateKeyPEM
			return with(d, "state.json", s.Encode(nil)["state.json"])
		}),
		Entry("document's cross-signed certificate replaced", "cross-signed by generation 9", true, func(d map[string][]byte) map[string][]byte {
			s := Must(DecodeState(d, now))
			s.Phase, s.CurrentID, s.Generations[0].ID = ca.Retaining, 10, 10
			s.Generations[0].CrossSigned = []certsecret.CrossSigned{{IssuerID: 9, CertificatePEM: NewCA(year, now).CertificatePEM}}
			return with(d, "state.json", s.Encode(nil)["state.json"])
		}),
		Entry("mirrors deleted", "tls.crt is missing", true, func(d map[string][]byte) map[string][]byte {
			return without(d, "tls.crt", "tls.key", "ca.crt")
		}),
		Entry("mirrored key of another CA", "tls.key does not match tls.crt", true, func(d map[string][]byte) map[string][]byte {
			return with(d, "tls.key", NewCA(year, now).PrivateKeyPEM)
		}),
		Entry("mirrored certificate emptied", "tls.crt is empty", true, func(d map[string][]byte) map[string][]byte {
			return with(d, "tls.crt", []byte("\n"))
		}),
		Entry("mirrored CA replaced", "tls.crt is not the current CA", true, func(d map[string][]byte) map[string][]byte {
			other := NewCA(year, now)
			return with(with(d, "tls.crt", other.CertificatePEM), "tls.key", other.PrivateKeyPEM)
		}),
		Entry("ca.crt replaced", "ca.crt is not the current CA", true, func(d map[string][]byte) map[string][]byte {
			return with(d, "ca.crt", NewCA(year, now).CertificatePEM)
		}),
		Entry("document lost, and a key of another CA", "tls.key does not match tls.crt", false, func(d map[string][]byte) map[string][]byte {
			return with(without(d, "state.json"), "tls.key", NewCA(year, now).PrivateKeyPEM)
		}),
		Entry("a leaf, as cert-manager would leave", "tls.crt: the certificate is not a CA certificate", false, func(d map[string][]byte) map[string][]byte {
			leaf := Must(NewCA(year, now).SignServing([]string{"h"}, day, now))
			return map[string][]byte{"tls.crt": ca.EncodeCertificate(leaf.Leaf), "tls.key": NewCA(year, now).PrivateKeyPEM}
		}),
	)

	It("replaces a CA that has expired, and one whose time has not come", func() {
		c := newCluster(ownData())
		state, outcome := restore(c.storeAt(now.Add(10*year+day)), nil, nil)
		Expect(outcome).To(Equal(certsecret.Repaired))
		Expect(state.Reason).To(ContainSubstring("has expired at 2040-05-14T12:00:00Z"))
		Expect(ca.SplitBundle(state.Bundle())).To(HaveLen(1), "an expired CA is not trusted on")
		Expect(state.CurrentID).To(Equal(int64(2)), "IDs are never used twice")
		Expect(state.Counter).To(Equal(int64(2)))

		state, _ = restore(c.store(), nil, nil) // a clock ten years behind
		Expect(state.Reason).To(ContainSubstring("not valid yet"))
	})

	It("does not let the Secret grow without end", func() {
		c := newCluster(nil)
		for range 12 {
			state, _ := restore(c.store(), nil, nil)
			Expect(len(state.Generations)).To(BeNumerically("<=", 8))
			expectInOrder(c, state)
			c.edit(func(s *corev1.Secret) {
				broken := Must(DecodeState(s.Data, now))
				broken.Generations[len(broken.Generations)-1].PrivateKeyPEM = nil
				s.Data = broken.Encode(nil)
			})
		}
	})

	It("keeps the data of others in the Secret, and its type", func() {
		c := newCluster(with(without(ownData(), "state.json"), "password", []byte("x")), func(s *corev1.Secret) {
			s.Type = corev1.SecretTypeTLS
			s.Labels = map[string]string{"theirs": "1"}
			s.Annotations = map[string]string{"note": "2"}
			s.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "x", UID: "u"}}
		})
		state, _ := restore(c.store(), nil, nil)
		expectInOrder(c, state)
		Expect(c.secret()).To(And(
			HaveField("Data", HaveKeyWithValue("password", []byte("x"))),
			HaveField("Type", corev1.SecretTypeTLS),
			HaveField("Labels", map[string]string{"theirs": "1"}),
			HaveField("Annotations", map[string]string{"note": "2"}),
			HaveField("OwnerReferences", HaveLen(1)),
		))
	})
})

var _ = Describe("EiriniX's Secret", func() {
	It("is migrated: its CA goes on, its keys stay for a rollback", func() {
		data := eirinixData()
		c := newCluster(data)
		first, outcome := restore(c.store(), nil, nil)
		Expect(outcome).To(Equal(certsecret.Migrated))
		Expect(first.Reason).To(BeEmpty())
		Expect(ca.EqualBundles(expectInOrder(c, first).CertificatePEM, data["ca_certificate"])).To(BeTrue())
		for key, value := range data {
			Expect(c.secret().Data).To(HaveKeyWithValue(key, value))
		}

		By("damaging our keys later")
		c.edit(func(s *corev1.Secret) { s.Data["state.json"], s.Data["tls.key"] = []byte("{"), []byte("x") })
		state, outcome := restore(c.store(), nil, nil)
		Expect(outcome).To(Equal(certsecret.Migrated))
		Expect(state.Reason).To(And(ContainSubstring("state.json is not valid"), ContainSubstring("tls.key: no PEM")))
		Expect(expectInOrder(c, state).Equal(Must(first.Current()))).To(BeTrue())
	})

	DescribeTable("gets a new CA when its own cannot be used", func(reason string, make func() map[string][]byte) {
		data := make()
		c := newCluster(data)
		state, outcome := restore(c.store(), nil, nil)
		Expect(outcome).To(Equal(certsecret.Migrated))
		Expect(state.Reason).To(ContainSubstring(reason))
		Expect(ca.EqualBundles(expectInOrder(c, state).CertificatePEM, data["ca_certificate"])).To(BeFalse())
		for key, value := range without(data, "tls.key") {
			Expect(c.secret().Data).To(HaveKeyWithValue(key, value))
		}
	},
		Entry("expired", "ca_certificate: the CA certificate has expired", func() map[string][]byte {
			return eirinixData(func(c *x509.Certificate) { c.NotAfter = now.Add(-time.Hour) })
		}),
		Entry("SHA-1", "weaker than SHA-256", func() map[string][]byte {
			return eirinixData(func(c *x509.Certificate) { c.SignatureAlgorithm = x509.SHA1WithRSA })
		}),
		Entry("key mismatch", "ca_private_key does not match ca_certificate", func() map[string][]byte {
			return with(eirinixData(), "ca_private_key", PKCS1(eirinixLeafKey()))
		}),
		Entry("no CA at all", "ca_certificate is missing", func() map[string][]byte {
			return without(eirinixData(), "ca_certificate", "ca_private_key")
		}),
		Entry("no CA key, and our keys damaged", "tls.crt is missing; ca_private_key is missing", func() map[string][]byte {
			return with(without(eirinixData(), "ca_private_key"), "tls.key", []byte("x"))
		}),
	)
})

var _ = Describe("Load", func() {
	DescribeTable("names the missing part", func(reason string, data map[string][]byte) {
		c := newCluster(data)
		Expect(c.store().Load(background)).Error().To(And(MatchError(certsecret.ErrNotReady),
			MatchError(HavePrefix("certificate Secret cf/eirini-x-setupcertificate: ")), MatchError(ContainSubstring(reason))))
		Expect(c.writes()).To(BeEmpty())
	},
		Entry("absent", "does not exist (yet)", nil),
		Entry("half", "tls.key is missing", map[string][]byte{"tls.crt": []byte("x")}),
	)

	It("reads a Secret that only needs repair or migration, and does not write it", func() {
		crossed := Must(DecodeState(ownData(), now))
		crossed.Generations[0].CrossSigned = []certsecret.CrossSigned{{IssuerID: 9, CertificatePEM: NewCA(year, now).CertificatePEM}}
		for _, data := range []map[string][]byte{ownData(), without(ownData(), "state.json"), crossed.Encode(nil), eirinixData()} {
			c := newCluster(data)
			Expect(Must(Must(c.store().Load(background)).Current()).Usable(now)).To(Succeed())
			Expect(c.writes()).To(BeEmpty())
		}
	})
})

var _ = Describe("RecordRegistered", func() {
	It("stores the bundle once", func() {
		c := newCluster(ownData())
		one, two := NewCA(year, now).CertificatePEM, NewCA(year, now).CertificatePEM
		Expect(c.store().RecordRegistered(background, ca.Bundle(one, two))).To(Succeed())
		Expect(c.store().RecordRegistered(background, ca.Bundle(two, one))).To(Succeed())
		Expect(c.writes()).To(Equal(map[string]int{"update": 1}))
		state := Must(c.store().Load(background))
		Expect(state.RegisteredBundle).To(Equal(ca.Bundle(one, two)))
		Expect(state.Counter).To(Equal(int64(2)))
		expectInOrder(c, state)
	})

	It("refuses a bundle of nothing, and a Secret without a CA", func() {
		c := newCluster(nil)
		Expect(c.store().RecordRegistered(background, []byte("Cg=="))).To(MatchError(ContainSubstring("holds no certificate")))
		err := c.store().RecordRegistered(background, NewCA(year, now).CertificatePEM)
		Expect(err).To(MatchError(certsecret.ErrNotReady))
		Expect(strings.Count(err.Error(), "certificate Secret")).To(Equal(1))
		Expect(c.writes()).To(BeEmpty())
	})
})

var _ = Describe("A Secret of a newer format", func() {
	newer := func(text string) map[string][]byte { return with(ownData(), "state.json", []byte(text)) }

	It("is read as far as it is understood and never written", func() {
		state := Must(DecodeState(ownData(), now))
		state.FormatVersion = 7
		data := state.Encode(nil)
		data["state.json"] = []byte(strings.Replace(string(data["state.json"]), "{", `{"novelty":[1],`, 1))
		for _, content := range []map[string][]byte{
			data, with(data, "tls.key", []byte("damaged")), newer(`{"formatVersion":2,"generations":{"of":"another shape"}}`),
		} {
			c := newCluster(content)
			got, outcome := restore(c.store(), nil, nil)
			Expect(outcome).To(Equal(certsecret.Adopted))
			Expect(Must(got.Current()).Usable(now)).To(Succeed())
			Expect(c.store().RecordRegistered(background, NewCA(year, now).CertificatePEM)).To(MatchError(certsecret.ErrNewerFormat))
			Expect(c.writes()).To(BeEmpty())
		}
	})

	It("is an error when it would have to be written", func() {
		c := newCluster(with(newer(`{"formatVersion":2}`), "tls.key", []byte("damaged")))
		_, _, err := c.store().Restore(background, nil, nil, nil)
		Expect(err).To(And(MatchError(certsecret.ErrNewerFormat), MatchError(ContainSubstring("upgrade this program"))))

		state := Must(DecodeState(ownData(), now))
		state.FormatVersion = 2
		c = newCluster(nil)
		Expect(c.store().Restore(background, state, nil, nil)).Error().To(MatchError(certsecret.ErrNewerFormat))
		Expect(c.writes()).To(BeEmpty())
	})
})

var resource = schema.GroupResource{Resource: "secrets"}

var _ = Describe("An obstacle", func() {
	namespaceGone := apierrors.NewNotFound(schema.GroupResource{Resource: "namespaces"}, namespace)
	namespaceGone.ErrStatus.Details.Kind = "namespaces"
	terminating := apierrors.NewForbidden(resource, name, errors.New("namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}

	DescribeTable("is reported at once, with the remedy", func(verb string, cause error, text string) {
		c := newCluster(nil)
		if verb == "update" {
			c = newCluster(map[string][]byte{})
		}
		c.fail(verb, -1, cause)
		_, _, err := c.store().Restore(background, nil, nil, nil)
		Expect(err).To(MatchError(cause), "wrapped")
		Expect(err).To(MatchError(And(HavePrefix("certificate Secret cf/eirini-x-setupcertificate"), ContainSubstring(text))))
		Expect(strings.Count(err.Error(), "certificate Secret")).To(Equal(1))
		Expect(c.writes()[verb]).To(BeNumerically("<=", 1), "no second attempt")
	},
		Entry("get forbidden", "get", apierrors.NewForbidden(resource, name, nil), "(needs get, create, update on secrets)"),
		Entry("update forbidden", "update", apierrors.NewForbidden(resource, name, nil), "(needs get, create, update on secrets)"),
		Entry("namespace missing", "create", namespaceGone, `namespace "cf" does not exist; create it first`),
		Entry("namespace terminating", "create", terminating, `namespace "cf" is being deleted`),
		Entry("anything else", "get", errors.New("tls: handshake failure"), "tls: handshake failure"),
	)

	It("that passes is waited for", func() {
		c := newCluster(nil)
		c.fail("get", 2, apierrors.NewInternalError(errors.New("etcdserver: leader changed")))
		_, outcome := restore(c.store(), nil, nil)
		Expect(outcome).To(Equal(certsecret.Created))
	})

	It("of a Secret that vanishes between read and write has it read again", func() {
		c := newCluster(map[string][]byte{})
		c.fail("update", 1, apierrors.NewNotFound(resource, name))
		_, outcome := restore(c.store(), nil, nil)
		Expect(outcome).To(Equal(certsecret.Repaired))
	})

	It("is not waited for after the context's end", func() {
		c := newCluster(nil)
		ctx, cancel := context.WithCancelCause(background)
		c.fail("create", -1, apierrors.NewAlreadyExists(resource, name))
		cancel(errors.New("shutting down"))
		Expect(c.store().Restore(ctx, nil, nil, nil)).Error().To(MatchError(ContainSubstring("shutting down")))
		Expect(c.writes()["create"]).To(Equal(1))
	})

	It("is an immutable Secret, unless its CA is usable", func() {
		c := newCluster(map[string][]byte{"tls.crt": []byte("x")}, setImmutable)
		_, _, err := c.store().Restore(background, nil, nil, nil)
		Expect(err).To(And(MatchError(certsecret.ErrImmutable), MatchError(ContainSubstring("tls.key is missing")),
			MatchError(ContainSubstring("kubectl --namespace cf delete secret eirini-x-setupcertificate"))))
		Expect(c.writes()).To(BeEmpty())

		c = newCluster(eirinixData(), setImmutable)
		state, outcome := restore(c.store(), nil, nil)
		Expect(outcome).To(Equal(certsecret.Adopted))
		Expect(Must(state.Current()).Usable(now)).To(Succeed())
		Expect(c.store().RecordRegistered(background, state.Bundle())).To(MatchError(certsecret.ErrImmutable))
		Expect(c.writes()).To(BeEmpty())
	})
})

func setImmutable(s *corev1.Secret) { s.Immutable = new(true) }

func TestRestoreGivesUpAfterSomeSeconds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := NewWithT(t)
		c := newCluster(nil)
		c.fail("get", -1, apierrors.NewServiceUnavailable("starting"))
		start := time.Now()
		_, _, err := c.store().Restore(t.Context(), nil, nil, nil)
		g.Expect(err).To(MatchError(ContainSubstring("gave up after")))
		g.Expect(err).To(MatchError(apierrors.IsServiceUnavailable, "IsServiceUnavailable"))
		g.Expect(time.Since(start)).To(BeNumerically("~", 8*time.Second, 6*time.Second))

		c = newCluster(nil)
		c.fail("get", -1, &url.Error{Op: "Get", URL: "https://x", Err: context.DeadlineExceeded})
		start = time.Now()
		_, _, err = c.store().Restore(t.Context(), nil, nil, nil)
		g.Expect(err).To(MatchError(context.DeadlineExceeded))
		g.Expect(time.Since(start)).To(BeZero(), "it has waited for one answer, and not for twenty")
	})
}
