package certsource_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	. "github.com/onsi/ginkgo/v2"
	. "github.com/onsi/gomega"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"

	"code.cloudfoundry.org/eirinix/internal/ca"
	"code.cloudfoundry.org/eirinix/internal/certsource"
	. "code.cloudfoundry.org/eirinix/internal/spectest"
)

const secretName = "webhook-tls"

func data(i issued) map[string][]byte {
	return map[string][]byte{"tls.crt": i.certificate, "tls.key": i.key, "ca.crt": i.ca}
}

var _ = Describe("Secret", Label("api-server"), func() {
	var (
		namespace string
		r         *recorder
		source    *certsource.Secret
	)

	BeforeEach(func(ctx SpecContext) {
		namespace = newNamespace(ctx)
		r = newRecorder()
		source = &certsource.Secret{
			Config: started.Config(), Namespace: namespace, Name: secretName,
			Hosts: hosts, Poll: never, Log: r.log(), Now: time.Now,
		}
	})

	create := func(ctx context.Context, data map[string][]byte, edit ...func(*corev1.Secret)) {
		GinkgoHelper()
		secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: secretName}, Type: corev1.SecretTypeTLS, Data: data}
		for _, e := range edit {
			e(secret)
		}
		Must(admin().CoreV1().Secrets(namespace).Create(ctx, secret, metav1.CreateOptions{}))
	}
	update := func(ctx context.Context, data map[string][]byte) {
		GinkgoHelper()
		secrets := admin().CoreV1().Secrets(namespace)
		secret := Must(secrets.Get(ctx, secretName, metav1.GetOptions{}))
		secret.Data = data
		Must(secrets.Update(ctx, secret, metav1.UpdateOptions{}))
	}
	remove := func(ctx context.Context) {
		GinkgoHelper()
		Expect(admin().CoreV1().Secrets(namespace).Delete(ctx, secretName, metav1.DeleteOptions{})).To(Succeed())
	}

	It("waits for the Secret, takes it when it is made, and every one after that, from a watch", func(ctx SpecContext) {
		run(source, r)
		Eventually(r.reason).Should(And(
			HavePrefix("Secret "+namespace+"/webhook-tls: it does not exist (yet)"), ContainSubstring("secretName is webhook-tls")))
		first, second := issue(), issue()
		create(ctx, data(first))
		Eventually(r.serial).Should(Equal(serialOf(first)))
		Expect(r.bundle()).To(Equal(string(first.ca)))
		update(ctx, data(second))
		Eventually(r.serial).Should(Equal(serialOf(second)))
		Expect(r.reason()).To(BeEmpty())
		Expect(r.deliveries()).To(Equal(2))
	})

	It("keeps the last good one while the Secret is no good", func(ctx SpecContext) {
		first, second := issue(), issue()
		create(ctx, data(first))
		run(source, r)
		Eventually(r.serial).Should(Equal(serialOf(first)))
		update(ctx, map[string][]byte{"tls.crt": second.certificate, "tls.key": first.key, "ca.crt": second.ca})
		Eventually(r.reason).Should(ContainSubstring("tls.crt and tls.key: the private key does not match"))
		update(ctx, map[string][]byte{"tls.crt": second.certificate, "tls.key": second.key, "ca.crt": first.ca})
		Eventually(r.reason).Should(ContainSubstring("the CA bundle does not verify"))
		update(ctx, map[string][]byte{"tls.crt": nil, "tls.key": nil})
		Eventually(r.reason).Should(ContainSubstring("tls.crt is missing or empty"))
		other := issueFor([]string{"other.cf.svc"}, day, time.Now())
		update(ctx, data(other))
		Eventually(r.reason).Should(ContainSubstring("is not for host"))
		Expect(r.deliveries()).To(Equal(1))
		update(ctx, data(second))
		Eventually(r.serial).Should(Equal(serialOf(second)))
		Expect(r.reason()).To(BeEmpty())
	})

	It("finds the CA at the end of the chain where there is no ca.crt, or names the remedy", func(ctx SpecContext) {
		i := issue()
		create(ctx, map[string][]byte{"tls.crt": i.certificate, "tls.key": i.key})
		run(source, r)
		Eventually(r.reason).Should(And(ContainSubstring("ca.crt is missing"), ContainSubstring("add the CA's certificate to the Secret as ca.crt")))
		Expect(r.deliveries()).To(BeZero())
		update(ctx, map[string][]byte{"tls.crt": join(i.certificate, i.ca), "tls.key": i.key})
		Eventually(r.serial).Should(Equal(serialOf(i)))
		Expect(r.bundle()).To(Equal(string(i.ca)))
	})

	It("does not take an intermediate CA at the end of the chain for a root", func(ctx SpecContext) {
		root, i := newAuthority(), issue()
		cross := Must(root.CrossSign(i.authority.Certificate, time.Now()))
		create(ctx, map[string][]byte{"tls.crt": join(i.certificate, ca.EncodeCertificate(cross)), "tls.key": i.key})
		run(source, r)
		Eventually(r.reason).Should(ContainSubstring("ca.crt is missing"))
	})

	It("reads a Secret of any type", func(ctx SpecContext) {
		i := issue()
		create(ctx, data(i), func(s *corev1.Secret) { s.Type = corev1.SecretTypeOpaque })
		run(source, r)
		Eventually(r.serial).Should(Equal(serialOf(i)))
	})

	It("serves on when the Secret is deleted, and takes the one that is made then", func(ctx SpecContext) {
		first, second := issue(), issue()
		create(ctx, data(first))
		run(source, r)
		Eventually(r.serial).Should(Equal(serialOf(first)))
		remove(ctx)
		Eventually(r.reason).Should(ContainSubstring("does not exist"))
		Expect(r.serial()).To(Equal(serialOf(first)))
		create(ctx, data(second))
		Eventually(r.serial).Should(Equal(serialOf(second)))
	})

	It("reports that an immutable Secret has to be made again", func(ctx SpecContext) {
		yes := true
		expired, next := issueFor(hosts, day, time.Now().Add(-2*day)), issue()
		create(ctx, data(expired), func(s *corev1.Secret) { s.Immutable = &yes })
		run(source, r)
		Eventually(r.reason).Should(And(ContainSubstring("has expired"), ContainSubstring("the Secret is immutable, so delete it")))
		remove(ctx)
		Eventually(r.reason).Should(ContainSubstring("does not exist"))
		create(ctx, data(next), func(s *corev1.Secret) { s.Immutable = &yes })
		Eventually(r.serial).Should(Equal(serialOf(next)))
		Expect(r.reason()).To(BeEmpty())
	})

	It("reports the end of the certificate in use, though nothing changes", func(ctx SpecContext) {
		clock := &hand{}
		create(ctx, data(issue()))
		source.Now, source.Poll = clock.now, 20*time.Millisecond
		run(source, r)
		Eventually(r.deliveries).Should(Equal(1))
		clock.advance(91 * day)
		Eventually(r.reason).Should(ContainSubstring("has expired"))
	})

	It("works with get, list and watch on that one Secret", func(ctx SpecContext) {
		user, config := newUser()
		grant(ctx, user, "", "secrets", secretName, "get", "list", "watch")
		source.Config = config
		first, second := issue(), issue()
		create(ctx, data(first))
		run(source, r)
		Eventually(r.serial).Should(Equal(serialOf(first)))
		update(ctx, data(second))
		Eventually(r.serial).Should(Equal(serialOf(second)))
		Expect(r.logged()).To(BeEmpty())
		Expect(r.allReasons()).To(BeEmpty())
	})

	DescribeTable("polls where it may not watch, and logs this once", func(ctx SpecContext, verbs ...string) {
		user, config := newUser()
		grant(ctx, user, "", "secrets", secretName, verbs...)
		source.Config = config
		run(source, r)
		Eventually(r.reason).Should(ContainSubstring("does not exist"))
		for range 3 {
			i := issue()
			create(ctx, data(i))
			Eventually(r.serial).Should(Equal(serialOf(i)))
			remove(ctx)
			Eventually(r.reason).Should(ContainSubstring("does not exist"))
		}
		Expect(count(r.logged(), "may not be watched", "grant list and watch")).To(Equal(1), "%q", r.logged())
	},
		Entry("with get alone", "get"),
		Entry("with get and list", "get", "list"),
	)

	It("waits for the right to read, and names it", func(ctx SpecContext) {
		user, config := newUser()
		source.Config = config
		i := issue()
		create(ctx, data(i))
		run(source, r)
		Eventually(r.reason).Should(ContainSubstring(`grant get, list and watch on secrets with resourceNames ["webhook-tls"] in namespace "` + namespace + `"`))
		grant(ctx, user, "", "secrets", secretName, "get")
		Eventually(r.serial).Should(Equal(serialOf(i)))
	})

	It("survives a restart of the API server", func(ctx SpecContext) {
		first, second := issue(), issue()
		create(ctx, data(first))
		run(source, r)
		Eventually(r.serial).Should(Equal(serialOf(first)))
		Expect(started.APIServer().Restart(ctx)).To(Succeed())
		Eventually(func() error {
			_, err := admin().CoreV1().Secrets(namespace).Get(ctx, secretName, metav1.GetOptions{})
			return err
		}).Should(Succeed())
		update(ctx, data(second))
		Eventually(r.serial).WithTimeout(2 * time.Minute).Should(Equal(serialOf(second))) // a reflector may back off for a minute
		Expect(r.reason()).To(BeEmpty())
	}, SpecTimeout(4*time.Minute))

	// neighbours makes other Secrets of 4 KiB each, and changes them all once if asked.
	neighbours := func(ctx context.Context, n int, change bool) {
		GinkgoHelper()
		secrets := admin().CoreV1().Secrets(namespace)
		for i := range n {
			secret := &corev1.Secret{
				ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("other-%d", i)},
				Data:       map[string][]byte{"x": []byte(strings.Repeat(strconv.Itoa(i%10), 4096))},
			}
			if _, err := secrets.Create(ctx, secret, metav1.CreateOptions{}); apierrors.IsAlreadyExists(err) && change {
				secret.Labels = map[string]string{"changed": "yes"}
				Must(secrets.Update(ctx, secret, metav1.UpdateOptions{}))
			} else {
				Expect(err).NotTo(HaveOccurred())
			}
		}
	}

	It("reads nothing of other Secrets, at first and later", func(ctx SpecContext) {
		wire := &transport{paths: make(chan string, 100)}
		source.Config = through(started.Config(), wire)
		first, second := issue(), issue()
		neighbours(ctx, 40, false)
		create(ctx, data(first))
		run(source, r)
		Eventually(r.serial).Should(Equal(serialOf(first)))
		neighbours(ctx, 40, true)
		update(ctx, data(second))
		Eventually(r.serial).Should(Equal(serialOf(second)))
		Expect(wire.received.Load()).To(BeNumerically("<", 40*4096/2), "three events: about 15 KiB")
		Expect(wire.requests.Load()).To(BeEquivalentTo(1), "one watch")
		Expect(<-wire.paths).To(ContainSubstring("fieldSelector=metadata.name%3Dwebhook-tls"))
	})

	It("needs no memory for other Secrets", Label("soak"), func(ctx SpecContext) {
		n := 500
		if os.Getenv("EIRINIX_SOAK") != "" {
			n = 15_000
		}
		wire := &transport{}
		source.Config = through(started.Config(), wire)
		first, second := issue(), issue()
		create(ctx, data(first))
		run(source, r)
		Eventually(r.serial).Should(Equal(serialOf(first)))
		before := heap()
		neighbours(ctx, n, false)
		neighbours(ctx, n, true)
		update(ctx, data(second))
		Eventually(r.serial).Should(Equal(serialOf(second)))
		http.DefaultClient.CloseIdleConnections()
		grown := int64(heap()) - int64(before)
		AddReportEntry("soak", fmt.Sprintf("%d other Secrets of 4 KiB, made and changed: heap grew by %d KiB, %d bytes came over the wire", n, grown>>10, wire.received.Load()))
		Expect(wire.received.Load()).To(BeNumerically("<", 64<<10))
		Expect(grown).To(BeNumerically("<", 2<<20))
	}, SpecTimeout(20*time.Minute))
})

func heap() uint64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC()
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

var _ = Describe("Secret without a cluster", func() {
	DescribeTable("reports the reason why it cannot be read", func(reason string, answer roundTrip) {
		r := newRecorder()
		source := &certsource.Secret{
			Config:    &rest.Config{Host: "https://api.example.org", Transport: answer},
			Namespace: "cf", Name: secretName, Hosts: hosts, Poll: 10 * time.Millisecond, Now: time.Now,
		}
		run(source, r)
		Eventually(r.reason).Should(And(HavePrefix("Secret cf/webhook-tls: it cannot be read: "), ContainSubstring(reason)))
		bundle, stop := context.WithTimeout(context.Background(), 10*time.Millisecond)
		defer stop()
		_, err := source.Bundle(bundle)
		Expect(err).To(MatchError(HavePrefix("Secret cf/webhook-tls: ")))
	},
		Entry("when there is an error", "the network is down", roundTrip(func(*http.Request) (*http.Response, error) {
			return nil, errors.New("the network is down")
		})),
		Entry("when there is no answer", "the API server has not sent it yet", roundTrip(func(r *http.Request) (*http.Response, error) {
			<-r.Context().Done()
			return nil, r.Context().Err()
		})),
	)

	It("needs its required fields", func() {
		for message, s := range map[string]*certsource.Secret{
			"a Namespace and a Name": {Name: "x", Hosts: hosts},
			"at least one host":      {Namespace: "cf", Name: "x"},
		} {
			Expect(s.Validate()).To(MatchError(ContainSubstring(message)))
		}
	})
})
